package segments_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore/projector"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/testkit"
)

// A new rule judges everyone, in several reads and slices: also where many numbers in a row are of users who
// were erased, and where some users' traits are so large that a slice is of few.
func TestANewRuleJudgesEveryoneInSlices(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	const users, large = 1_400, 30
	var named []id.User
	for n := range users {
		traits := fmt.Sprintf(`{"n": %d}`, n%3)
		if n >= 800 && n < 800+large {
			traits = fmt.Sprintf(`{"n": 0, "t": %q}`, strings.Repeat("x", 200<<10))
		}
		user := w.Create(w.Acme, fmt.Sprint("u", n), traits)
		switch {
		case n < 650 && n >= 40:
			w.Erase(w.Acme, user)
		case strings.HasPrefix(traits, `{"n": 0`):
			named = append(named, user)
		}
	}
	w.Segment(w.Acme, event.SegmentDefined{Segment: projectionstest.SegmentIDs[0], Name: "some", Rule: event.Private([]byte(`traits.n == 0`))})
	w.catchUp(random)
	slicesBuilt, ready := 0, int64(-1)
	for more := true; more; slicesBuilt++ {
		var err error
		if more, ready, err = w.model.Build(t.Context(), w.Acme); err != nil {
			t.Fatal(err)
		}
	}
	w.Segment(w.Acme, event.SegmentReady{Revision: ready})
	w.catchUp(random)
	members, _, err := w.model.Members(t.Context(), w.Acme, true, projectionstest.SegmentIDs[0], readmodel.Page{Limit: users})
	if err != nil {
		t.Fatal(err)
	}
	if found := readmodel.Column(members, func(m segments.Member) id.User { return m.User }); !slices.Equal(found, named) {
		t.Errorf("%d members, and %d users whom the rule names", len(found), len(named))
	}
	if slicesBuilt < 4 || slicesBuilt > 8 {
		t.Errorf("%d slices, for the steps that these users take", slicesBuilt)
	}
}

// A client may be deleted after it was found: building leaves no row of it.
func TestBuildingLeavesNothingOfAClientThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	if more, ready, err := w.model.Build(t.Context(), w.Acme); more || ready >= 0 || err != nil {
		t.Errorf("more %t, ready %d, %v", more, ready, err)
	}
	if rows := w.rows(w.Pool, projector.ID(w.model))["segment_clients"]; len(rows) > 0 {
		t.Errorf("left is %s", rows)
	}
}
