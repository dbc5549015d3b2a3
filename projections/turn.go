package projections

import (
	"context"
	"time"

	"kindred/domain/fault"
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

// takeSoon takes a turn. It waits a moment, for others who take in a few changes;
// where one takes long, it fails with a fault that says how to wait for that.
func (t turns) takeSoon(ctx context.Context) error {
	moment, cancel := context.WithTimeout(ctx, shortTurn)
	defer cancel()
	if t.take(moment) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f := fault.New(fault.Unavailable, "busy", "The users are being read to be compared; try again.").After(time.Second)
	f.Soon = func(ctx context.Context) (context.Context, error) {
		err := t.take(ctx)
		if err == nil {
			t.give()
		}
		return ctx, err
	}
	return f
}
