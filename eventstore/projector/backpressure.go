package projector

import (
	"context"
	"sync"
	"time"

	"kindred/eventstore"
)

// Backpressure keeps large appends from getting far ahead of the projections that want them: what
// others read stands behind them in the one log.
type Backpressure struct {
	Progress    *Progress
	Projections []Projection
	Ahead       int           // appends that projections may lack for which no read has waited lately
	Most        time.Duration // that one append waits

	mu     sync.Mutex
	before []eventstore.Position // of the last appends, at most Ahead
}

// Follow waits until each projection is known to have passed an append, or the one Ahead before
// it, where no read has waited for it lately. One that stands still is not waited for.
func (b *Backpressure) Follow(ctx context.Context, at eventstore.Position) {
	b.mu.Lock()
	earlier := eventstore.Start
	if b.before = append(b.before, at); len(b.before) > b.Ahead {
		earlier, b.before = b.before[0], b.before[1:]
	}
	b.mu.Unlock()
	enough := time.NewTimer(b.Most)
	defer enough.Stop()
	for {
		changed := b.behind(at, earlier)
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-enough.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// behind tells the leaders of those projections that Follow waits for of who follows. It returns
// what is closed once one of them has come further; nil: there is none.
func (b *Backpressure) behind(at, earlier eventstore.Position) (changed <-chan struct{}) {
	p := b.Progress
	p.mu.Lock()
	defer p.mu.Unlock()
	lately := func(at time.Time) bool { return !at.IsZero() && time.Since(at) < waitedLately }
	for _, projection := range b.Projections {
		r := p.projection(ID(projection))
		to := earlier
		if lately(r.waited) {
			to = at
		}
		if r.position < to && lately(r.moved) {
			signal(r.asked)
			changed = r.changed
		}
	}
	return changed
}
