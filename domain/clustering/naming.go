package clustering

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"

	"kindred/domain/traits"
)

// How a label is looked for.
const (
	namedRows   = 512  // users of each cluster that conditions are tried on
	gridEdges   = 16   // of a number: quantiles of everybody, and half as many of the cluster
	tried       = 64   // conditions of which all pairs are tried
	triedPairs  = 16   // of which each is tried with a third one
	mostMembers = 3    // of a set that are tried for they tell best
	refinements = 3    // of each condition beside the others
	leastGained = 1e-9 // F1 by which a condition is better than another, however it was added up
	leastTrue   = 0.5  // share of a cluster that a label is true of
	leastAdded  = 0.02 // F1 that a condition must add, for a label is to be short
)

// Condition is one part of a label: a number is within bounds, or a level is held.
type Condition struct {
	Path  string
	Type  traits.Type
	Level string  // of a type that has levels
	Not   bool    // it is not held, or the trait is missing
	Over  float64 // of a number, and of a date in days before the as-of: it is more; -Inf: no bound
	UpTo  float64 // and no more than this; +Inf: no bound
	trait int
	bit   uint64
	alone float64 // its F1 where it is the only one
}

// holds says whether a sampled user meets the condition.
func (c *Condition) holds(number float64, levels uint64) bool {
	if c.bit == 0 {
		return number > c.Over && number <= c.UpTo // false of what is missing
	}
	return levels&c.bit != 0 != c.Not
}

// naming finds the conditions, three at most, that tell best who is in a cluster: those with
// the largest F1, the harmonic mean of precision and recall (as Frost, Moshkovitz and
// Rashtchian 2020 explain clusters by thresholds).
type naming struct {
	*survey
	rows  []int     // sampled users of each cluster that count
	from  []int     // the first word of each cluster in a set
	words int       // of a set of sampled users
	stand []float64 // how many users a sampled one stands for, by cluster
	edges [][]float64
	whole map[int][]float64 // everybody's numbers, sorted, of a trait where all are whole
	ahead map[int]bool      // of a date: some are after the as-of
	least map[int]float64   // everybody's least number, where so many have it that it may be told
}

// members is a set of sampled users, a bit each; each cluster begins with a word of its own.
type members []uint64

func newNaming(s *survey) *naming {
	n := &naming{survey: s, edges: make([][]float64, len(s.reader.traits)), whole: map[int][]float64{}, ahead: map[int]bool{}, least: map[int]float64{}}
	for c := range s.Result.K {
		g := &s.groups[c]
		rows := min(g.users, g.size, namedRows)
		n.rows, n.from = append(n.rows, rows), append(n.from, n.words)
		n.stand = append(n.stand, float64(g.users)/float64(max(rows, 1)))
		n.words += (rows + 63) / 64
	}
	all := &s.groups[s.Result.K]
	for i, t := range s.reader.traits {
		if numeric(t.Type) {
			known, _ := all.sorted(i)
			n.edges[i] = grid(known, gridEdges)
			if len(known) >= leastHolders && known[0] == known[leastHolders-1] {
				n.least[i] = known[0]
			}
			n.ahead[i] = t.Type == traits.TypeDate && len(known) > 0 && known[0] < 0
			if t.Type == traits.TypeNumber && !slices.ContainsFunc(known, func(x float64) bool { return x != math.Trunc(x) }) {
				n.whole[i] = known
			}
		}
	}
	return n
}

// grid are quantiles, which are nobody's own numbers.
func grid(sorted []float64, parts int) (edges []float64) {
	if len(sorted) < leastHolders {
		return nil
	}
	for i := 1; i < parts; i++ {
		edges = append(edges, traits.SharedQuantile(sorted, float64(i)/float64(parts)))
	}
	return edges
}

func (n *naming) everybody() members {
	all := make(members, n.words)
	for w := range all {
		all[w] = math.MaxUint64
	}
	return all
}

// where are the sampled users that meet a condition.
func (n *naming) where(c *Condition) members {
	set := make(members, n.words)
	for k, rows := range n.rows {
		g := &n.groups[k]
		for row := range rows {
			var number float64
			var levels uint64
			if c.bit == 0 {
				number = g.numbers[c.trait][row]
			} else {
				levels = g.masks[c.trait][row]
			}
			if c.holds(number, levels) {
				set[n.from[k]+row/64] |= 1 << (row % 64)
			}
		}
	}
	return set
}

