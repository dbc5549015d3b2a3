package streams_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/projections/streams"
	"kindred/testkit"
)

// A time that is yet to come, by the clock of a caller that is ahead, begins for a stream where it
// begins for a pull.
func TestAStreamBeginsAtItsTime(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.PublicEvents{})
	s := streams.New(w.Reader, slog.New(slog.DiscardHandler))
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	defer running.Wait()
	defer end()

	now := time.Now()
	ada, bob := id.Next[id.User](w.IDs), id.Next[id.User](w.IDs)
	match := func(after time.Duration) { w.At(now.Add(after), func() { w.Match(w.Acme, ada, bob, 0.5) }) }
	q := streams.Query{Client: w.Acme, Since: now.Add(30 * time.Second)}
	var told []id.Event
	if err := s.Follow(ctx, q, time.Minute, func(events []projections.PublicEvent) error {
		if events == nil { // it follows from here on
			match(0)
			match(40 * time.Second)
			match(20 * time.Second) // by a clock that is behind
			return nil
		}
		for _, e := range events {
			told = append(told, e.ID)
		}
		if len(told) >= 2 {
			end()
		}
		return nil
	}); ctx.Err() == nil {
		t.Fatal(err)
	}
	var want []id.Event
	for _, e := range testkit.Must(s.List(t.Context(), q, 10))(t) {
		want = append(want, e.ID)
	}
	if len(want) != 2 || !slices.Equal(told, want) {
		t.Errorf("a stream tells of %v, a pull of %v", told, want)
	}
}

// Changes asks before it waits, over the connections of followers: whoever waits holds no place of the reads.
func TestWhatIsWrongWithAPullIsToldBeforeItWaits(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(segments.Model{Reader: w.Reader})
	s := streams.New(w.Reader, slog.New(slog.DiscardHandler))
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	_, _, _, err := s.Changes(ctx, w.Acme, false, id.Next[id.Segment](w.IDs), readmodel.Page{Limit: 10}, time.Hour)
	if !fault.Is(err, "segment_unknown") {
		t.Error(err)
	}
}
