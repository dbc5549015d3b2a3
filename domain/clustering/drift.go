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
	falseAlarms  = 0.01 // of a run, over its clusters and their traits
	leastMove    = 0.25 // standard deviations that a number must have moved by
	leastJaccard = 0.6
	leastGrowth  = 0.25 // of a size share, and of a cause that is told again
	leastStay    = 0.75 // of what makes a cause, above which it still stands once it was told
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
	Origin   Origin    `json:"origin,omitempty"` // what it came from, where that is known
	Move               // of a trait, the direction
}

// Origin is what a cause came from.
type Origin string

// The origins.
const (
	PeopleChanged Origin = "people_changed" // the same people are otherwise than they were
	OthersCame    Origin = "others_came"    // newcomers, or those who are gone
)

// Move is in which direction a trait has changed: a number rose or fell, or one level
// is held by more or fewer.
type Move struct {
	Effect float64 `json:"effect,omitempty"` // in standard deviations of the older, negative where it fell
	Level  string  `json:"level,omitempty"`  // of what is no number: the one whose share changed most; (missing) where the missing did
	Before float64 `json:"before,omitempty"` // the share of the level
	After  float64 `json:"after,omitempty"`
}

// MissingLevel stands for those who do not say a trait.
const MissingLevel = "(missing)"

// TraitDrift is how otherwise a trait is spread, drifted or not.
type TraitDrift struct {
	Path  string  `json:"path"`
	PSI   float64 `json:"psi"`   // population stability index; of a set, of the member that changed most against its limit
	Limit float64 `json:"limit"` // above which it has drifted
	Move
	moved bool // by its direction alone
}

// drifted says whether the trait is spread otherwise.
func (t TraitDrift) drifted() bool { return t.PSI > t.Limit || t.moved }

// near says whether the trait is spread almost as much otherwise.
func (t TraitDrift) near() bool {
	return t.PSI > leastStay*t.Limit || t.Level == "" && math.Abs(t.Effect) >= leastStay*leastMove
}

