package populations

import (
	"testing"
	"testing/synctest"
	"time"

	"kindred/domain/fault"
)

// While a population is read anew, those who come are told how to wait for that.
func TestThePopulationThatIsReadAnewSaysHowToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turn := newCtxLock()
		if err := turn.lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := turn.lockSoon(t.Context())
		f := fault.As(err)
		if !fault.Is(err, "busy") || f.Soon == nil || time.Since(began) != shortWait {
			t.Fatalf("%v after %s", err, time.Since(began))
		}
		go func() {
			time.Sleep(time.Minute)
			turn.unlock()
		}()
		if _, err := f.Soon(t.Context()); err != nil || time.Since(began) != shortWait+time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if len(turn) > 0 {
			t.Error("the turn is lost")
		}
	})
}
