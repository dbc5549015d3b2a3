package projections

import (
	"context"
	"time"
)

// shortTurn is how long it may take to take in a few changes.
const shortTurn = 100 * time.Millisecond

// turns are those at what is kept in memory: one at a time takes in changes.
type turns chan struct{}

func newTurns() turns { return make(turns, 1) }

func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turns) give() { <-t }

// take takes a turn. It waits a moment where the request is, for others who
// take in a few changes, and outside for one who takes long.
func (p *Populations) take(ctx context.Context, t turns) error {
	moment, cancel := context.WithTimeout(ctx, shortTurn)
	defer cancel()
	if t.take(moment) == nil {
		return nil
	}
	taken := false
	err := p.Users.Progress.WaitOutside(ctx, func(ctx context.Context) (err error) {
		err = t.take(ctx)
		taken = err == nil
		return err
	})
	if taken && err != nil {
		t.give()
	}
	return err
}
