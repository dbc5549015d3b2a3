package auth

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"kindred/backoff"
)

// throttle slows down whoever keeps failing: after some free attempts each
// further one opens a pause that doubles up to a limit. Nobody is locked out
// for good, and quiet is forgiven. It remembers a bounded number of subjects,
// the latest ones.
type throttle struct {
	free  int           // attempts before the first pause
	limit time.Duration // the longest pause
	now   func() time.Time

	mu   sync.Mutex
	seen *lru.Cache[[32]byte, attempts]
}

type attempts struct {
	count int
	last  time.Time
	until time.Time // the end of the pause
}

const (
	// limit: edge | wrong API keys whose tries are counted | {throttled}
	throttled  = 1 << 16          // subjects remembered
	forgiven   = 15 * time.Minute // of quiet, after the pause
	firstPause = time.Second
)

func newThrottle(free int, limit time.Duration, now func() time.Time) *throttle {
	seen, err := lru.New[[32]byte, attempts](throttled)
	if err != nil {
		panic(err) // only for a size below one
	}
	return &throttle{free: free, limit: limit, now: now, seen: seen}
}

// pause returns how long the subject has to wait; 0: it may go on.
func (t *throttle) pause(subject [32]byte) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, _ := t.seen.Get(subject)
	return max(0, a.until.Sub(t.now()))
}

// take counts an attempt, unless the subject has to wait; then it returns for
// how long.
func (t *throttle) take(subject [32]byte) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	a, _ := t.seen.Get(subject)
	if wait := a.until.Sub(now); wait > 0 {
		return wait
	}
	if min(now.Sub(a.last), now.Sub(a.until)) > forgiven {
		a = attempts{}
	}
	a.count++
	a.last = now
	if over := a.count - t.free; over > 0 {
		a.until = now.Add(backoff.Doubled(firstPause, t.limit, over-1))
	}
	t.seen.Add(subject, a)
	return 0
}
