package httpapi

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/fault"
	"kindred/semaphore"
)

const (
	// waitingPart: as many requests may wait for a place of a class for long work as it has
	// places, divided by this.
	waitingPart = 8
	// waitForPlace is how long a request may wait before it is turned away. Callers do not
	// notice a short stall, and under a lasting load no queue builds up.
	waitForPlace = time.Second
	// A request gives up its place when its answer is made, so that nobody waits for a
	// caller that reads it slowly, or sends the rest of a body slowly. All answers without
	// a place hold no more than maxWritten bytes; a request beyond that keeps its place.
	// limit: edge | answers that are taken slowly and hold no place | {maxWritten B} together
	maxWritten = 64 << 20
)

// class is a bounded number of places for one kind of work, which clients share
// fairly.
type class struct {
	*semaphore.Semaphore
	shed prometheus.Counter // requests that got no place, or had to give it up
	// toleratedFor is how long a request may last before it can be ended for a client
	// that holds fewer, where all places are held; 0: it cannot.
	toleratedFor time.Duration
	written      atomic.Int64 // bytes of answers that are being written without a place
}

// long makes a class for work that takes long. A client has at most one part in parts of
// its places. Some more requests may wait for a moment.
func long(places, parts int, shed prometheus.Counter) *class {
	return &class{Semaphore: &semaphore.Semaphore{
		Places: places, Each: max(places/parts, 1), Waiting: places / waitingPart, Patience: waitForPlace,
	}, shed: shed}
}

// during works while h holds a place. It fails with a fault of kind Unavailable
// where there is none, or where work failed because it had to give way.
func (c *class) during(ctx context.Context, client string, h *semaphore.Holder, work func() error) error {
	if !c.Hold(ctx, client, h) {
		c.shed.Inc()
		return cmp.Or(ctx.Err(), overloaded())
	}
	defer c.Drop(h)
	err := work()
	if err != nil && h.Ended() {
		c.shed.Inc()
		return overloaded()
	}
	return err
}

// tolerated is how long anything may stand still before it can have to give way.
const tolerated = time.Second

// waits is a holder that end ends once it has held its place for too long.
func waits(most time.Duration, end func()) *semaphore.Holder {
	return &semaphore.Holder{End: end, Slow: func(held time.Duration) float64 {
		if held >= most {
			return held.Seconds()
		}
		return 0
	}}
}

// place is what a request holds of its class. It belongs to the request's goroutine. Its life:
//
//	enter   admission takes it, before anything is checked, or turns the request away
//	trade   given up for a place of another class, and taken again: while the rest of a body
//	        comes (bodies), and while a read model or a state of the past is behind (waiting)
//	ended   a read that has held it for long can have to give way to another client's
//	leave   the answer is made (recorder.Write), the request is refused (guard), or it is over
//
// Imports, exports and followers of events hold none: they take one of a class of their own, for
// all of their time, once their token is known (streaming, Follows).
type place struct {
	class  *class // nil: the request needs no place
	client string // who it counts against
	end    func() // ends the request
	holder *semaphore.Holder
	held   bool
}

// enter takes a place, or says that there is none.
func (p *place) enter(ctx context.Context) bool {
	if p.class.toleratedFor > 0 {
		p.holder = waits(p.class.toleratedFor, p.end)
		p.held = p.class.Hold(ctx, p.client, p.holder)
	} else {
		p.held = p.class.Take(ctx, p.client)
	}
	if !p.held {
		p.class.shed.Inc()
	}
	return p.held
}

// leave gives the place back, if it is held.
func (p *place) leave() {
	if !p.held {
		return
	}
	p.held = false
	if p.class.toleratedFor > 0 {
		p.class.Drop(p.holder)
	} else {
		p.class.Give(p.client)
	}
}

// ended says whether the request had to give way while it held its place.
func (p *place) ended() bool { return p.holder != nil && p.holder.Ended() }

// trade works while the request holds a place of another class instead of its own, which it
// takes again for a client. It fails with a fault of kind Unavailable where there is no place,
// or where it had to give way: h has then ended, perhaps as soon as the work was done, and its
// connection is not to be read any more.
func (p *place) trade(ctx context.Context, client string, other *class, h *semaphore.Holder, work func() error) error {
	return p.without(ctx, client, func() error {
		err := other.during(ctx, client, h, work)
		if err == nil && h.Ended() {
			err = overloaded()
		}
		return err
	})
}

// without works while the place is free for others, and takes one again for a
// client. What it works on must be bounded itself. It fails with a fault of kind
// Unavailable where it had to give way before, or too many are there afterwards.
func (p *place) without(ctx context.Context, client string, work func() error) error {
	if !p.held {
		return work()
	}
	if p.leave(); p.ended() {
		return overloaded() // its context ends as if its caller had gone away
	}
	if err := work(); err != nil {
		return err
	}
	if p.client = client; !p.enter(ctx) {
		return cmp.Or(ctx.Err(), overloaded())
	}
	return nil
}

const tooMuch = "Too much is going on. Try again."

func overloaded() error {
	return fault.New(fault.Unavailable, "overloaded", tooMuch).After(time.Second)
}
