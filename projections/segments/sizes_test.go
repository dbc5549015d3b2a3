package segments_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/testkit"
)

// The size of a day is that at its end, whatever batches it comes in and whichever days
// nothing happens on.
func TestASegmentHasASizeForEachDay(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	w := newSegmentFixture(t)
	midnight := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	on := func(day, hour int) { w.clock = midnight.Add(time.Duration(day*24+hour) * time.Hour) }

	on(0, 12)
	define := event.SegmentDefined{Segment: projectionstest.SegmentIDs[0], Name: "some", Rule: event.Private([]byte(`traits.n > 20`))}
	var there domain.Segments
	for _, e := range testkit.Must(there.Define(define))(w) {
		w.Segment(w.Acme, e)
	}
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	first := w.Create(w.Acme, "one", `{"n": 30}`)
	on(0, 23)
	w.Create(w.Acme, "two", `{"n": 40}`)
	on(1, 0) // the next day, in one batch with the last
	w.Create(w.Acme, "three", `{"n": 50}`)
	on(4, 1)
	w.Change(w.Acme, first, `{"n": 1}`)
	on(4, 2)
	for n := range 5 {
		w.Create(w.Acme, fmt.Sprint("more ", n), `{"n": 60}`)
	}
	w.catchUp(random)

	got := testkit.Must(w.model.Sizes(t.Context(), w.Acme, true, projectionstest.SegmentIDs[0], midnight.AddDate(0, 0, -3), midnight.AddDate(0, 0, 5)))(w)
	var want []segments.DaySize
	for day, members := range []int{2, 3, 3, 3, 7, 7} {
		want = append(want, segments.DaySize{Day: midnight.AddDate(0, 0, day), Members: members})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	if _, err := w.model.Sizes(t.Context(), w.Acme, true, projectionstest.SegmentIDs[1], midnight, midnight); !fault.Of(err, fault.Missing) {
		t.Errorf("of a segment that is not there: %v", err)
	}
}

// What other segments' changes stand between a segment's own is looked through in pieces, and once.
func TestChangesOfASegmentAreFoundBehindManyOfOthers(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	w := newSegmentFixture(t)
	for n, text := range []string{`traits.n > 20`, `traits.n > 90`} {
		w.Segment(w.Acme, event.SegmentDefined{Segment: projectionstest.SegmentIDs[n], Name: "some", Rule: event.Private([]byte(text))})
	}
	w.Segment(w.Acme, event.SegmentReady{Revision: 1})
	w.Create(w.Acme, "before", `{"n": 30}`)
	w.catchUp(random)
	looked := func(after eventstore.Position) segments.Looked {
		asked := []segments.ChangesAfter{{Client: w.Acme, Segment: projectionstest.SegmentIDs[0], After: after}}
		return testkit.Must(w.model.Changed(t.Context(), asked))(t)[0]
	}
	start := w.applied + "/~"
	if got := looked(start); got.Changed {
		t.Errorf("nothing has changed: %+v", got)
	}
	const others = 50_000
	if _, err := w.Pool.Exec(t.Context(), `
INSERT INTO `+projector.ID(w.model)+`.segment_changes (client, position, user_id, number, changed_at, entered, went, erased)
SELECT client, position || lpad(n::text, 6, '0'), user_id, number, changed_at, '{1}', '{}', false FROM `+projector.ID(w.model)+`.segment_changes, generate_series(1, $1) n`,
		others); err != nil {
		t.Fatal(err)
	}
	if got := looked(start); got.Changed || got.UpTo <= start {
		t.Errorf("nothing of the segment has changed: %+v", got)
	}
	w.Create(w.Acme, "behind", `{"n": 40}`)
	w.catchUp(random)
	if !looked(start).Changed {
		t.Error("a change behind others' is not seen")
	}
	for _, newest := range []bool{false, true} {
		page := readmodel.Page{Limit: 10}
		var told []string
		pages := 0
		for more := true; more; pages++ {
			var found []segments.Change
			var err error
			if found, more, page.After, err = w.model.Changes(t.Context(), w.Acme, true, projectionstest.SegmentIDs[0], newest, page); err != nil {
				t.Fatal(err)
			}
			for _, c := range found {
				told = append(told, c.Change+" "+c.ExternalID)
			}
		}
		want := []string{"entered before", "entered behind"}
		if newest {
			slices.Reverse(want)
		}
		if diff := cmp.Diff(want, told); diff != "" || pages != 3 {
			t.Errorf("in %d pages, newest first %t (-want +got):\n%s", pages, newest, diff)
		}
	}
}

// A client that is applied in slices is behind the model: what is yet to be applied of it comes
// behind the places that its followers have.
func TestAFollowerOfAClientThatIsAppliedInSlicesMissesNoChange(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	w := newSegmentFixture(t)
	w.Segment(w.Acme, event.SegmentDefined{Segment: projectionstest.SegmentIDs[0], Name: "some", Rule: event.Private([]byte(`traits.n > 20`))})
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	w.Create(w.Acme, "before", `{"n": 30}`)
	w.catchUp(random)
	w.Create(w.Acme, "after", `{"n": 40}`)
	end := testkit.Must(w.EventLog.Store.Head(t.Context()))(t)
	if _, err := w.Pool.Exec(t.Context(), `
WITH place AS (INSERT INTO checkpoints (name, epoch, position, event_id, events, lease_epoch) VALUES ($1, '', $2, '', 0, 0))
INSERT INTO quarantine (projection, client, position, event_id, reason, paused, slow) VALUES ($1, $3, $4, '', '', true, true)`,
		projector.ID(w.model), end, w.Acme, w.applied); err != nil {
		t.Fatal(err)
	}
	_, ofMembers, err := w.model.Members(t.Context(), w.Acme, true, projectionstest.SegmentIDs[0], readmodel.Page{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	_, _, ofChanges, err := w.model.Changes(t.Context(), w.Acme, true, projectionstest.SegmentIDs[0], false, readmodel.Page{After: ofMembers, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	w.catchUp(random)
	for name, place := range map[string]eventstore.Position{"members": ofMembers, "changes": ofChanges} {
		found, _, _, err := w.model.Changes(t.Context(), w.Acme, true, projectionstest.SegmentIDs[0], false, readmodel.Page{After: place, Limit: 10})
		if err != nil || len(found) != 1 || found[0].ExternalID != "after" {
			t.Errorf("behind the place that %s gave: %+v: %v", name, found, err)
		}
	}
}

// A sandbox whose clock is moved from day to day writes a row for each of its segments with each move.
func TestAMidnightTakesStepsForEachSegment(t *testing.T) {
	w := newSegmentFixture(t)
	const many = 30
	source := id.Derived("midnight")
	for range many {
		w.Segment(w.Acme, event.SegmentDefined{Segment: id.Next[id.Segment](source), Name: "S", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}})
	}
	w.Segment(w.Acme, event.SegmentReady{Revision: many - 1})
	w.applyAtOnce()
	takes := func(after time.Duration) (steps int) {
		w.clock = w.clock.Add(after)
		w.Create(w.Acme, w.clock.String(), `{"n":30}`)
		created := testkit.Must(w.EventLog.Decode(testkit.Must(w.EventLog.Store.ReadAll(t.Context(), w.applied, 1))(t)[0]))(t)
		if err := pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
			return w.model.ApplyClient(t.Context(), tx, w.EventLog, w.Acme, []eventstore.Recorded{created}, func(n int) error { steps += n; return nil })
		}); err != nil {
			t.Fatal(err)
		}
		w.applied = created.Position
		return steps
	}
	takes(time.Second)
	sameDay := takes(time.Second)
	if next := takes(24 * time.Hour); next < sameDay+many*readmodel.StepsToWrite {
		t.Errorf("%d steps on the same day, %d on the next", sameDay, next)
	}
}

// BenchmarkChanged looks whether 2,000 who wait for changes are to be told of some, in one
// statement and in one each.
func BenchmarkChanged(b *testing.B) {
	w := newSegmentFixture(b)
	w.Segment(w.Acme, event.SegmentDefined{Segment: projectionstest.SegmentIDs[0], Name: "some", Rule: event.Private([]byte(`traits.n > 20`))})
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	w.catchUp(testkit.Random(b))
	var asked []segments.ChangesAfter
	for range 2000 {
		asked = append(asked, segments.ChangesAfter{Client: w.Acme, Segment: projectionstest.SegmentIDs[0], After: w.applied + "/~"})
	}
	for name, together := range map[string]int{"together": len(asked), "alone": 1} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				for some := range slices.Chunk(asked, together) {
					if told := testkit.Must(w.model.Changed(b.Context(), some))(b); told[0].Changed {
						b.Fatal("nothing has changed")
					}
				}
			}
		})
	}
}