// Drift is a comparison of one cluster with itself at an earlier run.
type Drift struct {
	Judged bool         `json:"judged"` // false where either run has fewer than DriftUsers
	Causes []Cause      `json:"causes"` // traits by path, then members, then size
	Traits []TraitDrift `json:"traits"` // that could be compared, by path
	Shift  float64      `json:"shift"`  // of the centroid in pooled within-cluster standard deviations; 0 under another schema. It is no cause.
	others float64      // what a cause of its members would amount to
	growth float64      // what one of its size would, where that is not chance
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
// makes more in any type, and over what chance alone exceeds: PSI times nm/(n+m) is distributed as
// chi-squared with one degree of freedom less than there are bins (Yurdakul and
// Naranjo 2020). A number has drifted, too, if it moved by a quarter of a standard
// deviation, beyond chance (the rank sums of Wilcoxon 1945 on the bins). Chance may bring
// that about in one run of a hundred, which is shared out among its clusters by their
// users, then among their traits, then among the two tests of a number (Bonferroni).
func Compare(older, newer Profile, members Members, baseline Baseline) Drift {
	d := Drift{Causes: []Cause{}, Traits: []TraitDrift{}}
	if older.Users < DriftUsers || newer.Users < DriftUsers {
		return d
	}
	d.Judged = true
	pairs := comparableTraits(older, newer)
	share := float64(older.Users) / float64(max(older.Users, older.Total))
	for _, pair := range pairs {
		level := falseAlarms * share / float64(len(pairs))
		if numeric(pair[0].Type) {
			level /= 2
		}
		t := pair[0].drift(pair[1], level)
		t.Move, t.moved = pair[0].move(pair[1], level, t.PSI)
		d.Traits = append(d.Traits, t)
	}
	for _, t := range d.Traits {
		if t.drifted() {
			d.Causes = append(d.Causes, Cause{
				Kind: CauseTrait, Baseline: baseline, Trait: t.Path, Amount: t.PSI, Severity: grade(t.PSI > majorPSI), Move: t.Move,
			})
		}
	}
	if c, told := otherMembers(members, baseline); told {
		d.Causes = append(d.Causes, c)
	}
	if c, told := otherSize(older, newer, baseline); told {
		d.Causes = append(d.Causes, c)
	}
	if members.Either >= DriftUsers {
		d.others = 1 - members.Jaccard()
	}
	change, z := growth(older, newer)
	if z >= leastStay*leastZ {
		d.growth = change
	}
	d.Shift = shift(older, newer)
	return d
}

// CompareCut is Compare where the earlier run's cut is known: it tells a cause only where
// that cut shows it as well, for whom it would put into the cluster now or for those
// whom it did, and as much of it as both show. So neither another cut of the same people
// is drift, nor that others have come to look like a cluster that holds the same people as before.
func CompareCut(older, newer Profile, members Members, cut Cut, baseline Baseline) Drift {
	d := Compare(older, newer, members, baseline)
	under, same := Compare(older, cut.Under, cut.Members(), baseline), Compare(older, cut.Same, Members{}, baseline)
	if !under.Judged && !same.Judged {
		return d // nobody is left to tell by
	}
	told := []Cause{}
	for _, c := range d.Causes {
		of, shown, origin := c, false, OthersCame
		switch c.Kind {
		case CauseTrait:
			if of, shown = same.cause(c); shown {
				origin = PeopleChanged
			} else if of, shown = under.cause(c); shown && same.carries(of) {
				origin = PeopleChanged // who stayed are fewer, so that what is beyond chance of all may not be of them
			}
		case CauseMembers:
			of, shown = otherMembers(cut.Members(), baseline)
			origin = PeopleChanged
		case CauseSize:
			of, shown = otherSize(older, cut.Under, baseline)
			if cut.moved(older) {
				origin = PeopleChanged
			}
		}
		if shown {
			if of.Amount < c.Amount {
				c = of // the rest is the cut's
			}
			c.Origin = origin
			told = append(told, c)
		}
	}
	d.Causes = told
	return d
}

// moved says whether a cluster is another share of all users by those who passed its borders
// rather than by those who are new or gone, beyond what all of them are more or fewer.
func (c Cut) moved(older Profile) bool {
	growth := float64(older.Users) * float64(c.Under.Total-older.Total) / float64(older.Total)
	gone := older.Users - c.Stayed - c.Left
	return math.Abs(float64(c.Came-c.Left)) > math.Abs(float64(c.New-gone)-growth)
}

// Near says whether what a cause tells has not come back by a quarter from where it drifts.
func (d Drift) Near(c Cause) bool {
	switch c.Kind {
	case CauseMembers:
		return d.others > leastStay*(1-leastJaccard)
	case CauseSize:
		return d.growth > leastStay*leastGrowth
	default:
		return slices.ContainsFunc(d.Traits, func(t TraitDrift) bool { return t.Path == c.Trait && t.near() })
	}
}

// carries says whether a trait has moved by half of what a cause tells, or more.
func (d Drift) carries(c Cause) bool {
	return math.Abs(c.Effect) >= leastStay*leastMove && slices.ContainsFunc(d.Traits, func(t TraitDrift) bool {
		return t.Path == c.Trait && t.Level == c.Level && t.Effect/c.Effect >= 0.5
	})
}

// cause finds the cause that is the same as another.
func (d Drift) cause(as Cause) (c Cause, found bool) {
	if i := slices.IndexFunc(d.Causes, as.same); i >= 0 {
		return d.Causes[i], true
	}
	return c, false
}

func otherMembers(m Members, baseline Baseline) (c Cause, told bool) {
	jaccard := m.Jaccard()
	c = Cause{Kind: CauseMembers, Baseline: baseline, Amount: 1 - jaccard, Severity: grade(jaccard < majorJaccard)}
	return c, m.Either >= DriftUsers && jaccard < leastJaccard
}

func otherSize(older, newer Profile, baseline Baseline) (c Cause, told bool) {
	change, z := growth(older, newer)
	return Cause{Kind: CauseSize, Baseline: baseline, Amount: change, Severity: Moderate}, change >= leastGrowth && z >= leastZ
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

// move is in which direction a trait has changed, by psi in all, and whether that is beyond chance.
func (t TraitProfile) move(newer TraitProfile, level, psi float64) (m Move, beyond bool) {
	n, k := float64(t.Users), float64(newer.Users)
	if n == 0 || k == 0 {
		return m, false
	}
	// Of shares, the one that changed most.
	names, before, after := []string{MissingLevel}, []int{t.Missing}, []int{newer.Missing}
	for i, name := range t.Levels {
		if max(t.Counts[i], newer.Counts[i]) >= leastHolders {
			names, before, after = append(names, name), append(before, t.Counts[i]), append(after, newer.Counts[i])
		}
	}
	for i := range names {
		was, is := float64(before[i])/n, float64(after[i])/k
		both := (float64(before[i]) + float64(after[i])) / (n + k)
		if width := math.Sqrt(float64(both * (1 - both))); width > 0 {
			if effect := (is - was) / width; math.Abs(effect) > math.Abs(m.Effect) {
				m = Move{Effect: effect, Level: names[i], Before: was, After: is}
			}
		}
	}
	if !numeric(t.Type) {
		return m, false
	}
	counts := newer.Counts
	if newer.Aged != nil && math.Abs(rankShift(t.Counts, newer.Aged)) < math.Abs(rankShift(t.Counts, counts)) {
		counts = newer.Aged // time alone changes one of the two
	}
	effect := rankShift(t.Counts, counts)
	if math.Abs(effect) < math.Abs(m.Effect) && math.Abs(effect) < leastMove {
		return m, false // that more of it is missing says more
	}
	a, b := float64(sum(t.Counts)), float64(sum(counts))
	chance := math.Sqrt((a + b + 1) / (12 * a * b))
	z := math.Abs(superiority(t.Counts, counts)-0.5) / chance
	beyond = math.Abs(effect) >= leastMove && float64(z*z) > chiSquared(1, 1-level)
	said := measureDrift(t.Path, []int{t.Users - t.Missing, t.Missing}, []int{newer.Users - newer.Missing, newer.Missing}, level)
	if m.Level == MissingLevel && said.PSI > psi/2 {
		return m, beyond // that it is missing is most of what has changed
	}
	return Move{Effect: effect, Level: ""}, beyond
}

// superiority is the probability that one of the newer is above one of the older, over
// the same bins; ties count half. 0.5 where either has none.
func superiority(older, newer []int) float64 {
	a, b := sum(older), sum(newer)
	if a == 0 || b == 0 {
		return 0.5
	}
	below, above := 0, 0.0
	for i, n := range older {
		above += float64(float64(newer[i]) * (float64(below) + float64(0.5*float64(n))))
		below += n
	}
	return above / float64(float64(a)*float64(b))
}

// rankShift is by how many standard deviations the middle has moved, if both are normal:
// the square root of 2 times the normal quantile of the superiority. Beyond 2.7 it is not told apart.
func rankShift(older, newer []int) float64 {
	return float64(math.Sqrt2 * normalQuantile(min(max(superiority(older, newer), 0.03), 0.97)))
}

// normalQuantile is that of the normal distribution for 0.03 to 0.97 (Acklam 2003, its
// central part, which needs no logarithm: the same bits on every processor).
func normalQuantile(p float64) float64 {
	q := p - 0.5
	r := float64(q * q)
	poly := func(of ...float64) (sum float64) {
		for _, c := range of {
			sum = float64(sum*r) + c
		}
		return sum
	}
	return float64(q*poly(-3.969683028665376e+01, 2.209460984245205e+02, -2.759285104469687e+02, 1.383577518672690e+02, -3.066479806614716e+01, 2.506628277459239)) /
		poly(-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01, -1.328068155288572e+01, 1)
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
// run: those against the first run, and what was told and is near still, so that
// what stays about its limit is not told over and over. Of the traits it is only the
// MaxStanding largest, so that a trait that is not among so many counts as told
// with the least of them.
func Told(told, now []Cause, near func(Cause) bool) (fresh, standing []Cause) {
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
	for _, c := range told {
		if !slices.ContainsFunc(now, c.same) && near(c) {
			standing = append(standing, c)
		}
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
