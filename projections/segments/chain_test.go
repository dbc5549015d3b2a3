package segments_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

// What segments read by way of others is looked up as it is asked for: written down for each, it
// would be twice as much for each one that refers to all before it.
func TestSegmentsThatReferToAllBeforeThemTakeLittleMemory(t *testing.T) {
	w := newSegmentFixture(t)
	source, random := id.Derived("chain"), rand.New(rand.NewPCG(1, 2))
	const many = 21 // more take gigabytes, where each takes twice as much
	text, all, named := `traits.n > 20`, []id.Segment{}, []string{}
	for range many {
		segment := id.Next[id.Segment](source)
		w.Segment(w.Acme, event.SegmentDefined{Segment: segment, Name: "S", Rule: event.Private([]byte(text)), Refers: slices.Clone(all)})
		all, named = append(all, segment), append(named, fmt.Sprintf(`in_segment(%q)`, segment))
		text = strings.Join(named, " && ")
	}
	w.Segment(w.Acme, event.SegmentReady{Revision: many - 1})
	ada := w.Create(w.Acme, "ada", `{"n":10}`)
	w.traits[ada] = `{"n":10}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.catchUp(random)
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 100 {
		t.Errorf("%d segments took %d MiB", many, took)
	}
	members := func(want string) {
		t.Helper()
		stored := w.stored()
		for _, segment := range all {
			if got := fmt.Sprint(stored[segment]); got != want {
				t.Errorf("in %s are %s, not %s", segment, got, want)
			}
		}
	}
	members("[]")
	w.Change(w.Acme, ada, `{"n":30}`)
	w.traits[ada] = `{"n":30}`
	w.catchUp(random)
	members(fmt.Sprint([]id.User{ada}))
}

// A client of whom a thousand segments follow from one takes others' time with each change of
// that one, so it is told to be slow before anything is written, not after.
func TestAChangeThatManySegmentsFollowTakesStepsBeforeItIsWritten(t *testing.T) {
	w := newSegmentFixture(t)
	source := id.Derived("chain")
	const many = 30
	var chain []id.Segment
	for range many {
		segment, text, refers := id.Next[id.Segment](source), `traits.n > 20`, []id.Segment{}
		if len(chain) > 0 {
			refers = chain[len(chain)-1:]
			text = fmt.Sprintf(`in_segment(%q)`, refers[0])
		}
		w.Segment(w.Acme, event.SegmentDefined{Segment: segment, Name: "S", Rule: event.Private([]byte(text)), Refers: refers})
		chain = append(chain, segment)
	}
	w.Segment(w.Acme, event.SegmentReady{Revision: many - 1})
	w.applyAtOnce()
	w.Segment(w.Acme, event.SegmentChanged{Segment: chain[0], Name: "S", Rule: event.Private([]byte(`traits.n > 30`)), Refers: []id.Segment{}})
	changed := testkit.Must(w.EventLog.Decode(testkit.Must(w.EventLog.Store.ReadAll(t.Context(), w.applied, 1))(t)[0]))(t)
	before, made := 0, 0
	if err := pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
		return w.model.ApplyClient(t.Context(), tx, w.EventLog, w.Acme, []eventstore.Recorded{changed}, func(steps int) error {
			if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM segment_versions WHERE NOT serves`).Scan(&made); err == nil && made == 0 {
				before += steps
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	if made != many || before < many*readmodel.StepsToWrite {
		t.Errorf("%d versions, after %d steps", made, before)
	}
}
