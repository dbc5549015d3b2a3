package projections

import (
	"fmt"
	"slices"
	"testing"

	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/domain/traits"
)

// The clients that were asked about longest ago are forgotten, until what is
// kept fits; the one that was built just now stays, however large.
func TestPopulationsAreKeptWhileTheyFit(t *testing.T) {
	for _, c := range []struct {
		sizes []int64 // users of each client, in the order of their last use
		kept  []id.Client
	}{
		{[]int64{1, 2, 3}, []id.Client{"0", "1", "2", "built"}},
		{[]int64{1, 1, maxKept - 1}, []id.Client{"1", "2", "built"}},
		{[]int64{1, maxKept, 1}, []id.Client{"2", "built"}},
		{[]int64{1, 1, maxKept + 1}, []id.Client{"built"}},
	} {
		p, err := NewPopulations(Reader{})
		if err != nil {
			t.Fatal(err)
		}
		for i, size := range c.sizes {
			pop := &population{}
			pop.size.Store(size)
			p.clients.Add(id.Client(fmt.Sprint(i)), pop)
		}
		built := &population{known: known{users: matching.New(traits.Schema{})}}
		p.clients.Add("built", built)
		p.keep(built)
		if got := p.clients.Keys(); !slices.Equal(got, c.kept) {
			t.Errorf("of %v are kept %v, not %v", c.sizes, got, c.kept)
		}
	}
}
