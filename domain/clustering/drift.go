package clustering

import (
	"cmp"
	"math"
	"slices"

	"kindred/domain/traits"
)

// When a cluster has drifted.
const (
	DriftUsers = 50 // of both runs, below which nothing is judged
	// MaxStanding bounds the traits that are given as told at the next run.
	MaxStanding = 20

	leastPSI     = 0.15
	falseAlarms  = 0.01 // of a comparison, over all of its traits
	leastJaccard = 0.6
	leastGrowth  = 0.25 // of a size share, and of a cause that is told again
	leastZ       = 4.0
	majorPSI     = 0.5
	majorJaccard = 0.5
)

// Baseline is the run that a cluster is compared with.
type Baseline string

// The baselines.
const (
	Previous Baseline = "previous" // the run before
	First    Baseline = "first"    // the run that the cluster was formed in
)

// CauseKind is in what a cluster has become something else.
type CauseKind string

// The kinds of cause.
const (
	CauseTrait   CauseKind = "trait"   // a trait is spread otherwise
	CauseMembers CauseKind = "members" // other users are in it
	CauseSize    CauseKind = "size"    // it is another share of all users
)

// Severity is how much a cluster has drifted.
type Severity string

// The severities; the zero value is none.
const (
	Moderate Severity = "moderate"
	Major    Severity = "major"
)

// Cause is one thing in which a cluster has drifted.
type Cause struct {
	Kind     CauseKind `json:"kind"`
	Baseline Baseline  `json:"baseline"`
	Trait    string    `json:"trait,omitempty"` // path
	Amount   float64   `json:"amount"`          // a trait's PSI; 1 - the members' Jaccard index; the change of the size share, relative to the older
	Severity Severity  `json:"severity"`
}

// TraitDrift is how otherwise a trait is spread, drifted or not.
type TraitDrift struct {
	Path  string  `json:"path"`
	PSI   float64 `json:"psi"`   // population stability index; of a set, of the member that changed most against its limit
	Limit float64 `json:"limit"` // above which it has drifted
}

// Drift is a comparison of one cluster with itself at an earlier run.
type Drift struct {
	Judged bool         `json:"judged"` // false where either run has fewer than DriftUsers
	Causes []Cause      `json:"causes"` // traits by path, then members, then size
	Traits []TraitDrift `json:"traits"` // that could be compared, by path
	Shift  float64      `json:"shift"`  // of the centroid in pooled within-cluster standard deviations; 0 under another schema. It is no cause.
}

// Severity is that of the worst cause, or "" where there is none.
func (d Drift) Severity() Severity {
	var worst Severity
	for _, c := range d.Causes {
		if worst != Major {
			worst = c.Severity
		}
	}
	return worst
}

// Compare tells whether a cluster has drifted from its older profile. Newer is
// its profile in the older's edges and levels, which [Survey] gives as Against;
// members compares the two by the users in both runs.
//
// A trait has drifted if its PSI is over 0.15, of which half a standard deviation
// makes more in any type, and over what chance alone exceeds
// in one of a hundred comparisons: PSI times nm/(n+m) is distributed as
// chi-squared with one degree of freedom less than there are bins (Yurdakul and
// Naranjo 2020), at a level shared out among the traits.
func Compare(older, newer Profile, members Members, baseline Baseline) Drift {
	d := Drift{Causes: []Cause{}, Traits: []TraitDrift{}}
	if older.Users < DriftUsers || newer.Users < DriftUsers {
		return d
	}
	d.Judged = true
	pairs := comparableTraits(older, newer)
	for _, pair := range pairs {
		d.Traits = append(d.Traits, pair[0].drift(pair[1], falseAlarms/float64(len(pairs))))
	}
	for _, t := range d.Traits {
		if t.PSI > t.Limit {
			d.Causes = append(d.Causes, Cause{CauseTrait, baseline, t.Path, t.PSI, grade(t.PSI > majorPSI)})
		}
	}
	if jaccard := members.Jaccard(); members.Either >= DriftUsers && jaccard < leastJaccard {
		d.Causes = append(d.Causes, Cause{CauseMembers, baseline, "", 1 - jaccard, grade(jaccard < majorJaccard)})
	}
	if change, z := growth(older, newer); change >= leastGrowth && z >= leastZ {
		d.Causes = append(d.Causes, Cause{CauseSize, baseline, "", change, Moderate})
	}
	d.Shift = shift(older, newer)
	return d
}

func grade(major bool) Severity {
	if major {
		return Major
	}
	return Moderate
}

// comparableTraits pairs the traits that have the same edges and levels.
func comparableTraits(older, newer Profile) [][2]TraitProfile {
	var pairs [][2]TraitProfile
	for _, n := range newer.Traits {
		for _, o := range older.Traits {
			if o.Path == n.Path && o.Type == n.Type && len(o.Counts) == len(n.Counts) &&
				slices.Equal(o.Edges, n.Edges) && slices.Equal(o.Levels, n.Levels) {
				pairs = append(pairs, [2]TraitProfile{o, n})
			}
		}
	}
	return pairs
}

