package projector

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"kindred/domain/fault"
	"kindred/eventstore"
)

// An append waits for the projections that reads have waited for lately, for a while at most.
func TestAnAppendWaitsWhereReadsDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewProgress(nil, slog.New(slog.DiscardHandler))
		of := followed{}
		follow := func(at eventstore.Position, most, want time.Duration) {
			t.Helper()
			pressure, began := Backpressure{Progress: p, Projections: []Projection{of}, Ahead: 1, Most: most}, time.Now()
			if pressure.Follow(t.Context(), at); time.Since(began) != want {
				t.Errorf("it waited for %v, not %v", time.Since(began), want)
			}
		}
		late := func() {
			_ = p.await(t.Context(), ID(of), func(*eventstore.Position) (bool, error) { return false, nil }, func() *fault.Fault { return stale() })
		}
		p.advance(ID(of), "3")
		follow("5", time.Minute, 0)
		late()
		time.AfterFunc(time.Second, func() { p.advance(ID(of), "4") })
		time.AfterFunc(2*time.Second, func() { p.advance(ID(of), "5") })
		p.advance("another", "4")
		follow("5", time.Minute, 2*time.Second)
		follow("5", time.Minute, 0)
		time.Sleep(waitedLately)
		follow("6", time.Minute, 0)
		late()
		follow("6", 3*time.Second, 0) // the projection stands still
		p.advance(ID(of), "5a")
		follow("6", 3*time.Second, 3*time.Second)
	})
}

// Where nobody reads, an append waits until the projections are no more than so many behind it.
func TestAppendsGetNotFarAheadOfWhatNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewProgress(nil, slog.New(slog.DiscardHandler))
		of := followed{}
		pressure := Backpressure{Progress: p, Projections: []Projection{of}, Ahead: 3, Most: time.Minute}
		p.advance(ID(of), "0")
		began := time.Now()
		for _, at := range []eventstore.Position{"1", "2", "3"} {
			pressure.Follow(t.Context(), at)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("three waited for %v", took)
		}
		time.AfterFunc(time.Second, func() { p.advance(ID(of), "1") })
		time.AfterFunc(3*time.Second, func() { p.advance(ID(of), "2") })
		pressure.Follow(t.Context(), "4")
		if took := time.Since(began); took != time.Second {
			t.Errorf("the fourth waited for %v, not until the first is there", took)
		}
		pressure.Follow(t.Context(), "5")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the fifth waited until %v, not until the second is there", took)
		}
	})
}

type followed struct{ Projection }

func (followed) Name() string { return "followed" }
func (followed) Version() int { return 1 }
