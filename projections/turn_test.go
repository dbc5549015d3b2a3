package projections

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"kindred/eventstore/projector"
)

// While a population is read anew, those who wait for that keep nobody out.
func TestThePopulationThatIsReadAnewIsWaitedForOutside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("there is no way back")
		progress := projector.NewProgress(nil, nil)
		p, err := NewPopulations(Reader{Progress: progress}, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		pop := &population{turn: newTurns()}
		p.clients.Add("acme", pop)
		if err := pop.turn.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		var left time.Duration
		began := time.Now()
		progress.Outside = func(ctx context.Context, wait func(context.Context) error) error {
			left = time.Since(began)
			go func() {
				time.Sleep(time.Minute)
				pop.turn.give()
			}()
			return errors.Join(wait(ctx), full)
		}
		if _, err := p.current(t.Context(), "acme"); !errors.Is(err, full) {
			t.Errorf("it ends with %v", err)
		}
		if left != shortTurn || time.Since(began) != shortTurn+time.Minute {
			t.Errorf("it was inside for %s, and waited for %s", left, time.Since(began))
		}
		if len(pop.turn) > 0 {
			t.Error("the turn is lost")
		}
	})
}
