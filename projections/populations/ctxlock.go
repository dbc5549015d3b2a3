package populations

import (
	"context"
	"time"

	"kindred/domain/fault"
)

// shortWait is how long it may take to take in a few changes.
const shortWait = 100 * time.Millisecond

// ctxLock is a mutex whose wait ends with a context: one request at a time takes in
// changes to what is kept in memory.
type ctxLock chan struct{}

func newCtxLock() ctxLock { return make(ctxLock, 1) }

func (l ctxLock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l ctxLock) unlock() { <-l }

// lockSoon locks. It waits a moment, for others that take in a few changes;
// where one takes long, it fails with a fault that says how to wait for that.
func (l ctxLock) lockSoon(ctx context.Context) error {
	moment, cancel := context.WithTimeout(ctx, shortWait)
	defer cancel()
	if l.lock(moment) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f := fault.New(fault.Unavailable, "busy", "The users are being read to be compared; try again.").After(time.Second)
	f.Soon = func(ctx context.Context) (context.Context, error) {
		err := l.lock(ctx)
		if err == nil {
			l.unlock()
		}
		return ctx, err
	}
	return f
}
