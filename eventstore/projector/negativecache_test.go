package projector

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"kindred/eventstore"
)

// TestANegativeAnswerHoldsUntilTheModelMoves looks every 200 ms.
func TestANegativeAnswerHoldsUntilTheModelMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewProgress(nil, slog.New(slog.DiscardHandler))
		cache, looks := &NegativeCache{Progress: p, Of: followed{}}, 0
		for i, step := range []struct {
			moves, found bool
			err          error
			want         int // looks so far
		}{
			{want: 1},
			{want: 1},
			{want: 1},
			{moves: true, found: true, want: 2},
			{found: true, want: 3},
			{want: 4},
			{want: 4},
			{moves: true, err: ErrLost, want: 5},
			{want: 6},
			{want: 6},
		} {
			if step.moves {
				p.note(ID(followed{}), eventstore.Position(fmt.Sprint(i)))
			}
			err := cache.Look(func() (bool, error) { looks++; return step.found, step.err })
			if looks != step.want || err != nil && step.err == nil {
				t.Errorf("step %d: %d looks, %v", i, looks, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(negativeFor)
		if _ = cache.Look(func() (bool, error) { looks++; return false, nil }); looks != 7 {
			t.Errorf("%d looks after %s", looks, negativeFor)
		}
	})
}