// drift measures a trait at a level of significance. The levels of a set do
// not exclude one another: each is measured by itself, as held, not held or
// missing, and the one that is farthest over its limit speaks for the trait.
// Dates have drifted only if they have both as days of the calendar and as
// ages: time alone changes the age of whatever happened once, and the day of
// whatever happens again and again.
func (t TraitProfile) drift(newer TraitProfile, level float64) TraitDrift {
	if t.Type != traits.TypeSet {
		older := append(slices.Clone(t.Counts), t.Missing)
		d := measureDrift(t.Path, older, append(slices.Clone(newer.Counts), newer.Missing), level)
		if newer.Aged == nil {
			return d
		}
		aged := measureDrift(t.Path, older, append(slices.Clone(newer.Aged), newer.Missing), level)
		if aged.PSI*d.Limit < d.PSI*aged.Limit {
			return aged
		}
		return d
	}
	worst := measureDrift(t.Path, []int{t.Users - t.Missing, t.Missing}, []int{newer.Users - newer.Missing, newer.Missing}, level)
	for i, held := range t.Counts {
		d := measureDrift(t.Path,
			[]int{held, t.Users - t.Missing - held, t.Missing},
			[]int{newer.Counts[i], newer.Users - newer.Missing - newer.Counts[i], newer.Missing}, level/float64(len(t.Counts)))
		if d.PSI*worst.Limit > worst.PSI*d.Limit {
			worst = d
		}
	}
	return worst
}

// measureDrift compares two spreads over the same bins, of which those that
// are empty in both do not count.
func measureDrift(path string, older, newer []int, level float64) TraitDrift {
	bins, n, m := 0, 0, 0
	for i := range older {
		n, m = n+older[i], m+newer[i]
		if older[i]+newer[i] > 0 {
			bins++
		}
	}
	d := TraitDrift{Path: path, Limit: leastPSI}
	if bins < 2 || n == 0 || m == 0 {
		return d
	}
	for i := range older {
		if older[i]+newer[i] > 0 {
			p := (float64(older[i]) + 0.5) / (float64(n) + float64(0.5*float64(bins)))
			q := (float64(newer[i]) + 0.5) / (float64(m) + float64(0.5*float64(bins)))
			d.PSI += float64((p - q) * math.Log(p/q))
		}
	}
	d.Limit = max(leastPSI, chiSquared(bins-1, 1-level)*(1/float64(n)+1/float64(m)))
	return d
}

// growth is the relative change of the size share, and its |z| as a difference
// of two proportions.
func growth(older, newer Profile) (change, z float64) {
	n, m := float64(older.Total), float64(newer.Total)
	p, q := float64(older.Users)/n, float64(newer.Users)/m
	both := (float64(older.Users) + float64(newer.Users)) / (n + m)
	deviation := math.Sqrt(both * (1 - both) * (1/n + 1/m))
	if deviation == 0 {
		return 0, 0
	}
	return math.Abs(q-p) / p, math.Abs(q-p) / deviation
}

func shift(older, newer Profile) float64 {
	n, m := float64(older.Users), float64(newer.Users)
	pooled := math.Sqrt((float64(n*older.Spread*older.Spread) + float64(m*newer.Spread*newer.Spread)) / (n + m))
	if older.Schema != newer.Schema || len(older.Centroid) != len(newer.Centroid) || pooled == 0 {
		return 0
	}
	var sum float64
	for i, x := range newer.Centroid {
		d := float64(x) - float64(older.Centroid[i])
		sum += float64(d * d)
	}
	return math.Sqrt(sum) / pooled
}

// Told compares the causes of a run with those against the first run that were
// told before and still stood at the last run. Fresh are those to be told now:
// all against the previous run, each of which is a change of its own, and of
// those against the first run the new ones, and those that have grown by a
// quarter since they were told. Standing is what to give as told at the next
// run: of the traits only the MaxStanding largest, so that a trait that is not
// among so many counts as told with the least of them.
func Told(told, now []Cause) (fresh, standing []Cause) {
	_, kept := largest(told)
	for _, c := range now {
		if c.Baseline == Previous {
			fresh = append(fresh, c)
			continue
		}
		before, known := c, true
		if i := slices.IndexFunc(told, c.same); i >= 0 {
			before = told[i]
		} else if c.Kind == CauseTrait && len(kept) == MaxStanding {
			before.Amount = min(c.Amount, kept[MaxStanding-1].Amount)
		} else {
			known = false
		}
		if !known || c.Amount >= (1+leastGrowth)*before.Amount {
			fresh, before = append(fresh, c), c
		}
		standing = append(standing, before)
	}
	slices.SortStableFunc(fresh, func(a, b Cause) int { return cmp.Compare(b.Amount, a.Amount) })
	others, kept := largest(standing)
	return fresh, append(kept, others...)
}

func (c Cause) same(other Cause) bool {
	return c.Kind == other.Kind && c.Baseline == other.Baseline && c.Trait == other.Trait
}

// largest are the traits among causes that have changed most, the first of them
// most of all, and the causes of other kinds, of which there are few.
func largest(causes []Cause) (others, kept []Cause) {
	for _, c := range causes {
		if c.Kind == CauseTrait {
			kept = append(kept, c)
		} else {
			others = append(others, c)
		}
	}
	slices.SortStableFunc(kept, func(a, b Cause) int { return cmp.Compare(b.Amount, a.Amount) })
	return others, kept[:min(len(kept), MaxStanding)]
}
