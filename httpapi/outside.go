package httpapi

import (
	"cmp"
	"context"
	"sync"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
)

// shares are a bounded number of places for what takes long. A client may hold
// as many as are left to the others.
type shares struct {
	mu   sync.Mutex
	free int
	held map[id.Client]int
}

func newShares(n int) *shares { return &shares{free: n, held: map[id.Client]int{}} }

func (s *shares) take(client id.Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[client] >= s.free {
		return false
	}
	s.free--
	s.held[client]++
	return true
}

func (s *shares) giveBack(client id.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[client]--; s.held[client] == 0 {
		delete(s.held, client)
	}
}

// WaitOutside calls wait while the request that ctx belongs to, if any, is
// outside its lane, so that whoever waits keeps nobody out. It fails with a
// fault of kind Unavailable where too many wait, or too many are in the lane
// afterwards.
func WaitOutside(ctx context.Context, wait func() error) error {
	x := exchangeFrom(ctx)
	if x.rec == nil || x.rec.lane == nil || x.rec.long {
		return wait()
	}
	l, client := x.rec.lane, x.principal.Client
	if !l.share(client) {
		return overloaded()
	}
	defer l.shares.giveBack(client)
	if !x.rec.place.CompareAndSwap(inside, outside) {
		return wait() // as others do for the same request
	}
	l.leave()
	err := wait()
	switch {
	case !l.enter(ctx):
		return cmp.Or(err, ctx.Err(), overloaded())
	case !x.rec.place.CompareAndSwap(outside, inside):
		l.leave() // the request has ended meanwhile
	}
	return err
}

// share counts a request of a client among those of the lane that take long.
func (l *lane) share(client id.Client) bool {
	if l.shares.take(client) {
		return true
	}
	l.shed.Inc()
	return false
}

const tooMuch = "Too much is going on. Try again."

func overloaded() error {
	return fault.New(fault.Unavailable, "overloaded", tooMuch).After(time.Second)
}
