package httpapi

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/semaphore"
)

// class is a bounded number of places for one kind of work, which clients share
// fairly.
type class struct {
	*semaphore.Semaphore
	shed prometheus.Counter // requests that got no place, or had to give it up
}

// long makes a class for what takes long, of which a client has one part in
// parts at most. More may wait for a moment.
func long(places, parts int, shed prometheus.Counter) class {
	return class{&semaphore.Semaphore{Places: places, Each: max(places/parts, 1), Waiting: places / 8, Patience: waitForTurn}, shed}
}

// during works while h holds a place. It fails with a fault of kind Unavailable
// where there is none, or where work failed because it had to give way.
func (c class) during(ctx context.Context, client string, h *semaphore.Holder, work func() error) error {
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

// waits is a holder that waits for something, until end is called.
func waits(end func()) *semaphore.Holder {
	began := time.Now() //nolint:forbidigo // how long a wait has lasted
	return &semaphore.Holder{End: end, Slow: func() float64 {
		if waited := time.Since(began); waited >= tolerated {
			return waited.Seconds()
		}
		return 0
	}}
}

// lane are the requests that are answered, and those that wait for it.
type lane struct {
	class
	outside class        // requests that wait for something else meanwhile
	untaken atomic.Int64 // bytes of answers that have left and are being written
}

// newLane makes a lane of so many places, of which a client has three quarters
// at most: the others find some free however long its requests take. Of one
// client, inside requests are let in at a time: those that have no place wait.
func newLane(places, inside int, shed prometheus.Counter) *lane {
	each := max(places*3/4, 1)
	return &lane{
		class:   class{&semaphore.Semaphore{Places: places, Each: each, Waiting: inside - each, Patience: waitForTurn}, shed},
		outside: long(inside, 2, shed),
	}
}

// enter says whether a request of a client may go on; then it must leave.
func (l *lane) enter(ctx context.Context, client string) bool {
	if l.Take(ctx, client) {
		return true
	}
	l.shed.Inc()
	return false
}

func (l *lane) leave(client string) { l.Give(client) }
