package auth

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// clock is a time that the test moves.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.at.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) Now() time.Time          { return time.Unix(0, c.at.Load()).UTC() }
func (c *clock) Advance(d time.Duration) { c.at.Add(int64(d)) }

var ada, bob = sha256.Sum256([]byte("ada")), sha256.Sum256([]byte("bob"))

func TestPausesDoubleUpToALimit(t *testing.T) {
	now := newClock()
	th := newThrottle(2, 10*time.Second, now.Now)
	var pauses []time.Duration
	for range 8 {
		if wait := th.take(ada); wait != 0 {
			t.Fatalf("has to wait %s after its pause", wait)
		}
		pause := th.pause(ada)
		pauses = append(pauses, pause)
		if pause > 0 {
			now.Advance(pause - 1)
			if th.take(ada) != 1 {
				t.Fatal("an attempt passes during the pause")
			}
			now.Advance(1)
		}
	}
	s := time.Second
	if diff := cmp.Diff([]time.Duration{0, 0, s, 2 * s, 4 * s, 8 * s, 10 * s, 10 * s}, pauses); diff != "" {
		t.Error(diff)
	}
	if th.pause(bob) != 0 {
		t.Error("another one has to wait as well")
	}
}

func TestHammeringDuringAPauseDoesNotProlongIt(t *testing.T) {
	now := newClock()
	th := newThrottle(0, time.Minute, now.Now)
	th.take(ada)
	for range 100 {
		th.take(ada)
	}
	now.Advance(time.Second)
	if wait := th.take(ada); wait != 0 {
		t.Errorf("has to wait for another %s", wait)
	}
}

func TestQuietIsForgiven(t *testing.T) {
	now := newClock()
	th := newThrottle(1, time.Minute, now.Now)
	th.take(ada)
	th.take(ada)
	if th.pause(ada) == 0 {
		t.Fatal("two attempts open no pause")
	}
	now.Advance(time.Second + forgiven + 1)
	if th.take(ada) != 0 || th.pause(ada) != 0 {
		t.Error("old failures count after a long time of quiet")
	}
}

func TestManyAttemptsAtOnceFindNoGapInAProcess(t *testing.T) {
	th := newThrottle(5, time.Minute, newClock().Now)
	var passed atomic.Int64
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			if th.take(ada) == 0 {
				passed.Add(1)
			}
		})
	}
	group.Wait()
	if n := passed.Load(); n != 6 { // five are free, the sixth opens the pause
		t.Errorf("%d attempts passed; want 6", n)
	}
}

func TestTheThrottleForgetsTheOldestSubjects(t *testing.T) {
	th := newThrottle(0, time.Minute, newClock().Now)
	var subject [32]byte
	for i := range uint64(throttled + 100) {
		binary.BigEndian.PutUint64(subject[:], i)
		th.take(subject)
	}
	if n := th.seen.Len(); n != throttled {
		t.Errorf("%d subjects are remembered; want %d", n, throttled)
	}
	if th.pause(subject) == 0 {
		t.Error("the latest subject was forgotten")
	}
}
