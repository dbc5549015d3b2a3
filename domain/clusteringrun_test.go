package domain_test

import (
	"testing"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

func TestRunsOfALayer(t *testing.T) {
	const layer, one, two = id.ConsentLayer("lay"), id.Run("one"), id.Run("two")
	requested := func(r id.Run) event.Event { return event.ClusteringRequested{Run: r, Layer: layer} }
	started := func(r id.Run, n int) event.Event { return event.ClusteringStarted{Run: r, Layer: layer, Attempt: n} }
	cancelled := event.ClusteringCancelled{Run: one, Layer: layer}
	completed := event.ClusteringCompleted{Run: one, Layer: layer, Attempt: 1}
	request := func(r *domain.Runs) ([]event.Event, error) {
		return r.Request(event.ClusteringRequested{Run: two, Layer: layer})
	}
	cancel := func(r *domain.Runs) ([]event.Event, error) { return r.Cancel(one) }
	start := func(r *domain.Runs) ([]event.Event, error) { return r.Start(one), nil }
	complete := func(r *domain.Runs) ([]event.Event, error) { return r.Complete(nil, completed), nil }
	fail := func(r *domain.Runs) ([]event.Event, error) { return r.Fail(one, 1, "internal", "So it is."), nil }
	for _, tt := range []struct {
		name    string
		given   []event.Event
		when    func(*domain.Runs) ([]event.Event, error)
		then    int // events
		refused string
	}{
		{"a first run", nil, request, 1, ""},
		{"a second one while the first waits", []event.Event{requested(one)}, request, 0, "run_in_progress"},
		{"while it is under way", []event.Event{requested(one), started(one, 1)}, request, 0, "run_in_progress"},
		{"after it was completed", []event.Event{requested(one), started(one, 1), completed}, request, 1, ""},
		{"after it was cancelled", []event.Event{requested(one), cancelled}, request, 1, ""},
		{"cancelling what waits", []event.Event{requested(one)}, cancel, 1, ""},
		{"cancelling twice", []event.Event{requested(one), cancelled}, cancel, 0, ""},
		{"cancelling what has ended", []event.Event{requested(one), started(one, 1), completed}, cancel, 0, "run_ended"},
		{"cancelling an older one", []event.Event{requested(one), cancelled, requested(two)}, cancel, 0, "run_ended"},
		{"starting", []event.Event{requested(one)}, start, 1, ""},
		{"starting what was cancelled", []event.Event{requested(one), cancelled}, start, 0, ""},
		{"completing", []event.Event{requested(one), started(one, 1)}, complete, 1, ""},
		{"completing an attempt that another has followed", []event.Event{requested(one), started(one, 1), started(one, 2)}, complete, 0, ""},
		{"completing what was cancelled", []event.Event{requested(one), started(one, 1), cancelled}, complete, 0, ""},
		{"failing", []event.Event{requested(one), started(one, 1)}, fail, 1, ""},
		{"failing an attempt that another has followed", []event.Event{requested(one), started(one, 1), started(one, 2)}, fail, 0, ""},
	} {
		var runs domain.Runs
		for _, e := range tt.given {
			runs.Apply(e)
		}
		events, err := tt.when(&runs)
		if len(events) != tt.then || (tt.refused != "") != (err != nil) || err != nil && !fault.Is(err, tt.refused) {
			t.Errorf("%s: %v, %v", tt.name, events, err)
		}
	}

	// A run that never comes to an end fails instead of being started for ever.
	runs := domain.Runs{}
	runs.Apply(requested(one))
	for range 20 {
		for _, e := range runs.Start(one) {
			runs.Apply(e)
		}
	}
	if _, failed := runs.Finished.(event.ClusteringFailed); runs.Open || !failed {
		t.Errorf("it is still %+v", runs)
	}
}
