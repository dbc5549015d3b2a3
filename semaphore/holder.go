package semaphore

import (
	"context"
	"sync/atomic"
	"time"
)

// Holder is one that holds a place for long, and can be made to give it up to
// a client that holds fewer.
type Holder struct {
	// Slow says how little comes of what it does, given how long it has held its
	// place: of those that may be ended, the one with the highest is. Zero: it may
	// not. From Idle on it does nothing, and gives way to any client. It calls
	// nothing of the semaphore.
	Slow func(held time.Duration) float64
	// End has it give its place back soon. It is called once at most.
	End func()

	client string
	since  time.Time // when it got its place: what it waited before is not its doing
	ended  atomic.Bool
}

// Idle is where the slowness of those begins that do nothing.
const Idle = 1e9

// Ended says whether it had to give way.
func (h *Holder) Ended() bool { return h.ended.Load() }

// pressEvery is how often one that waits for a place looks for a holder to end:
// those that were too new at first, or that others got the places of.
const pressEvery = 250 * time.Millisecond

// Hold takes a place as Take does, and gives it back by Drop. Where all are
// held, the slowest holder that may be ended is, for a client that holds none,
// and for one that holds some among those of clients that hold more.
func (s *Semaphore) Hold(ctx context.Context, client string, h *Holder) bool {
	h.client = client
	if !s.Try(client) {
		press := func() {
			if slowest := s.slowest(client); slowest != nil {
				slowest.End()
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

// slowest marks the holder that a client takes the place of as ended, and
// returns it; nil: none.
func (s *Semaphore) slowest(client string) (slowest *Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := 0
	if c := s.clients[client]; c != nil {
		held = c.held
	}
	alone := s.Each > 0 && held >= s.Each || s.Half && held > 0 && held >= s.Places-s.held // only what it gives back itself is of use to it
	if s.held < s.Places && !alone {
		return nil
	}
	var most float64
	now := time.Now() //nolint:forbidigo // how long places have been held
	for h := range s.holders {
		if h.client == "" || h.Ended() || alone && h.client != client {
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
