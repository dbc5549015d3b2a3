package segments_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kindred/domain/event"
	"kindred/domain/id"
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
