package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"kindred/backoff"
)

func TestWaitsAreDoubledUpToTheMostAndBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backoff.Backoff{First: 10 * time.Millisecond, Most: 50 * time.Millisecond}
		waits := func(due ...time.Duration) {
			t.Helper()
			for i, d := range due {
				began := time.Now()
				if err := b.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < d/2 || took > d {
					t.Errorf("wait %d took %v; want %v to %v", i, took, d/2, d)
				}
			}
		}
		waits(10*time.Millisecond, 20*time.Millisecond, 40*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond)
		b.Reset()
		waits(10 * time.Millisecond)
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		b := backoff.Backoff{First: time.Hour}
		if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestAWaitIsDoubledAtMostToTheMost(t *testing.T) {
	for n, want := range []time.Duration{1, 2, 4, 5, 5} {
		if got := backoff.Doubled(1, 5, n); got != want {
			t.Errorf("after %d failures: %d, want %d", n, got, want)
		}
	}
	if got := backoff.Doubled(time.Second, time.Hour, 1_000_000_000); got != time.Hour {
		t.Errorf("after many: %s", got)
	}
}

func TestTroubleThatStaysIsToldAtOnceAndThenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seldom backoff.Seldom
		told := 0
		for range 61 { // seconds
			seldom.Do(func() { told++ })
			time.Sleep(time.Second)
		}
		if told != 3 {
			t.Errorf("told %d times in a minute, want 3: at once and after 30 and 60 s", told)
		}
	})
}
