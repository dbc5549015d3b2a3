package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
)

// RequestRun asks for a clustering run.
type RequestRun struct {
	event.RunScope
	K    int    // 0: chosen by the run
	Seed *int64 // nil: follows from the run's id

	MinSize int // of a cluster; 0: chosen by the run
}

// Run is a clustering run as it was requested.
type Run struct {
	event.ClusteringRequested
	CreatedAt time.Time
	Position  eventstore.Position // of the request, and of the end of the input
}

// RequestRun asks for a clustering run, or fails with the fault run_in_progress while its
// scope has one. A segment is of the layer, and has had its members judged.
// Faults: building, busy, catching_up, consent_layer_unknown, idempotency_key_reused, invalid, overloaded,
// quarantined, run_in_progress, segment_building, segment_unknown, stale.
func (c *Commands) RequestRun(ctx context.Context, call Call, in RequestRun) (Run, error) {
	run := id.Next[id.Run](c.ids(call, "clustering run"))
	requested := event.ClusteringRequested{Run: run, Layer: in.Layer, K: in.K, MinSize: in.MinSize, Segment: in.Segment}
	var err error
	if in.Seed != nil {
		requested.Seed = *in.Seed
	} else if requested.Seed, err = seedOf(run); err != nil {
		return Run{}, err
	}
	recorded, err := c.decideRun(ctx, call, in.RunScope, func(r *domain.Runs) ([]event.Event, error) {
		layer, err := c.consentLayer(ctx, call.Client, in.Layer) // of a repetition, nothing is asked
		if err != nil {
			return nil, err
		}
		requested.TraitPaths = layer.TraitPaths
		if err := c.checkScope(ctx, call.Client, in.RunScope); err != nil {
			return nil, err
		}
		return r.Request(requested)
	})
	if err != nil {
		return Run{}, err
	}
	return Run{recorded[0].Event.(event.ClusteringRequested), recorded[0].RecordedAt, recorded[0].Position}, nil
}

// checkScope refuses a segment that is not there, is of another layer than the runs that
// are kept to it, or is judging its first members.
func (c *Commands) checkScope(ctx context.Context, client id.Client, of event.RunScope) error {
	if of.Segment == "" {
		return nil
	}
	const pointer = "/segment_id"
	segments, err := c.segments(ctx, client)
	if err != nil {
		return err
	}
	segment, err := segments.Get(of.Segment)
	if err == nil && segment.Layer != of.Layer {
		err = fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "is not a segment of the same consent_layer_id"})
	}
	if err != nil {
		return err
	}
	return c.Filter.Ready(ctx, client, false, pointer, of.Segment, event.Within{Layer: of.Layer})
}

// seedOf is 48 bits of a run's id, which every JSON reader takes whole.
func seedOf(run id.Run) (seed int64, err error) {
	raw, err := id.Bytes(run)
	for _, b := range raw[:6] {
		seed = seed<<8 | int64(b)
	}
	return seed, err
}

// CancelRun ends a run; it says nothing to webhooks.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, run_ended, stale.
func (c *Commands) CancelRun(ctx context.Context, call Call, of event.RunScope, run id.Run) (eventstore.Position, error) {
	recorded, err := c.decideRun(ctx, call, of, func(r *domain.Runs) ([]event.Event, error) { return r.Cancel(run) })
	return end(recorded), err
}

// StartRun takes a run for the process that calls. It returns attempt 0 where
// there is nothing to do any more; givenUp says that the run was failed for that, after too many attempts.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) StartRun(ctx context.Context, call Call, of event.RunScope, run id.Run) (attempt int, givenUp bool, err error) {
	recorded, err := c.decideRun(ctx, call, of, func(r *domain.Runs) ([]event.Event, error) { return r.Start(run), nil })
	if err != nil || len(recorded) == 0 {
		return 0, false, err
	}
	started, again := recorded[0].Event.(event.ClusteringStarted)
	return started.Attempt, !again, nil
}

// FailRun ends an attempt without a result. why is a sentence for the client.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) FailRun(ctx context.Context, call Call, of event.RunScope, run id.Run, attempt int, code, why string) error {
	_, err := c.decideRun(ctx, call, of, func(r *domain.Runs) ([]event.Event, error) { return r.Fail(run, attempt, code, why), nil })
	return err
}

// Division is what an attempt has found.
type Division struct {
	Clusters  []event.Event // formed, kept, retired, drift detected
	Completed event.ClusteringCompleted
}

