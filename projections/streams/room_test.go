package streams

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"kindred/eventstore"
	"kindred/projections"
)

func eventOf(position int, size int, eventType string) projections.PublicEvent {
	return projections.PublicEvent{Position: eventstore.Position(fmt.Sprintf("%08d", position)), Type: eventType, Body: make([]byte, size)}
}

func TestAFollowerThatIsTooFarBehindIsCutWhereItCanResume(t *testing.T) {
	f := newFollower(Query{})
	const each = 100 << 10
	for i := range 20 {
		f.put([]projections.PublicEvent{eventOf(i, each, "match.computed")})
	}
	<-f.more
	got, err := f.take("")
	if !errors.Is(err, ErrCut) || len(got) != maxBehind/(each+128) {
		t.Errorf("%d events, %v", len(got), err)
	}
	for i, e := range got { // without a gap: the last one is where it goes on
		if e.Position != eventOf(i, 0, "").Position {
			t.Errorf("%s is the %d. event", e.Position, i)
		}
	}
	f.put([]projections.PublicEvent{eventOf(20, 1, "match.computed")})
	if got, err := f.take(""); len(got) != 0 || !errors.Is(err, ErrCut) {
		t.Errorf("after the end came %v, %v", got, err)
	}
}

func TestAFollowerTakesOnlyWhatItAskedFor(t *testing.T) {
	f := newFollower(Query{Types: []string{"clustering.failed"}})
	f.put([]projections.PublicEvent{eventOf(1, 1, "match.computed")})
	if len(f.more) != 0 {
		t.Error("it was woken for nothing")
	}
	f.put([]projections.PublicEvent{eventOf(2, 1, "clustering.failed"), eventOf(3, 1, "clustering.failed")})
	if got, err := f.take(eventOf(2, 0, "").Position); err != nil || len(got) != 1 || got[0].Position != eventOf(3, 0, "").Position {
		t.Errorf("%v, %v", got, err)
	}
}

// A reader hears something after each 15 s in which nothing comes, so that neither end, nor
// what is between them, takes the other for gone.
func TestAFollowerIsToldNothingWhereNothingComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		f, began, over := newFollower(Query{}), time.Now(), errors.New("over")
		var told []string
		ended := make(chan error)
		go func() {
			ended <- f.follow(ctx, "", 15*time.Second, func(events []projections.PublicEvent) error {
				told = append(told, fmt.Sprint(len(events), " after ", time.Since(began)))
				return nil
			})
		}()
		time.Sleep(20 * time.Second)
		f.put([]projections.PublicEvent{eventOf(1, 1, "match.computed")})
		time.Sleep(31 * time.Second)
		end(over)
		if err := <-ended; !errors.Is(err, over) {
			t.Error(err)
		}
		if want := "[0 after 15s 1 after 20s 0 after 35s 0 after 50s]"; fmt.Sprint(told) != want {
			t.Errorf("%v, not %s", told, want)
		}
	})
}
