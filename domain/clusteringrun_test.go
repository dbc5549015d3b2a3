package domain_test

import (
	"slices"
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
	judging := func(n int) event.Event { return event.ClusteringJudging{Run: one, Layer: layer, Attempt: n} }
	judged := func(code string) event.Event { return event.ClusteringJudged{Run: one, Layer: layer, Code: code} }
	startJudging := func(r *domain.Runs) ([]event.Event, error) { return r.StartJudging(one), nil }
	judge := func(r *domain.Runs) ([]event.Event, error) {
		return r.Judge(event.ClusteringJudged{Run: one, Layer: layer, Verdict: "groups"}), nil
	}
	cancelJudging := func(r *domain.Runs) ([]event.Event, error) { return r.CancelJudging(one) }
	done := []event.Event{requested(one), started(one, 1), completed}
	and := func(more ...event.Event) []event.Event { return append(slices.Clone(done), more...) }
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
		{"cancelling what has ended, where a later run was cancelled", and(requested(two), event.ClusteringCancelled{Run: two, Layer: layer}), cancel, 0, "run_ended"},
		{"starting", []event.Event{requested(one)}, start, 1, ""},
		{"starting what was cancelled", []event.Event{requested(one), cancelled}, start, 0, ""},
		{"completing", []event.Event{requested(one), started(one, 1)}, complete, 1, ""},
		{"completing an attempt that another has followed", []event.Event{requested(one), started(one, 1), started(one, 2)}, complete, 0, ""},
		{"completing what was cancelled", []event.Event{requested(one), started(one, 1), cancelled}, complete, 0, ""},
		{"judging what has completed", done, startJudging, 1, ""},
		{"judging it again after a crash", and(judging(1)), startJudging, 1, ""},
		{"judging what is under way", []event.Event{requested(one), started(one, 1)}, startJudging, 0, ""},
		{"judging what has failed", []event.Event{requested(one), event.ClusteringFailed{Run: one}}, startJudging, 0, ""},
		{"judging what is judged", and(judging(1), judged("")), startJudging, 0, ""},
		{"judging what another run follows", and(requested(two)), startJudging, 0, ""},
		{"a verdict", and(judging(1)), judge, 1, ""},
		{"a second verdict", and(judging(1), judged("")), judge, 0, ""},
		{"a verdict on what another run follows", and(judging(1), requested(two)), judge, 0, ""},
		{"cancelling the verdict", and(judging(1)), cancelJudging, 1, ""},
		{"cancelling the verdict before anybody judges", done, cancelJudging, 1, ""},
		{"cancelling the verdict twice", and(judged("cancelled")), cancelJudging, 0, ""},
		{"cancelling a verdict that is given", and(judged("")), cancelJudging, 0, "run_ended"},
		{"cancelling the verdict on what is under way", []event.Event{requested(one)}, cancelJudging, 0, "run_in_progress"},
		{"cancelling the verdict on an older run", and(requested(two)), cancelJudging, 0, "run_ended"},
		{"cancelling the verdict on what a later run has followed", and(requested(two), event.ClusteringCompleted{Run: two, Layer: layer}, event.ClusteringJudged{Run: two, Layer: layer, Code: "cancelled"}), cancelJudging, 0, "run_ended"},
		{"cancelling the verdict on what was cancelled", []event.Event{requested(one), cancelled}, cancelJudging, 0, "run_ended"},
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

	// Nor is one judged for ever.
	runs = domain.Runs{}
	for _, e := range done {
		runs.Apply(e)
	}
	for range 20 {
		for _, e := range runs.StartJudging(one) {
			runs.Apply(e)
		}
	}
	if e, given := runs.Judged.(event.ClusteringJudged); !given || e.Verdict != domain.VerdictUnknown || e.Code != "internal" {
		t.Errorf("it is still %+v", runs)
	}
}
