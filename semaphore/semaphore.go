// Package semaphore bounds how much is done at a time, and shares that fairly
// among clients: those of one wait for each other, never the others for them.
package semaphore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Semaphore is a number of places for one class of work. Where all are held, a
// place that becomes free goes to the client that holds least of those that wait,
// in rotation among equals; where as many wait as may, the client that has most
// makes room for one that has less.
// Its exported fields do not change once it is in use; any goroutine may use it.
//
// With Half, the first client gets half of the places, the second half of what that
// leaves, and so on, so that some are free however many one client would hold.
//
// The client "" is nobody in particular: what it holds counts in the sum alone.
type Semaphore struct {
	Places   int           // that are held at a time
	Each     int           // that one client holds; 0: Places
	Half     bool          // one client holds at most as many as are free
	Waiting  int           // requests that wait for a place, of all clients
	Patience time.Duration // that each waits; 0: until its context ends

	mu      sync.Mutex
	held    int
	waits   int
	full    atomic.Bool
	clients map[string]*share // of those that hold a place or wait
	next    *share            // whose turn it is, in the ring of clients that wait; nil: none does
	holders map[*Holder]struct{}
}

// share is what one client has of a semaphore.
type share struct {
	client      string
	held        int
	queue       []waiter // the oldest first
	left, right *share   // in the ring, while the queue is not empty
}

func (c *share) total() int { return c.held + len(c.queue) }

// waiter is told once: true, the place is its own; false, it gave way to
// another client.
type waiter chan bool

// Try takes a place that is free, which must be given back.
func (s *Semaphore) Try(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.share(client)
	ok := s.free(c)
	if ok {
		s.hold(c)
	}
	s.prune(c)
	return ok
}

// Take takes a place, which must be given back, or says that there is none:
// too many wait, or the wait or its context has ended.
func (s *Semaphore) Take(ctx context.Context, client string) bool {
	return s.take(ctx, client, nil)
}

// take is Take, which meanwhile calls press now and then, unless that is nil.
func (s *Semaphore) take(ctx context.Context, client string, press func()) bool {
	s.mu.Lock()
	c := s.share(client)
	if s.free(c) {
		s.hold(c)
		s.prune(c)
		s.mu.Unlock()
		return true
	}
	if !s.makeRoom(c) {
		s.prune(c)
		s.mu.Unlock()
		return false
	}
	w := make(waiter, 1)
	s.enqueue(c, w)
	s.prune(c)
	s.mu.Unlock()
	return s.wait(ctx, c, w, press)
}

func (s *Semaphore) wait(ctx context.Context, c *share, w waiter, press func()) bool {
	var patience, again <-chan time.Time
	if press != nil {
		ticker := time.NewTicker(pressEvery)
		defer ticker.Stop()
		again = ticker.C
	}
	if s.Patience > 0 {
		timer := time.NewTimer(s.Patience)
		defer timer.Stop()
		patience = timer.C
	}
	for {
		select {
		case ok := <-w:
			return ok
		case <-again:
			press()
		case <-patience:
			return s.leave(c, w)
		case <-ctx.Done():
			return s.leave(c, w)
		}
	}
}

// leave ends a wait, unless it was over before.
func (s *Semaphore) leave(c *share, w waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case ok := <-w:
		return ok
	default:
	}
	s.dequeue(c, slices.Index(c.queue, w))
	s.prune(c)
	return false
}

// Give gives back a place of a client.
func (s *Semaphore) Give(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(s.clients[client])
}

// Full says whether one that comes now may be turned away. It locks nothing.
func (s *Semaphore) Full() bool { return s.full.Load() }

// Refuses says whether Take would turn the client away at once.
func (s *Semaphore) Refuses(client string) bool {
	if !s.Full() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[client]
	if c == nil {
		c = &share{client: client}
	}
	return !s.free(c) && s.waits >= s.Waiting && s.most(c) == nil
}

// Count returns how many places are held, and how many wait for one.
func (s *Semaphore) Count() (held, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held, s.waits
}

// The lock is held in all that follows.

func (s *Semaphore) share(client string) *share {
	if c := s.clients[client]; c != nil {
		return c
	}
	if s.clients == nil {
		s.clients = map[string]*share{}
	}
	c := &share{client: client}
	s.clients[client] = c
	return c
}

// prune ends each change: it forgets a client that has nothing.
func (s *Semaphore) prune(c *share) {
	if c.total() == 0 {
		delete(s.clients, c.client)
	}
	s.full.Store(s.held >= s.Places && s.waits >= s.Waiting)
}

func (s *Semaphore) free(c *share) bool { return s.held < s.Places && s.mayHold(c) }

func (s *Semaphore) mayHold(c *share) bool {
	switch {
	case c.client == "":
		return true
	case s.Half && c.held >= s.Places-s.held:
		return false
	}
	return s.Each == 0 || c.held < s.Each
}

func (s *Semaphore) hold(c *share) {
	c.held++
	s.held++
}

func (s *Semaphore) release(c *share) {
	c.held--
	s.held--
	s.grant()
	s.prune(c)
}

// grant gives what is free to the clients that wait.
func (s *Semaphore) grant() {
	for s.held < s.Places {
		c := s.first()
		if c == nil {
			return
		}
		s.next = c.right
		w := c.queue[0]
		s.dequeue(c, 0)
		s.hold(c)
		w <- true
	}
}

// first is the client that holds least of those that wait, in rotation among
// equals; nil where none may hold more.
func (s *Semaphore) first() (first *share) {
	for at := s.next; at != nil; {
		if s.mayHold(at) && (first == nil || at.held < first.held) {
			first = at
		}
		if at = at.right; at == s.next {
			break
		}
	}
	return first
}

// makeRoom says whether one more of a client may wait.
func (s *Semaphore) makeRoom(c *share) bool {
	if s.waits < s.Waiting {
		return true
	}
	most := s.most(c)
	if most == nil {
		return false
	}
	newest := len(most.queue) - 1
	most.queue[newest] <- false
	s.dequeue(most, newest)
	return true
}

// most is the client that makes room for c: the one that has most of those that
// wait and have more than c will have. It is nil for a c that has half of an even
// share already: to turn away what waits costs more than to refuse what comes.
func (s *Semaphore) most(c *share) (most *share) {
	if has := c.total(); has > 0 && 2*(has+1)*len(s.clients) > s.held+s.waits {
		return nil
	}
	for at := s.next; at != nil; {
		if at.total() > c.total()+1 && (most == nil || at.total() > most.total()) {
			most = at
		}
		if at = at.right; at == s.next {
			break
		}
	}
	return most
}

func (s *Semaphore) enqueue(c *share, w waiter) {
	c.queue = append(c.queue, w)
	s.waits++
	if len(c.queue) > 1 {
		return
	}
	if s.next == nil {
		c.left, c.right, s.next = c, c, c
		return
	}
	c.left, c.right = s.next.left, s.next // the last of the ring
	c.left.right, c.right.left = c, c
}

func (s *Semaphore) dequeue(c *share, i int) {
	c.queue = slices.Delete(c.queue, i, i+1)
	s.waits--
	if len(c.queue) > 0 {
		return
	}
	if s.next == c {
		s.next = c.right
	}
	if s.next == c {
		s.next = nil
	}
	c.left.right, c.right.left = c.right, c.left
	c.left, c.right = nil, nil
}
