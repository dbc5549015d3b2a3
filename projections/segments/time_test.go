package segments_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/testkit"
)

// Where more users are due than one event judges, it says who they are: a rebuild cannot count those who were
// erased since.
func TestTimeMovesTheSameUsersInARebuild(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	w.Segment(w.Acme, event.SegmentDefined{
		Segment: projectionstest.SegmentIDs[0], Name: "S", Rule: event.Private([]byte(`within(traits.seen, "1h")`)), Refers: []id.Segment{},
	})
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	var users []id.User
	for n := range 60 { // to open each takes half a million steps
		users = append(users, w.Create(w.Acme, fmt.Sprint(n), `{"seen":"2026-03-01T11:30:00Z","about":"`+strings.Repeat("x", 240<<10)+`"}`))
	}
	w.catchUp(random)
	members := func() int {
		return testkit.Must(w.model.List(t.Context(), w.Acme, true, readmodel.Page{Limit: 10}))(t)[0].Members
	}
	w.clock = w.clock.Add(2 * time.Hour)
	for _, left := range []int{19, 0} {
		due, number, some, err := w.model.WaitingOf(t.Context(), w.Acme, w.clock)
		if err != nil || !some {
			t.Fatalf("some are due: %v, %v", some, err)
		}
		w.Record(w.Acme, string(eventstore.SegmentTimeStream(w.Acme)), event.SegmentsTimePassed{AsOf: w.clock, Due: due, Number: number})
		w.catchUp(random)
		if n := members(); n != left {
			t.Errorf("%d users are left, not %d", n, left)
		}
		w.clock = w.clock.Add(time.Second)
	}
	if due, number, some, err := w.model.WaitingOf(t.Context(), w.Acme, w.clock); some || err != nil {
		t.Errorf("up to %s, number %d, users are due: %v", due, number, err)
	}
	w.Erase(w.Acme, users[0])
	w.catchUp(random)

	tables := projectionstest.EmptyTables(t, w.Fixture, w.model)
	var history []eventstore.Recorded
	for at := eventstore.Start; ; at = history[len(history)-1].Position {
		page := testkit.Must(w.EventLog.Store.ReadAll(t.Context(), at, 1000))(t) // of some MiB
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			history = append(history, testkit.Must(w.EventLog.Decode(r))(t))
		}
	}
	if err := projector.Apply(t.Context(), segments.New(w.Reader), tables.TX, w.EventLog, history); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.rows(w.Pool, projector.ID(w.model))["segment_changes"], w.rows(tables.TX, "trial")["segment_changes"]); diff != "" {
		t.Errorf("changes lived (-) and built anew (+):\n%s", diff)
	}
}
