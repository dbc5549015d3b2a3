package clustering

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"kindred/domain/traits"
)

// A profile has so many bins for a trait at most, beside the missing; those that
// would hold only a few users are joined with others, for their PSI would not
// be distributed as the test of drift supposes.
const (
	maxBins    = 10
	leastInBin = 12 // of numbers
	leastOfOwn = 5  // of a level
)

// Profile is what one run keeps of a cluster, so that a later one can be
// compared with it: a few counts for each trait, and no user. It survives JSON
// unchanged. Its levels are values of real people, so it is to be kept as
// carefully as the traits themselves; its edges are as coarse as any quantile.
type Profile struct {
	Schema   int            `json:"schema"` // version
	Users    int            `json:"users"`  // of the cluster
	Total    int            `json:"total"`  // of the run
	Centroid []float32      `json:"centroid"`
	Spread   float64        `json:"spread"` // as in Result.Spreads
	AsOf     float64        `json:"as_of"`  // of the run, in days since 1970-01-01 UTC; 0 where it was not kept
	Traits   []TraitProfile `json:"traits"` // sorted by path
}

// TraitProfile counts the values of one trait. Two of them can be compared if
// they have the same edges and levels.
type TraitProfile struct {
	Path    string      `json:"path"`
	Type    traits.Type `json:"type"`
	Edges   []float64   `json:"edges,omitempty"`  // of number, and of date in days before the run's as-of: the end of each bin but the last
	Levels  []string    `json:"levels,omitempty"` // of all other types: the most frequent, at most maxBins-1, each held by leastOfOwn users, and by leastHolders of the run
	Counts  []int       `json:"counts"`           // of each bin; of each level, and of all other levels
	Missing int         `json:"missing"`
	Users   int         `json:"users"` // that were counted; of a large cluster's numbers, a sample
	// Aged counts a date that is in the edges of an earlier run by days before
	// the later run's as-of, Counts by days before the earlier's.
	Aged []int `json:"-"`
}

// empty is the trait's profile before anybody was counted.
func (t TraitProfile) empty() TraitProfile {
	t.Counts, t.Missing, t.Users = make([]int, len(t.Counts)), 0, 0
	return t
}

// count adds one user. A member of a set that is not among the levels counts
// as nothing: the counts of a set are of the users who hold the level.
func (t *TraitProfile) count(r reading) {
	t.Users++
	switch {
	case !r.known:
		t.Missing++
	case numeric(t.Type):
		t.Counts[t.bin(r.number)]++
	default:
		for _, level := range r.levels {
			i := slices.Index(t.Levels, level)
			if i < 0 {
				i = len(t.Levels)
			}
			if i < len(t.Counts) {
				t.Counts[i]++
			}
		}
	}
}

// bin is where a number is counted.
func (t *TraitProfile) bin(x float64) int { return sort.SearchFloat64s(t.Edges, x) }

// numeric tells whether a trait has bins and a median, not levels.
func numeric(t traits.Type) bool { return t == traits.TypeNumber || t == traits.TypeDate }

// binned profiles sorted numbers by their own quantiles.
func binned(t traits.Trait, sorted []float64, missing int) TraitProfile {
	p := TraitProfile{Path: t.Path, Type: t.Type, Missing: missing, Users: len(sorted) + missing}
	bins := min(maxBins, len(sorted)/leastInBin)
	for i := 1; i < bins; i++ {
		edge := traits.SharedQuantile(sorted, float64(i)/float64(bins))
		fresh := len(p.Edges) == 0 || edge > p.Edges[len(p.Edges)-1]
		if fresh && edge < sorted[len(sorted)-1] {
			p.Edges = append(p.Edges, edge)
		}
	}
	p.Counts = make([]int, len(p.Edges)+1)
	for _, x := range sorted {
		p.Counts[p.bin(x)]++
	}
	return p
}

// levelled profiles the levels that most users hold, ties by name. Of a level that fewer than
// leastHolders of all hold, there would be no telling who holds it.
func levelled(t traits.Trait, held, all map[string]int, users, missing int) TraitProfile {
	p := TraitProfile{Path: t.Path, Type: t.Type, Counts: []int{}, Missing: missing, Users: users}
	names := make([]string, 0, len(held))
	for name, n := range held {
		if n >= leastOfOwn && all[name] >= leastHolders {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(held[b]-held[a], strings.Compare(a, b)) })
	p.Levels = names[:min(len(names), maxBins-1)]
	other := users - missing
	for _, name := range p.Levels {
		p.Counts = append(p.Counts, held[name])
		other -= held[name]
	}
	if t.Type != traits.TypeSet {
		p.Counts = append(p.Counts, other)
	}
	return p
}
