package app

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhoAsksWhetherWeAreReadySharesAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, now, away := 0, 0, errors.New("away")
		ready := shared(func(ctx context.Context) error {
			if asked, now = asked+1, now+1; now > 1 {
				t.Error("two look at once")
			}
			defer func() { now-- }()
			time.Sleep(time.Second) // a slow answer is shared as long as a quick one
			return errors.Join(away, ctx.Err())
		})
		gone, goAway := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		ask := func(ctx context.Context) {
			flood.Go(func() {
				if err := ready(ctx); !errors.Is(err, away) || errors.Is(err, context.Canceled) {
					t.Errorf("%v; want an answer for all, whoever is gone", err)
				}
			})
			synctest.Wait()
		}
		ask(gone)
		goAway()
		for range 49 {
			ask(t.Context())
		}
		flood.Wait()
		if asked != 1 {
			t.Errorf("50 at once asked %d times", asked)
		}
		time.Sleep(readyFor)
		if err := ready(t.Context()); !errors.Is(err, away) || asked != 2 {
			t.Errorf("%v, asked %d times; want the second answer", err, asked)
		}
	})
}