// and are the sampled users who are in both sets.
func (a members) and(b members) members {
	both := make(members, len(a))
	for w := range a {
		both[w] = a[w] & b[w]
	}
	return both
}

// score is the F1 of those who are in both sets as a guess of who is in a cluster.
func (n *naming) score(cluster int, a, b members) float64 {
	told, right := 0.0, 0.0
	for k := range n.rows {
		end := n.words
		if k+1 < len(n.from) {
			end = n.from[k+1]
		}
		both := 0
		for w := n.from[k]; w < end; w++ {
			both += bits.OnesCount64(a[w] & b[w])
		}
		weight := float64(float64(both) * n.stand[k])
		if told += weight; k == cluster {
			right = weight
		}
	}
	return n.measure(cluster, told, right, 1)
}

// measure is the F-measure of a guess of so many users, of whom so many are right; 0 where
// these are less than half of the cluster, of which a label is to be true.
func (n *naming) measure(cluster int, told, right, beta float64) float64 {
	if right < leastTrue*float64(n.groups[cluster].users) {
		return 0
	}
	square := float64(beta * beta)
	return float64((1+square)*right) / (told + float64(square*float64(n.groups[cluster].users)))
}

// candidates are conditions that may name a cluster: the bounds of each number, and each
// level, that tell best by themselves, and those that lose less of the cluster, which are
// better parts of a label.
func (n *naming) candidates(cluster int) (all []Condition) {
	everybody := n.everybody()
	for i, t := range n.reader.traits {
		best := [len(weighings)]Condition{}
		most := [len(weighings)]float64{}
		var held []Condition // members of a set, of which a label may name several
		try := func(c Condition, told, right float64) {
			c.alone = n.measure(cluster, told, right, 1)
			if t.Type == traits.TypeSet && !c.Not {
				held = append(held, c)
			}
			for w, beta := range weighings {
				if s := n.measure(cluster, told, right, beta); s > most[w] {
					best[w], most[w] = c, s
				}
			}
		}
		if numeric(t.Type) {
			n.bounds(cluster, i, everybody, try)
		} else {
			n.levels(cluster, i, everybody, try)
		}
		for w, c := range best {
			if most[w] > 0 && !slices.Contains(best[:w], c) {
				all = append(all, c)
			}
		}
		slices.SortStableFunc(held, telling)
		for _, c := range held[:min(len(held), mostMembers)] {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	slices.SortStableFunc(all, telling)
	return all[:min(len(all), tried)]
}

// telling brings the conditions that tell best by themselves to the front.
func telling(a, b Condition) int { return cmp.Compare(b.alone, a.alone) }

// weighings are how much more recall counts than precision.
var weighings = [...]float64{0.7, 1, 2, 4}

// bounds tries ranges of a number between quantiles, among the sampled users of a set.
func (n *naming) bounds(cluster, trait int, among members, try func(c Condition, told, right float64)) {
	known, _ := n.groups[cluster].sorted(trait)
	if len(known) < leastHolders {
		return
	}
	edges := slices.Concat(n.edges[trait], grid(known, gridEdges/2))
	for _, q := range []float64{0.02, 0.05, 0.95, 0.98} {
		edges = append(edges, traits.SharedQuantile(known, q))
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	// Up to each edge, and at last of all who are known.
	told, right := make([]float64, len(edges)+1), make([]float64, len(edges)+1)
	for k, rows := range n.rows {
		for row, x := range n.groups[k].numbers[trait][:rows] {
			if among[n.from[k]+row/64]>>(row%64)&1 == 0 || math.IsNaN(x) {
				continue
			}
			at, _ := slices.BinarySearch(edges, x)
			told[at] += n.stand[k]
			if k == cluster {
				right[at] += n.stand[k]
			}
		}
	}
	for i := range edges {
		told[i+1] += told[i]
		right[i+1] += right[i]
	}
	t, whole := n.reader.traits[trait], len(edges)
	for from := -1; from < whole; from++ {
		c := Condition{Path: t.Path, Type: t.Type, Over: math.Inf(-1), UpTo: math.Inf(1), trait: trait}
		below, wrong := 0.0, 0.0
		if from >= 0 {
			c.Over, below, wrong = edges[from], told[from], right[from]
		}
		for to := from + 1; to <= whole; to++ {
			if c.UpTo = math.Inf(1); to < whole {
				c.UpTo = edges[to]
			}
			if from >= 0 || to < whole {
				try(c, told[to]-below, right[to]-wrong)
			}
		}
	}
}

// levels tries those of a trait that enough users hold, among the sampled users of a set.
func (n *naming) levels(cluster, trait int, among members, try func(c Condition, told, right float64)) {
	t, g, all := n.reader.traits[trait], &n.groups[cluster], &n.groups[n.Result.K]
	var told, right [64]float64 // who hold the level of a bit
	everybody, own := 0.0, 0.0
	for k, rows := range n.rows {
		for row, mask := range n.groups[k].masks[trait][:rows] {
			if among[n.from[k]+row/64]>>(row%64)&1 == 0 {
				continue
			}
			everybody += n.stand[k]
			if k == cluster {
				own += n.stand[k]
			}
			for ; mask != 0; mask &= mask - 1 {
				bit := bits.TrailingZeros64(mask)
				told[bit] += n.stand[k]
				if k == cluster {
					right[bit] += n.stand[k]
				}
			}
		}
	}
	for _, not := range []bool{false, true} { // of equals, that it is held
		for _, level := range slices.Sorted(maps.Keys(all.bits[trait])) {
			c := Condition{Path: t.Path, Type: t.Type, Level: level, Not: not, trait: trait, bit: all.bits[trait][level]}
			bit := bits.TrailingZeros64(c.bit)
			switch {
			case level == traits.OtherLevels || all.held[trait][level] < leastHolders || c.bit == 0:
			case not:
				try(c, everybody-told[bit], own-right[bit])
			case g.held[trait][level] >= leastHolders:
				try(c, told[bit], right[bit])
			}
		}
	}
}

// guess is a few conditions, who meets them all, and their F1.
type guess struct {
	conditions []Condition
	set        members
	f1         float64
}

// tell is the conditions that tell best who is in a cluster, the more telling first, and
// their F1: as few as need be, for each of the others would add less than leastAdded.
func (n *naming) tell(cluster int) (best guess) {
	all := n.candidates(cluster)
	sets := make([]members, len(all))
	for i := range all {
		sets[i] = n.where(&all[i])
	}
	guesses := []guess{{set: n.everybody()}}
	for _, kept := range []int{tried, triedPairs, 1} {
		guesses = n.longer(cluster, guesses, all, sets, kept)
		if len(guesses) == 0 {
			break
		}
		if refined := n.refined(cluster, guesses[0]); refined.f1 >= best.f1+leastAdded {
			best = refined
		}
	}
	slices.SortStableFunc(best.conditions, telling)
	return best
}

// longer are the guesses with one condition more that tell best.
func (n *naming) longer(cluster int, guesses []guess, all []Condition, sets []members, kept int) (longer []guess) {
	type step struct {
		guess, condition int
		f1               float64
	}
	var steps []step
	for g, guess := range guesses {
		for i := range all {
			if !slices.ContainsFunc(guess.conditions, all[i].repeats) {
				steps = append(steps, step{g, i, n.score(cluster, guess.set, sets[i])})
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.f1, a.f1) })
	for _, s := range steps[:min(len(steps), kept)] {
		before := guesses[s.guess]
		longer = append(longer, guess{append(slices.Clone(before.conditions), all[s.condition]), before.set.and(sets[s.condition]), s.f1})
	}
	return longer
}

// repeats says whether a condition is no other than one before: of a number, one range says it.
func (c *Condition) repeats(before Condition) bool {
	return c.trait == before.trait && (numeric(c.Type) || c.bit == before.bit)
}

// refined finds bounds and levels that tell better beside the other conditions.
func (n *naming) refined(cluster int, g guess) guess {
	g.conditions = slices.Clone(g.conditions)
	for range refinements {
		for i, c := range g.conditions {
			among, others := n.everybody(), slices.Delete(slices.Clone(g.conditions), i, i+1)
			for _, other := range others {
				among = among.and(n.where(&other))
			}
			better := func(other Condition, told, right float64) {
				if s := n.measure(cluster, told, right, 1); s > g.f1+leastGained && !slices.ContainsFunc(others, other.repeats) {
					g.conditions[i], g.f1 = other, s
				}
			}
			if numeric(c.Type) {
				n.bounds(cluster, c.trait, among, better)
			} else {
				n.levels(cluster, c.trait, among, better)
			}
		}
	}
	for i, c := range g.conditions {
		g.conditions[i].alone = n.score(cluster, n.everybody(), n.where(&c))
	}
	return g
}

// text is such as "age over 52", "income 20,000 to 45,000", "joined_at in the last 90 days",
// "renews_at over 20 days ahead" or "plan=pro (82 % v. 31 %)".
func (n *naming) text(cluster int, c Condition) string {
	path := clip(c.Path)
	if c.bit != 0 {
		g, all := &n.groups[cluster], &n.groups[n.Result.K]
		sign := "="
		if c.Not {
			sign = "≠"
		}
		return fmt.Sprintf("%s%s%s (%.0f %% v. %.0f %%)", path, sign, clip(c.Level),
			100*float64(g.held[c.trait][c.Level])/float64(max(g.users, 1)), 100*float64(all.held[c.trait][c.Level])/float64(max(all.users, 1)))
	}
	over, upTo := math.IsInf(c.Over, -1), math.IsInf(c.UpTo, 1)
	if c.Type == traits.TypeDate {
		return path + " " + n.when(c, over, upTo)
	}
	from, to := plain(c.Over), plain(c.UpTo)
	switch {
	case upTo:
		return fmt.Sprintf("%s over %s", path, from)
	case over:
		if least, told := n.least[c.trait]; told && least == c.UpTo { // nobody has less
			return fmt.Sprintf("%s %s", path, to)
		}
		return fmt.Sprintf("%s up to %s", path, to)
	}
	if known := n.whole[c.trait]; len(known) > 0 {
		from = plain(atLeast(known, c.Over))
	}
	if from == to {
		return fmt.Sprintf("%s %s", path, to)
	}
	return fmt.Sprintf("%s %s to %s", path, from, to)
}

// when is the part of a date's text behind its path; over and upTo say that it has no such bound.
func (n *naming) when(c Condition, over, upTo bool) string {
	from, to := days(c.Over), days(c.UpTo)
	switch {
	case upTo && c.Over < 0:
		return fmt.Sprintf("up to %s days ahead", from)
	case upTo:
		return fmt.Sprintf("over %s days ago", from)
	case over && c.UpTo < 0:
		return fmt.Sprintf("over %s days ahead", to)
	case over && n.ahead[c.trait]:
		return fmt.Sprintf("%s days ago or later", to)
	case over:
		return fmt.Sprintf("in the last %s days", to)
	case c.UpTo < 0:
		return fmt.Sprintf("%s to %s days ahead", to, from)
	case c.Over < 0:
		return fmt.Sprintf("%s days ago to %s days ahead", to, from)
	}
	return fmt.Sprintf("%s to %s days ago", from, to)
}

// days writes so many days, of which ago and ahead are said in words; few of them to a tenth.
func days(x float64) string {
	if x = math.Abs(x); x < 2 {
		return plain(math.Round(x*10) / 10)
	}
	return plain(math.Round(x))
}

// withWhole brings the bounds of whole numbers to such, which hold for the same users.
func (n *naming) withWhole(c Condition) Condition {
	if known := n.whole[c.trait]; c.bit == 0 && len(known) > 0 {
		c.Over, c.UpTo = atMost(known, c.Over), atMost(known, c.UpTo)
	}
	return c
}

// atMost is the largest number up to a bound that anybody has; the largest whole one where
// so few have it that it may not be told.
func atMost(sorted []float64, bound float64) float64 {
	end, _ := slices.BinarySearch(sorted, math.Nextafter(bound, math.Inf(1)))
	if from := end - leastHolders; from >= 0 && !math.IsInf(bound, 0) && sorted[from] == sorted[end-1] {
		return sorted[from]
	}
	return math.Floor(bound)
}

// atLeast is the least number over a bound that anybody has, likewise.
func atLeast(sorted []float64, bound float64) float64 {
	from, _ := slices.BinarySearch(sorted, math.Nextafter(bound, math.Inf(1)))
	if end := from + leastHolders; end <= len(sorted) && sorted[end-1] == sorted[from] {
		return sorted[from]
	}
	return math.Floor(bound) + 1
}

// plain writes a number without an exponent, where it is not huge.
func plain(x float64) string {
	if math.Abs(x) < 1e9 && (x == 0 || math.Abs(x) > 1e-4) {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}
