package httpapi

import (
	"cmp"
	"context"
	"time"

	"kindred/domain/fault"
)

// StepOut calls wait while the request that ctx belongs to, if any, is outside
// its lane, so that it keeps nobody out meanwhile; what it waits for must be
// bounded itself. It fails with a fault of kind Unavailable where too many are in
// the lane afterwards.
func StepOut(ctx context.Context, wait func() error) error {
	x := exchangeFrom(ctx)
	if x.rec == nil || x.rec.lane == nil || !x.rec.place.CompareAndSwap(inside, outside) {
		return wait() // it is outside already
	}
	l := x.rec.lane
	l.leave(x.rec.client)
	err := wait()
	x.rec.client = x.client()
	switch {
	case !l.enter(ctx, x.rec.client):
		return cmp.Or(err, ctx.Err(), overloaded())
	case !x.rec.place.CompareAndSwap(outside, inside):
		l.leave(x.rec.client) // the request has ended meanwhile
	}
	return err
}

// WaitOutside is StepOut for a wait that is one of a bounded number. One of over
// a second gives way to another client's where too many wait; then it fails with
// a fault of kind Unavailable.
func WaitOutside(ctx context.Context, wait func(context.Context) error) error {
	x := exchangeFrom(ctx)
	if x.rec == nil || x.rec.lane == nil {
		return wait(ctx)
	}
	return StepOut(ctx, func() error {
		inner, end := context.WithCancel(ctx)
		defer end()
		return x.rec.lane.outside.during(ctx, x.client(), waits(end), func() error { return wait(inner) })
	})
}

const tooMuch = "Too much is going on. Try again."

func overloaded() error {
	return fault.New(fault.Unavailable, "overloaded", tooMuch).After(time.Second)
}
