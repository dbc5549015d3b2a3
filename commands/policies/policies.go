// Package policies drives on what has begun: whenever a fact is recorded, do
// what must follow from it, however often the process that recorded it has
// crashed meanwhile.
package policies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"kindred/backoff"
	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/panics"
	"kindred/projections"
)

// OpenClaims finds reservations that nobody has confirmed or released.
type OpenClaims interface {
	// OpenSince returns at most limit claims that were reserved before a
	// moment and are still open.
	OpenSince(ctx context.Context, before time.Time, limit int) ([]eventstore.Stream, error)
}

// MatchTurns hands out the users who are to be matched automatically.
type MatchTurns interface {
	// Take has users of one client matched, who wants the best k of each from
	// a score on; it is false where nobody waits.
	Take(ctx context.Context, match projections.MatchUser) (bool, error)
}

// Policies runs all policies of the service.
type Policies struct {
	Commands   *commands.Commands
	Subscriber message.Subscriber
	Claims     OpenClaims
	Campaigns  DueCampaigns
	Segments   Segments
	// NoneBuilding is of the segments' model: no rule is to judge anybody; nil: it is not remembered.
	NoneBuilding *projector.NegativeCache
	Matching     MatchTurns
	Sandboxes    Sandboxes
	// RecordEndings records how deliveries to webhooks ended, in batches, each again until
	// the log has taken it. It says whether there is more.
	RecordEndings func(context.Context) (more bool, err error)
	// DisableFailing pauses the webhooks that have failed for as long as their owners allow.
	DisableFailing func(context.Context) error
	Now            func() time.Time
	Logger         *slog.Logger
	Metrics        *Metrics // nil: nothing is counted
}

const (
	closeTimeout = 5 * time.Second
	endingsPause = time.Second // in which ends of deliveries gather for company
	failingPause = 5 * time.Second
	longestRest  = 2 * time.Second // of a policy that fails, unless its pause is longer
	// A server that vanishes says nothing: without a bound each policy would keep a connection of
	// the pool that writes share, until none is left.
	// limit: commands | a round of a policy | {roundTimeout}
	roundTimeout = time.Minute
)

// Wants says which events a policy answers; the projector passes over the others.
func Wants(r eventstore.Record) bool {
	switch r.Type {
	case "end_user.erased", "member.removed", "consent_layer.retired", "segment.retired", "sandbox.added", "client.deleted":
		return true
	}
	return false
}

// Run runs the policies until ctx ends.
// Faults: account_unknown, api_key_unknown, building, busy, catching_up, client_unknown,
// idempotency_key_reused, invalid, not_in_sandbox, overloaded, population_too_large, quarantined,
// segment_unknown, stale, user_unknown.
func (p *Policies) Run(ctx context.Context) error {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeTimeout},
		watermill.NewSlogLoggerWithLevelMapping(p.Logger, map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug}))
	if err != nil {
		return fmt.Errorf("make the policies' router: %w", err)
	}
	router.AddConsumerHandler("forget", "forget", p.Subscriber, projector.Handle(p.forget)) //nolint:contextcheck // each message carries its own
	var sweeps sync.WaitGroup
	sweep := func(policy string, pause time.Duration, work func(context.Context) (more bool, err error)) {
		sweeps.Go(func() { p.sweep(ctx, policy, pause, work) })
	}
	sweep("claims", claimPause, func(ctx context.Context) (bool, error) { return false, p.ResolveClaims(ctx) })
	sweep("campaigns", campaignPause, p.AdvanceCampaigns)
	sweep("segments", buildPause, p.BuildSegments)
	sweep("time", timePause, func(ctx context.Context) (bool, error) { return false, p.PassTime(ctx) })
	sweep("sandboxes", sandboxPause, func(ctx context.Context) (bool, error) { return false, p.EndSandboxes(ctx) })
	sweep("matching", matchPause, p.matchAutomatically)
	sweep("endings", endingsPause, p.RecordEndings)
	sweep("endpoints", failingPause, func(ctx context.Context) (bool, error) { return false, p.DisableFailing(ctx) })
	err = router.Run(ctx)
	sweeps.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("run the policies: %w", err)
	}
	return nil
}

// isTold says whether the log tells that something of a client failed and is tried again: not
// of a client that was deleted, whose rows are on their way out, and not once ctx has ended.
func isTold(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, eventstore.ErrDeleted)
}

// sweep works until ctx ends, with a pause whenever there is no more to do, and a longer one
// while it fails, which the log tells of now and then. What failed of one client, where there
// is more to do, rests by itself, and does not keep others waiting.
// Several processes may sweep at once: the log decides.
func (p *Policies) sweep(ctx context.Context, policy string, pause time.Duration, work func(context.Context) (more bool, err error)) {
	next := time.NewTimer(pause)
	defer next.Stop()
	var seldom backoff.Seldom
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		more, err := try(ctx, work)
		if err != nil && ctx.Err() == nil {
			seldom.Do(func() { p.Logger.WarnContext(ctx, "a policy failed, trying again", "policy", policy, "error", err) })
		}
		switch {
		case err != nil && more:
			next.Reset(pause)
		case err != nil:
			next.Reset(backoff.Doubled(pause, max(pause, longestRest), failures))
			failures++
		case more:
			next.Reset(0)
			failures = 0
		default:
			next.Reset(pause)
			failures = 0
		}
	}
}

func try(ctx context.Context, work func(context.Context) (more bool, err error)) (more bool, err error) {
	defer panics.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	return work(ctx)
}

// forget finishes what a crash may have cut short. Of a user, a member, a consent layer or a
// segment that has ended it destroys the key, which sealed what is known of the person, what
// was found out under the layer, or the segment's rule. It ends a client or a sandbox that
// was deleted, and opens a sandbox that was added.
func (p *Policies) forget(ctx context.Context, r eventstore.Recorded) error {
	call := commands.Call{Client: r.Client, Actor: "policy:forget", Causation: r.ID, Trace: r.Trace()}
	switch e := r.Event.(type) {
	case event.EndUserErased:
		return p.Commands.ForgetUser(ctx, r.Client, e.User)
	case event.ConsentLayerRetired:
		return p.Commands.DestroyKey(ctx, r.Client, string(e.Layer))
	case event.SegmentRetired:
		return p.Commands.DestroyKey(ctx, r.Client, string(e.Segment))
	case event.SandboxAdded:
		return p.Commands.OpenSandbox(ctx, call, event.SandboxStanding{Sandbox: e.Sandbox, Name: e.Name, ExpiresAt: e.ExpiresAt})
	case event.ClientDeleted:
		if e.Parent == "" {
			_, err := p.Commands.EndClient(ctx, call)
			return err
		}
		call.Client = e.Parent
		_, err := p.Commands.EndSandbox(ctx, call, e.Client)
		return err
	case event.MemberRemoved:
		err := p.Commands.ForgetMember(ctx, call, e)
		if fault.Of(err, fault.Unavailable) && !fault.Is(err, "quarantined") {
			return projector.Transient(err) // the keys' read model has not come as far
		}
		return err
	}
	return nil
}