// Fits says whether all of it fits into one append.
func (d Division) Fits() (bool, error) {
	events := append(slices.Clone(d.Clusters), d.Completed)
	first, err := firstAppend(events)
	return len(first) == len(events), err
}

// CompleteRun publishes what an attempt has found, all of it in one append. It
// does nothing where the attempt does not count any more, and fails with the
// fault consent_layer_unknown where the layer is gone.
// Faults: busy, catching_up, consent_layer_unknown, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) CompleteRun(ctx context.Context, call Call, found Division) error {
	if _, err := c.consentLayer(ctx, call.Client, found.Completed.Layer); err != nil {
		return err
	}
	_, err := c.decideRun(ctx, call, event.RunScope{Layer: found.Completed.Layer, Segment: found.Completed.Segment}, func(r *domain.Runs) ([]event.Event, error) {
		return r.Complete(found.Clusters, found.Completed), nil
	})
	return err
}

// StartJudging takes it on to judge a completed run. It returns attempt 0 where
// there is nothing to do any more.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) StartJudging(ctx context.Context, call Call, of event.RunScope, run id.Run) (attempt int, err error) {
	recorded, err := c.decideRun(ctx, call, of, func(r *domain.Runs) ([]event.Event, error) { return r.StartJudging(run), nil })
	if err != nil || len(recorded) == 0 {
		return 0, err
	}
	judging, _ := recorded[0].Event.(event.ClusteringJudging)
	return judging.Attempt, nil
}

// JudgeRun records the verdict on a completed run.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) JudgeRun(ctx context.Context, call Call, of event.RunScope, verdict event.ClusteringJudged) error {
	_, err := c.decideRun(ctx, call, of, func(r *domain.Runs) ([]event.Event, error) { return r.Judge(verdict), nil })
	return err
}

// CancelJudging leaves a completed run without a verdict.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, run_ended, run_in_progress,
// stale.
func (c *Commands) CancelJudging(ctx context.Context, call Call, of event.RunScope, run id.Run) (eventstore.Position, error) {
	recorded, err := c.decideRun(ctx, call, of, func(r *domain.Runs) ([]event.Event, error) { return r.CancelJudging(run) })
	return end(recorded), err
}

const (
	runsPage = 500 // events of a layer's runs that are read at once
	// maxRunEvents bounds how far back is looked for the last completed run.
	// limit: commands | events that are looked through for a layer's last run | {maxRunEvents}
	maxRunEvents = 10_000
	// usersAssigned bounds the users of one event: it stays under 512 KiB.
	// limit: commands | users of one event of a run | {usersAssigned}
	usersAssigned = 10_000
)

// decideRun decides about the runs of a scope by the last of them, so that it
// costs the same however many there were, and returns what it recorded, now or
// when the same request was first made.
func (c *Commands) decideRun(ctx context.Context, call Call, of event.RunScope,
	decide func(*domain.Runs) ([]event.Event, error),
) ([]eventstore.Recorded, error) {
	outcome, err := execute(ctx, c, call, eventstore.RunsStream(call.Client, of), false, c.backTo(runsPage, requestsRun),
		func(r *domain.Runs, _ []eventstore.Recorded) ([]event.Event, error) { return decide(r) })
	return outcome.Recorded, err
}

// requestsRun says whether all that counts of the runs of a scope stands behind an
// event.
func requestsRun(e event.Event) bool {
	_, requests := e.(event.ClusteringRequested)
	return requests
}

// Assigned is the users whom an attempt put into a cluster.
type Assigned struct {
	Cluster id.Cluster
	Users   []id.User
}

// Assign records who is in which cluster, for when the attempt completes, and
// returns the position of the last event.
func (c *Commands) Assign(ctx context.Context, call Call, in event.RunScope, of event.RunAttempt, clusters []Assigned) (at eventstore.Position, err error) {
	stream := eventstore.AssignedStream(call.Client, of)
	end, ids := eventstore.NewStreamVersion(stream), c.ids(call, string(stream))
	for _, cluster := range clusters {
		for users := range slices.Chunk(cluster.Users, usersAssigned) {
			recorded, err := c.Log.Append(ctx, end, call.origin(), ids, event.ClusteringAssigned{
				Run: of.Run, Layer: in.Layer, Segment: in.Segment, Attempt: of.Attempt, Cluster: cluster.Cluster, Users: users,
			})
			if err != nil {
				return at, err
			}
			if end, err = recorded[0].StreamVersion(); err != nil {
				return at, err
			}
			at = recorded[0].Position
		}
	}
	return at, nil
}

