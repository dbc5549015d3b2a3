package projector

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"kindred/domain/fault"
	"kindred/eventstore"
)

// Who follows a projection waits for it where reads have waited for it lately, and a while
// at most.
func TestWhoFollowsWaitsWhereReadsDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewProgress(nil, slog.New(slog.DiscardHandler))
		of := followed{}
		follow := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			if p.Follow(t.Context(), of, "5", time.Minute); time.Since(began) != want {
				t.Errorf("it waited for %v, not %v", time.Since(began), want)
			}
		}
		late := func() {
			_ = p.await(t.Context(), ID(of), func(*eventstore.Position) (bool, error) { return false, nil }, func() *fault.Fault { return stale() })
		}
		follow(0)
		late()
		time.AfterFunc(time.Second, func() { p.advance(ID(of), "4") })
		time.AfterFunc(2*time.Second, func() { p.advance(ID(of), "5") })
		follow(2 * time.Second)
		follow(0)
		time.Sleep(waitedLately)
		began := time.Now()
		p.Follow(t.Context(), of, "6", time.Minute)
		late()
		p.Follow(t.Context(), of, "6", 3*time.Second)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it waited for %v, not for the 3 s that it may", took)
		}
	})
}

type followed struct{ Projection }

func (followed) Name() string { return "followed" }
func (followed) Version() int { return 1 }
