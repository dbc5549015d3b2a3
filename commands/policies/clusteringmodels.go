package policies

import (
	"context"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/projections/segments"
)

// ModelledRuns is [Runs] by the read model.
type ModelledRuns struct {
	projections.Clusters
	// NoneOpen and NoneUnjudged remember that no run is to be carried out, and none to be judged; nil:
	// it is not remembered.
	NoneOpen, NoneUnjudged *projector.NegativeCache
}

// Next implements [Runs].
func (r ModelledRuns) Next(ctx context.Context, except []id.Run) ([]projections.OpenRun, error) {
	return openRuns(ctx, r.NoneOpen, r.OpenRuns, except)
}

// Unjudged implements [Runs].
func (r ModelledRuns) Unjudged(ctx context.Context, except []id.Run) ([]projections.OpenRun, error) {
	return openRuns(ctx, r.NoneUnjudged, r.UnjudgedRuns, except)
}

func openRuns(ctx context.Context, none *projector.NegativeCache, find func(context.Context, []id.Run) ([]projections.OpenRun, error), except []id.Run) (open []projections.OpenRun, err error) {
	if len(except) > 0 {
		none = nil // one of them may be next, though the model has not moved
	}
	err = none.Look(func() (bool, error) {
		open, err = find(ctx, except)
		return len(open) > 0, err
	})
	return open, err
}

// ModelledInputs is [Inputs] by the read models.
type ModelledInputs struct {
	Progress *projector.Progress
	Clusters projections.Clusters
	Consent  projections.Consent
	Users    projections.Users
	Segments segments.Model
}

// Reached implements [Inputs].
func (i ModelledInputs) Reached(ctx context.Context, client id.Client, at eventstore.Position) error {
	return i.reached(ctx, client, at, i.Users, i.Consent, i.Clusters)
}

func (i ModelledInputs) reached(ctx context.Context, client id.Client, at eventstore.Position, models ...projector.Projection) error {
	for _, model := range models {
		for {
			err := i.Progress.Wait(ctx, model, client, at)
			if err == nil {
				break
			}
			if !fault.Is(err, "stale") {
				return err
			}
		}
	}
	return nil
}

// Granted implements [Inputs].
// Faults: building, overloaded, quarantined, stale.
func (i ModelledInputs) Granted(ctx context.Context, client id.Client, layer id.ConsentLayer, at eventstore.Position) ([]id.User, error) {
	return i.Consent.GrantedAt(ctx, client, layer, at)
}

// Among implements [Inputs].
// Faults: building, overloaded, quarantined, segment_building, segment_unknown, stale.
func (i ModelledInputs) Among(ctx context.Context, client id.Client, segment id.Segment, at eventstore.Position, users []id.User) ([]id.User, error) {
	if err := i.reached(ctx, client, at, i.Segments); err != nil {
		return nil, err
	}
	return i.Segments.Among(ctx, client, segment, users)
}

// Traits implements [Inputs].
// Faults: building, overloaded, quarantined, stale.
func (i ModelledInputs) Traits(ctx context.Context, client id.Client, users []id.User) ([]projections.UserChange, error) {
	return i.Users.TraitsOf(ctx, client, users)
}
