package semaphore

import (
	"context"
	"sync/atomic"
	"time"
)

// Holder is one that holds a place for long, and can be made to give it up to
// a client that holds fewer.
type Holder struct {
	// Slow says how slow the holder is, given how long it has held its place. Where a
	// place is needed, the slowest holder is ended. 0: it may not be ended. Idle or more:
	// it does nothing, and gives way to any client. Slow is called under the semaphore's
	// lock, so it must not call the semaphore.
	Slow func(held time.Duration) float64
	// End has it give its place back soon. It is called once at most.
	End func()

	client string
	since  time.Time // when it got its place: what it waited before is not its doing
	ended  atomic.Bool
}

// Idle is the least slowness of a holder that does nothing.
const Idle = 1e9

// Ended says whether it had to give way.
func (h *Holder) Ended() bool { return h.ended.Load() }

const (
	// pressEvery is how often one that waits for a place looks for a holder to end. It looks
	// more than once, since holders grow slow meanwhile, and since others may get the place of
	// one that was ended.
	pressEvery = 250 * time.Millisecond
	// endsWithin is how long one that waits for a place lets the holder that it ended keep
	// its own, before it ends another.
	endsWithin = 5 * time.Second
)

// Hold takes a place as Take does; Drop gives it back. Where all places are held, it ends
// the slowest holder that may be ended: of any client where its own client holds none, else
// of clients that hold more.
func (s *Semaphore) Hold(ctx context.Context, client string, h *Holder) bool {
	h.client = client
	if !s.Try(client) {
		var ended *Holder
		var at time.Time
		press := func() {
			now := time.Now() //nolint:forbidigo // how long a place is waited for
			if now.Sub(at) < endsWithin && s.holds(ended) {
				return
			}
			if ended = s.slowest(client, now); ended != nil {
				at = now
				ended.End()
			}
		}
		press()
		if !s.take(ctx, client, press) {
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders == nil {
		s.holders = map[*Holder]struct{}{}
	}
	h.since = time.Now() //nolint:forbidigo // how long a place is held
	s.holders[h] = struct{}{}
	return true
}

// Drop gives back the place of a holder.
func (s *Semaphore) Drop(h *Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holders, h)
	s.release(s.clients[h.client])
}

func (s *Semaphore) holds(h *Holder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, holds := s.holders[h]
	return holds
}

// slowest chooses the holder whose place a client takes, marks it as ended and returns it;
// nil: there is none.
func (s *Semaphore) slowest(client string, now time.Time) (slowest *Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, full := 0, false
	if c := s.clients[client]; c != nil {
		held = c.held
		full = held > 0 && !s.mayHold(c) // one that holds all it may can use no place but one of its own
	}
	if s.held < s.Places && !full {
		return nil
	}
	var most float64
	for h := range s.holders {
		if h.client == "" || h.Ended() || full && h.client != client {
			continue
		}
		slow := h.Slow(now.Sub(h.since))
		if slow > most && (slow >= Idle || held == 0 || s.clients[h.client].held > held+1) {
			slowest, most = h, slow
		}
	}
	if slowest != nil {
		slowest.ended.Store(true)
	}
	return slowest
}
