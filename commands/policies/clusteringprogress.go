package policies

import (
	"context"
	"sync"
	"time"

	"kindred/domain/clustering"
	"kindred/projections"
)

// phase names what a run is at.
type phase string

// The phases of a run. Those in between are those of package clustering.
const (
	phaseReading    phase = "reading"
	phaseWaiting    phase = "waiting"
	phaseDescribing phase = "describing"
	phasePublishing phase = "publishing"
)

// stretch is the part of the whole that a phase takes, by experience.
func (p phase) stretch() (from, to float64) {
	switch p {
	case phaseWaiting:
		return 0, 0
	case phaseReading:
		return 0, 0.25
	case phase(clustering.Choosing):
		return 0.25, 0.45
	case phase(clustering.Starting):
		return 0.45, 0.55
	case phase(clustering.Refining):
		return 0.55, 0.65
	case phase(clustering.Settling):
		return 0.65, 0.7
	case phaseDescribing:
		return 0.7, 0.9
	}
	return 0.9, 1
}

const (
	showEvery   = 250 * time.Millisecond
	showTimeout = time.Second
)

// reporter shows how far a run has come, every now and then.
type reporter struct {
	*Clustering
	run   projections.OpenRun
	began time.Time

	mu    sync.Mutex
	shown time.Time
	phase phase
	share float64
}

// of reports done of total of a phase.
func (r *reporter) of(ctx context.Context, p phase, done, total int) {
	r.mu.Lock()
	fresh := p != r.phase || r.Now().Sub(r.shown) >= showEvery
	r.mu.Unlock()
	if fresh && total > 0 {
		r.at(ctx, p, float64(done)/float64(total))
	}
}

// at reports that a share of a phase is done. A report that is lost is no harm.
func (r *reporter) at(ctx context.Context, p phase, done float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	from, to := p.stretch()
	r.phase, r.shown = p, now
	r.share = max(r.share, from+(to-from)*min(done, 1)) // never back
	var etaSeconds *int
	if r.share > 0.02 {
		eta := int(now.Sub(r.began).Seconds()*(1-r.share)/r.share + 0.5)
		etaSeconds = &eta
	}
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	if err := r.Runs.ShowProgress(ctx, r.run.Client, r.run.ID, string(p), r.share, etaSeconds); err != nil && ctx.Err() == nil {
		r.Logger.DebugContext(ctx, "progress not shown", "run", r.run.ID, "error", err)
	}
}
