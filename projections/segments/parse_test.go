package segments_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/segments"
	"kindred/testkit"
)

// Rules that were written take as long to parse after each start: whose take long for all
// others to wait is applied beside.
func TestRulesThatAreParsedCountAsWhatTheyTake(t *testing.T) {
	w := newSegmentFixture(t)
	source := id.Derived("parse")
	for n := range 12 {
		text := fmt.Sprintf(`traits.n == %d || traits.plan in [%s"b"]`, n, strings.Repeat(`"a", `, 700))
		w.Segment(w.Acme, event.SegmentDefined{Segment: id.Next[id.Segment](source), Name: "s", Rule: event.Private([]byte(text))})
	}
	w.catchUp(rand.New(rand.NewPCG(1, 2)))
	w.Create(w.Acme, "u1", `{"n":1}`)
	page := testkit.Must(w.EventLog.Store.ReadAll(t.Context(), w.applied, 10))(t)
	created := testkit.Must(w.EventLog.Decode(page[0]))(t)
	w.model = segments.New(w.Reader) // as after a start
	errLong := errors.New("it takes long")
	apply := func() error {
		spent := 0
		return pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
			return w.model.ApplyClient(t.Context(), tx, w.EventLog, w.Acme, []eventstore.Recorded{created}, func(steps int) error {
				if spent += steps; spent > projector.BatchSteps {
					return errLong
				}
				return nil
			})
		})
	}
	tries, err := 1, apply()
	for ; errors.Is(err, errLong) && tries < 20; tries++ { // what was parsed is kept
		err = apply()
	}
	if err != nil || tries < 3 || tries > 8 {
		t.Errorf("12 large rules were parsed in %d batches: %v", tries, err)
	}
}

// A client with a thousand long rules, which are more than are kept ready, keeps no other's new rule waiting
// while all of them are parsed: a slice judges by some.
func TestASliceJudgesByAsManyRulesAsAreQuicklyParsed(t *testing.T) {
	w := newSegmentFixture(t)
	w.model = segments.Model{Reader: w.Reader} // keeps no rules
	source := id.Derived("parse")
	const rules = 25
	for n := range rules {
		text := fmt.Sprintf(`traits.n >= %d || traits.plan in [%s"b"]`, n, strings.Repeat(`"a", `, 700))
		w.Segment(w.Acme, event.SegmentDefined{Segment: id.Next[id.Segment](source), Name: "s", Rule: event.Private([]byte(text)), Refers: []id.Segment{}})
	}
	w.Create(w.Acme, "u1", `{"n":10}`)
	w.applyAtOnce()
	var judged []int
	for more, built := true, 0; more; {
		var err error
		if more, _, err = w.model.Build(t.Context(), w.Acme); err != nil {
			t.Fatal(err)
		}
		before := built
		if err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM segment_versions WHERE built = 1`).Scan(&built); err != nil {
			t.Fatal(err)
		}
		judged = append(judged, built-before)
	}
	if fmt.Sprint(judged) != "[9 9 7 0]" {
		t.Errorf("slices judged by %v rules", judged)
	}
	var in int
	if err := w.Pool.QueryRow(t.Context(), `SELECT cardinality(versions) FROM segment_users`).Scan(&in); err != nil || in != 11 {
		t.Errorf("the user is in %d segments: %v", in, err)
	}
}
