package domain

import (
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// maxAttempts bounds how often a run is started again after a crash.
// limit: client | attempts of a clustering run that fails | {maxAttempts} | it is failed
const maxAttempts = 5

// Runs is the fold of the clustering runs of one scope, of which one at a time
// can be under way: the last that was requested.
type Runs struct {
	Last     event.ClusteringRequested
	Attempt  int // of the last run; 0: not started
	Open     bool
	Finished event.Event // what ended the last run
	Judging  int         // attempts to judge it
	Judged   event.Event // what it was judged to be; nil: not yet
}

// Apply folds an event.
func (r *Runs) Apply(e event.Event) {
	switch e := e.(type) {
	case event.ClusteringRequested:
		*r = Runs{Last: e, Open: true}
	case event.ClusteringStarted:
		r.Attempt = e.Attempt
	case event.ClusteringCancelled, event.ClusteringCompleted, event.ClusteringFailed:
		r.Open, r.Finished = false, e
	case event.ClusteringJudging:
		r.Judging = e.Attempt
	case event.ClusteringJudged:
		r.Judged = e
	}
}

// Request asks for a run, unless one is under way.
// Faults: run_in_progress.
func (r *Runs) Request(e event.ClusteringRequested) ([]event.Event, error) {
	if r.Open {
		of := "consent layer"
		if r.Last.Segment != "" {
			of = "segment"
		}
		return nil, fault.New(fault.Conflict, "run_in_progress",
			"The clustering run %s of this %s is still under way. Wait for its end or cancel it.", r.Last.Run, of)
	}
	return []event.Event{e}, nil
}

// Start takes a run that is under way; what an earlier attempt still finds
// does not count any more. After too many attempts the run fails instead.
func (r *Runs) Start(run id.Run) []event.Event {
	if !r.Open || r.Last.Run != run {
		return nil
	}
	if r.Attempt == maxAttempts {
		return r.Fail(run, r.Attempt, "internal", "It was started several times and never came to an end.")
	}
	return []event.Event{event.ClusteringStarted{Run: run, Layer: r.Last.Layer, Attempt: r.Attempt + 1}}
}

// Fail ends an attempt without a result; nothing where it does not count.
func (r *Runs) Fail(run id.Run, attempt int, code, why string) []event.Event {
	if !r.counts(run, attempt) {
		return nil
	}
	return []event.Event{event.ClusteringFailed{
		Run: run, Layer: r.Last.Layer, Segment: r.Last.Segment, Code: code, Details: "Clustering run " + string(run) + " failed. " + why,
	}}
}

// Complete publishes what an attempt has found; nothing where it does not count.
func (r *Runs) Complete(clusters []event.Event, e event.ClusteringCompleted) []event.Event {
	if !r.counts(e.Run, e.Attempt) {
		return nil
	}
	return append(clusters, e)
}

// Cancel ends a run that is under way. Cancelling twice is no error.
// Faults: run_ended.
func (r *Runs) Cancel(run id.Run) ([]event.Event, error) {
	if r.Open && r.Last.Run == run {
		return []event.Event{event.ClusteringCancelled{Run: run, Layer: r.Last.Layer}}, nil
	}
	if cancelled, ok := r.Finished.(event.ClusteringCancelled); ok && cancelled.Run == run {
		return nil, nil
	}
	return nil, fault.New(fault.Conflict, "run_ended", "The clustering run has ended already.")
}

// StartJudging takes it on to judge a run that has completed and is the last. After
// too many attempts it is given up.
func (r *Runs) StartJudging(run id.Run) []event.Event {
	switch {
	case !r.unjudged(run):
		return nil
	case r.Judging == maxAttempts:
		return r.Judge(event.ClusteringJudged{Run: run, Layer: r.Last.Layer, Verdict: VerdictUnknown, Code: "internal"})
	}
	return []event.Event{event.ClusteringJudging{Run: run, Layer: r.Last.Layer, Attempt: r.Judging + 1}}
}

// VerdictUnknown is the verdict on a run that was not judged to the end.
const VerdictUnknown = "unknown"

// Judge records a verdict; nothing where the run has one, or is not the last.
func (r *Runs) Judge(e event.ClusteringJudged) []event.Event {
	if !r.unjudged(e.Run) {
		return nil
	}
	return []event.Event{e}
}

// CancelJudging leaves a completed run without a verdict. Cancelling twice is no error.
// Faults: run_ended, run_in_progress.
func (r *Runs) CancelJudging(run id.Run) ([]event.Event, error) {
	const cancelled = "cancelled"
	if r.Open && r.Last.Run == run {
		return nil, fault.New(fault.Conflict, "run_in_progress", "The clustering run is still under way. Cancel the run itself, or wait for its end.")
	}
	if r.unjudged(run) {
		return []event.Event{event.ClusteringJudged{Run: run, Layer: r.Last.Layer, Verdict: VerdictUnknown, Code: cancelled}}, nil
	}
	if e, ok := r.Judged.(event.ClusteringJudged); ok && e.Run == run && e.Code == cancelled {
		return nil, nil
	}
	return nil, fault.New(fault.Conflict, "run_ended", "The clustering run has its verdict already, or never gets one.")
}

func (r *Runs) unjudged(run id.Run) bool {
	completed, ok := r.Finished.(event.ClusteringCompleted)
	return ok && !r.Open && completed.Run == run && r.Judged == nil
}

func (r *Runs) counts(run id.Run, attempt int) bool {
	return r.Open && r.Last.Run == run && r.Attempt == attempt
}
