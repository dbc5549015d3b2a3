package demo

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func collectPeople(t *testing.T, seed uint64, n int) (people []person) {
	t.Helper()
	for p, err := range madeUp(seed, n) {
		if err != nil {
			t.Fatal(err)
		}
		people = append(people, p)
	}
	return people
}

func TestTheSameSeedMakesUpTheSamePeople(t *testing.T) {
	first := collectPeople(t, 7, 500)
	if diff := cmp.Diff(first, collectPeople(t, 7, 500)); diff != "" {
		t.Errorf("twice the same seed (-first +second)\n%s", diff)
	}
	if cmp.Equal(first, collectPeople(t, 8, 500)) {
		t.Error("another seed made up the same people")
	}
	seen, lacking := map[string]bool{}, 0
	for _, p := range first {
		if seen[p.ExternalID] {
			t.Errorf("two are called %s", p.ExternalID)
		}
		seen[p.ExternalID] = true
		if _, ok := p.Traits["hours_per_week"]; !ok {
			lacking++
		}
	}
	if lacking == 0 || lacking == len(first) {
		t.Errorf("%d of %d have no hours, which should be some", lacking, len(first))
	}
}
