package segments_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/testkit"
)

// What a policy records of a client whose part of the model stands still changes nothing there, so it would
// be recorded again each second, for as long as the part stands. One that is applied in slices goes on.
func TestNothingIsDueOfAClientWhosePartStandsStill(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	w.Create(w.Bolt, "bob", `{"seen":"2026-03-01T11:30:00Z"}`) // whom nobody holds up
	w.Segment(w.Bolt, event.SegmentDefined{Segment: projectionstest.SegmentIDs[3], Name: "S", Rule: event.Private([]byte(`within(traits.seen, "1h")`)), Refers: []id.Segment{}})
	w.Segment(w.Bolt, event.SegmentReady{Revision: 0})
	w.Create(w.Acme, "ada", `{"n":30,"seen":"2026-03-01T11:30:00Z"}`)
	for i, rule := range []string{`traits.n > 20`, `within(traits.seen, "1h")`} {
		w.Segment(w.Acme, event.SegmentDefined{Segment: projectionstest.SegmentIDs[i], Name: "S", Rule: event.Private([]byte(rule)), Refers: []id.Segment{}})
	}
	w.Segment(w.Acme, event.SegmentReady{Revision: 1})
	w.decide("n", true)
	w.decide("n", false)
	w.Segment(w.Acme, event.SegmentDefined{Segment: projectionstest.SegmentIDs[2], Name: "S", Rule: event.Private([]byte(`traits.n > 30`)), Refers: []id.Segment{}})
	w.catchUp(testkit.Random(t))
	for _, c := range []struct {
		what  string
		sql   string
		found bool
	}{
		{"that goes on", ``, true},
		{"that has stopped", `INSERT INTO quarantine (projection, client, position, event_id, reason) VALUES ($1, $2, '', '', '')`, false},
		{"that is being replaced", `UPDATE quarantine SET paused = true WHERE projection = $1 AND client = $2`, false},
		{"that is applied in slices", `UPDATE quarantine SET slow = true WHERE projection = $1 AND client = $2`, true},
	} {
		if c.sql != "" {
			if _, err := w.Pool.Exec(t.Context(), c.sql, projector.ID(w.model), w.Acme); err != nil {
				t.Fatal(err)
			}
		}
		for name, find := range map[string]func(context.Context) ([]id.Client, error){
			"building": w.model.Building, "restored": w.model.Restored,
			"waiting": func(ctx context.Context) ([]id.Client, error) { return w.model.Waiting(ctx, w.clock.Add(time.Hour)) },
		} {
			if found := testkit.Must(find(t.Context()))(t); slices.Contains(found, w.Acme) != c.found || slices.Contains(found, w.Bolt) != (name == "waiting") {
				t.Errorf("%s, beside a client %s: %v", name, c.what, found)
			}
		}
	}
}

// Clients' rules are built one client after the other, so that nobody waits there for what one has written
// since: a segment is restored as the model stands, or not at all where it was changed meanwhile.
func TestWhatIsRestoredIsReadAsTheModelStands(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	segment := projectionstest.SegmentIDs[0]
	w.Segment(w.Acme, event.SegmentDefined{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}})
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	w.decide("n", true)
	w.decide("n", false)
	w.catchUp(testkit.Random(t)) // which notes no checkpoint: the model is behind what was acknowledged
	found, rule, changed, ok, err := w.model.RestoredOf(t.Context(), w.Acme)
	if found != segment || rule != `traits.n > 20` || changed != 0 || !ok || err != nil {
		t.Errorf("%s by %q of revision %d, %t, %v", found, rule, changed, ok, err)
	}
}

// ended is of a request that has ended while users are judged.
type ended struct{ context.Context } //nolint:containedctx // it is one

func (ended) Err() error { return context.Canceled }

// A hundred users may take a second of a processor, or many where others have it: nobody waits for them any more.
func TestARequestThatHasEndedIsJudgedForNoLonger(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	w.Create(w.Acme, "ada", `{"n":30}`)
	w.catchUp(testkit.Random(t))
	by := testkit.Must(rule.Parse(`traits.n > 20`, rule.Users))(t)
	for want, ctx := range map[error]context.Context{nil: t.Context(), context.Canceled: ended{t.Context()}} {
		if _, err := w.model.Preview(ctx, w.Acme, true, by, event.Within{}, traits.Schema{}, w.clock); !errors.Is(err, want) {
			t.Errorf("it ends with %v, not %v", err, want)
		}
	}
}

// decide records whether a path is sensitive.
func (w *segmentFixture) decide(path string, sensitive bool) {
	w.Helper()
	w.Record(w.Acme, string(eventstore.TraitSchemaStream(w.Acme)), event.TraitSchemaOverridden{Overrides: map[string]event.TraitOverride{path: {Sensitive: &sensitive}}})
}

// A segment that names one which reads what it may not names nobody either, be it built by then or not: it
// would else name all who are not in the other.
func TestASegmentIsBlockedWithThoseThatItNames(t *testing.T) {
	t.Parallel()
	for _, built := range []bool{true, false} {
		w := newSegmentFixture(t)
		random, base, upon := testkit.Random(t), projectionstest.SegmentIDs[0], projectionstest.SegmentIDs[1]
		w.Create(w.Acme, "ada", `{"n":30}`)
		w.Create(w.Acme, "bob", `{"n":10}`)
		w.Segment(w.Acme, event.SegmentDefined{Segment: base, Name: "base", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}})
		w.Segment(w.Acme, event.SegmentDefined{Segment: upon, Name: "upon", Rule: event.Private(fmt.Appendf(nil, `!in_segment(%q)`, base)), Refers: []id.Segment{base}})
		if built {
			w.Segment(w.Acme, event.SegmentReady{Revision: 1})
		}
		stands := func(when string, members int, by ...segments.BlockedBy) {
			t.Helper()
			w.catchUp(random)
			found := testkit.Must(w.model.List(t.Context(), w.Acme, true, readmodel.Page{Limit: 10}))(t)
			if len(found) != 2 || found[1].Members != members || !slices.Equal(found[1].BlockedBy, by) {
				t.Errorf("built before %v, %s: %+v", built, when, found)
			}
		}
		w.decide("n", true)
		w.Create(w.Acme, "cid", `{"n":10}`)
		stands("blocked", 0, segments.BlockedBy{Cause: "segment_blocked", Name: string(base)})
		w.decide("n", false)
		if built { // until the rule has judged everybody anew, by the other as that does
			stands("unblocked", 0, segments.BlockedBy{Cause: "segment_blocked", Name: string(base)})
			w.Segment(w.Acme, event.SegmentChanged{Segment: base, Name: "base", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}})
			w.Segment(w.Acme, event.SegmentReady{Revision: 3})
		} else {
			w.Segment(w.Acme, event.SegmentReady{Revision: 1})
		}
		stands("judged anew", 2)
	}
}