// KeepProfile records what a later run compares a cluster with; of no cluster, how
// the attempt read its users. It fails with the fault consent_layer_unknown where the
// layer is gone, whose key seals it.
// Faults: consent_layer_unknown.
func (c *Commands) KeepProfile(ctx context.Context, call Call, of event.ClusteringProfiled, profile any) error {
	plain, err := json.Marshal(profile)
	if err != nil {
		return fmt.Errorf("encode the profile of %s: %w", of.Cluster, err)
	}
	of.Profile = event.Private(plain)
	stream := eventstore.ProfileStream(call.Client, event.RunAttempt{Run: of.Run, Attempt: of.Attempt}, of.Cluster)
	_, err = c.Log.Append(ctx, eventstore.NewStreamVersion(stream), call.origin(), c.ids(call, string(stream)), of)
	if errors.Is(err, seal.ErrErased) {
		return fault.UnknownConsentLayer()
	}
	return err
}

// Profile reads what an attempt kept of a cluster into profile. found is false
// where there is none, or none that can be read any more.
func (c *Commands) Profile(ctx context.Context, client id.Client, of event.RunAttempt, cluster id.Cluster, profile any) (found bool, err error) {
	kept, err := c.Log.ReadBack(ctx, eventstore.ProfileStream(client, of, cluster), eventstore.End, 1)
	if err != nil || len(kept) == 0 {
		return false, err
	}
	plain, err := c.Log.Open(ctx, kept[0], "profile")
	if errors.Is(err, seal.ErrErased) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(plain, profile)
	}
	if err != nil {
		return false, fmt.Errorf("read the profile of %s: %w", cluster, err)
	}
	return true, nil
}

// LastDivision is how the last completed run divided the users of a scope.
type LastDivision struct {
	Completed event.ClusteringCompleted
	Clusters  []event.ClusterState
}

// LastDivision returns the last completed run of a scope; of one without any, the zero
// value.
func (c *Commands) LastDivision(ctx context.Context, client id.Client, of event.RunScope) (last LastDivision, err error) {
	stream := eventstore.RunsStream(client, of)
	read := 0
	for r, err := range c.Log.Backward(ctx, stream, eventstore.End, runsPage) {
		if err != nil {
			return last, err
		}
		if read++; last.take(r.Event) || read == maxRunEvents {
			break
		}
	}
	return last, nil
}

// take reads a stream of runs backwards; done says that the last completed run
// is complete.
func (d *LastDivision) take(e event.Event) (done bool) {
	switch e := e.(type) {
	case event.ClusteringCompleted:
		d.Completed = e
	case event.ClusterFormed:
		d.Clusters = append(d.Clusters, e.ClusterState)
	case event.ClusterKept:
		d.Clusters = append(d.Clusters, e.ClusterState)
	case event.ClusteringStarted:
		return d.Completed.Run == e.Run
	}
	return false
}

// Assignments returns the users whom an attempt put into each cluster.
func (c *Commands) Assignments(ctx context.Context, client id.Client, of event.RunAttempt) (map[id.Cluster][]id.User, error) {
	history, _, err := c.Log.Load(ctx, eventstore.AssignedStream(client, of))
	if err != nil {
		return nil, err
	}
	assigned := map[id.Cluster][]id.User{}
	for _, r := range history {
		if e, ok := r.Event.(event.ClusteringAssigned); ok {
			assigned[e.Cluster] = append(assigned[e.Cluster], e.Users...)
		}
	}
	return assigned, nil
}

// TraitsAt returns the traits that a user had at a position of the log, or nil
// where there was no such user, or is none any more.
func (c *Commands) TraitsAt(ctx context.Context, client id.Client, user id.User, at eventstore.Position) (json.RawMessage, error) {
	newest, err := c.newestOfUser(ctx, client, user)
	if err != nil {
		return nil, err
	}
	then, err := c.userAt(ctx, newest, at)
	if err != nil || then.Event == nil {
		return nil, err
	}
	traits, err := c.open(ctx, then, "traits")
	if errors.Is(err, seal.ErrErased) {
		return nil, nil
	}
	return traits, err
}
