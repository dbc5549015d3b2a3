package policies

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/panics"
)

const (
	buildPause    = 200 * time.Millisecond
	timePause     = time.Second
	passTimeout   = 30 * time.Second // in which time passes for one client, so that it keeps back no other
	segmentsActor = "policy:segments"
)

// Segments are what judges users by the rules of segments.
type Segments interface {
	// Building returns clients of which a rule has not judged everyone yet.
	Building(ctx context.Context) ([]id.Client, error)
	// Build judges some more; ready is the revision of the event up to which rules
	// have judged everyone, below 0 where there is none.
	Build(ctx context.Context, client id.Client) (more bool, ready int64, err error)
	// Restored returns clients of which a segment is not blocked any more.
	Restored(ctx context.Context) ([]id.Client, error)
	// RestoredOf returns one of a client's, its rule and the event that changed it last.
	RestoredOf(ctx context.Context, client id.Client) (segment id.Segment, rule string, changed eventstore.Revision, ok bool, err error)
	// Waiting returns clients of which time alone may have moved users by a moment.
	Waiting(ctx context.Context, now time.Time) ([]id.Client, error)
	// WaitingOf says up to which of a client's users these are to be judged now, in the order in which
	// they are due and of their numbers; some is false where there are none.
	WaitingOf(ctx context.Context, client id.Client, now time.Time) (due time.Time, number int64, some bool, err error)
}

// BuildSegments judges a slice of the users of each client by new rules, in turn, and
// records of whose rules all users are judged. One that fails keeps back no other.
// Faults: building, busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined,
// segment_unknown, stale.
func (p *Policies) BuildSegments(ctx context.Context) (more bool, err error) {
	err = p.NoneBuilding.Look(func() (found bool, err error) {
		found, more, err = p.buildSegments(ctx)
		return found, err
	})
	return more, err
}

func (p *Policies) buildSegments(ctx context.Context) (found, more bool, err error) {
	restored, err := p.restoreSegments(ctx)
	if err != nil {
		return false, false, err
	}
	building, err := p.Segments.Building(ctx)
	if err != nil {
		return false, false, err
	}
	for _, client := range building {
		rest, err := p.build(ctx, client)
		if isTold(ctx, err) {
			p.Logger.WarnContext(ctx, "users not judged by a new rule, trying again", "client", client, "error", err)
		}
		more = more || rest && err == nil
	}
	return restored || len(building) > 0, more, nil
}

// build judges some more of a client's users by its new rules.
func (p *Policies) build(ctx context.Context, client id.Client) (more bool, err error) {
	defer panics.Catch(&err)
	more, ready, err := p.Segments.Build(ctx, client)
	if err == nil && ready >= 0 {
		err = p.Commands.MakeSegmentsReady(ctx, commands.Call{Client: client, Actor: segmentsActor}, ready)
	}
	return more, err
}

// restoreSegments gives segments that are not blocked any more their rules again, which
// judge everybody anew. It says whether there were any.
func (p *Policies) restoreSegments(ctx context.Context) (bool, error) {
	restored, err := p.Segments.Restored(ctx)
	if err != nil {
		return false, err
	}
	for _, client := range restored {
		err := panics.Caught(func() error {
			segment, rule, changed, ok, err := p.Segments.RestoredOf(ctx, client)
			if ok && err == nil {
				_, err = p.Commands.RestoreSegment(ctx, commands.Call{Client: client, Actor: segmentsActor, IfMatch: &changed}, segment, rule)
			}
			if fault.Of(err, fault.Stale) {
				return nil // it has changed since, as by a restoration that the model has yet to hear of
			}
			return err
		})
		if isTold(ctx, err) {
			p.Logger.WarnContext(ctx, "a segment is not restored, trying again", "client", client, "error", err)
		}
	}
	return len(restored) > 0, nil
}

// PassTime lets time pass for the segments of clients of which it moves users.
// Faults: building, busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (p *Policies) PassTime(ctx context.Context) error {
	now := p.Now()
	due, err := p.Segments.Waiting(ctx, now)
	if err != nil {
		return err
	}
	for _, client := range due {
		if err := p.passTime(ctx, client, now); isTold(ctx, err) {
			p.Logger.WarnContext(ctx, "time has not passed for segments, trying again", "client", client, "error", err)
		}
	}
	return nil
}

// passTime lets time pass for the segments of a client: to now, and in a sandbox to what
// its clock says.
func (p *Policies) passTime(ctx context.Context, client id.Client, now time.Time) (err error) {
	defer panics.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	ahead, err := p.Commands.Log.AheadOf(ctx, client)
	if err != nil {
		return err
	}
	now = now.Add(ahead)
	due, number, some, err := p.Segments.WaitingOf(ctx, client, now)
	if err != nil || !some {
		return err
	}
	return p.Commands.PassTime(ctx, commands.Call{Client: client, Actor: segmentsActor}, now, due, number)
}
