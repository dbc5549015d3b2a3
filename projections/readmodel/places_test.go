package readmodel

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/semaphore"
)

// However many queries of one client wait, every other place is another's.
func TestQueriesOfClientsShareTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 20
		r := Reader{Places: &semaphore.Semaphore{Places: 1, Waiting: others + 1}}
		served := make(chan id.Client, others+1)
		ask := func(client id.Client) {
			if err := r.InPlace(t.Context(), client, func() error { served <- client; return nil }); err != nil {
				t.Error(err)
			}
		}
		if err := r.InPlace(t.Context(), "greedy", func() error {
			for range others {
				go ask("greedy")
			}
			synctest.Wait()
			go ask("modest")
			synctest.Wait()
			return nil
		}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if first, second := <-served, <-served; first == second || len(served) != others-1 {
			t.Errorf("%s and %s are served first, then %d", first, second, len(served))
		}
	})
}

func TestAQueryThatGetsNoPlaceSaysWhy(t *testing.T) {
	r := Reader{Places: &semaphore.Semaphore{Places: 1}}
	over, end := context.WithCancel(t.Context())
	end()
	none := func() error { return errors.New("it has a place") }
	if err := r.InPlace(t.Context(), "a", func() error {
		if err := r.InPlace(over, "b", none); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return r.InPlace(t.Context(), "b", none)
	}); !fault.Is(err, "overloaded") {
		t.Error(err)
	}
}
