// Package backoff waits between attempts at what fails by itself and passes by
// itself, such as a database that is away.
package backoff

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Defaults of First and Most.
const (
	DefaultFirst = 20 * time.Millisecond
	// limit: tools | pause between two tries of what fails | {DefaultMost}, unless it says another
	DefaultMost = 5 * time.Second

	seldom = 30 * time.Second
)

// Backoff doubles its waits. The zero value is ready; it is for one goroutine.
type Backoff struct {
	First time.Duration // the first wait, at the most; 0: DefaultFirst
	Most  time.Duration // that no wait exceeds; 0: DefaultMost

	next time.Duration
}

// Wait waits between half of the time that is due and all of it, so that those
// that failed together do not come back together. It fails when ctx ends.
func (b *Backoff) Wait(ctx context.Context) error {
	d := cmp.Or(b.next, b.First, DefaultFirst)
	b.next = min(2*d, cmp.Or(b.Most, DefaultMost))
	return Sleep(ctx, d/2+rand.N(d/2+1)) //nolint:gosec,forbidigo // G404: it spreads load, and keeps no secret
}

// Reset begins anew, after something went well.
func (b *Backoff) Reset() { b.next = 0 }

// Doubled is the wait after n failures before this one, without chance, for who writes
// down when it tries again: first, doubled n times, at most most.
func Doubled(first, most time.Duration, n int) time.Duration {
	for ; n > 0 && first < most; n-- {
		first *= 2
	}
	return min(first, most)
}

// Seldom has trouble that stays told at once, and then once in 30 s, since a database may be
// away for hours. The zero value is ready, for any number of goroutines.
type Seldom struct {
	mu   sync.Mutex
	told time.Time
}

// Do tells, unless somebody did so less than 30 s ago.
func (s *Seldom) Do(tell func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.told) >= seldom { //nolint:forbidigo // it spaces lines of the log
		s.told = now
		tell()
	}
}

// Sleep waits, and fails when ctx ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
