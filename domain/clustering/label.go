package clustering

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"kindred/domain/traits"
)

// What sets a cluster apart.
const (
	leastEffect   = 0.3
	leastSure     = 3   // standard errors from chance, too: of 400 traits of chance one is that far
	mostEffect    = 1e9 // in which more ends: beside 1e-300 of most, 1e50 of some would be infinite, which JSON has not
	leastHolders  = 10  // of a level that may be named
	maxDistinct   = 10  // distinctions that are kept
	maxLabelRunes = 40  // of a path, and of a level
)

// Label names a cluster by the conditions, three at most, that tell best who is in it.
type Label struct {
	Text         string  // unlike that of every other cluster of the run
	F1           float64 // of the conditions as a guess of who is in the cluster: the harmonic mean of precision and recall
	Conditions   []Condition
	Distinctions []Distinction
}

// Distinction is one trait that a cluster has otherwise than everybody; the
// largest effect comes first, then the order of the paths.
type Distinction struct {
	Path   string      `json:"path"`
	Type   traits.Type `json:"type"`
	Level  string      `json:"level,omitempty"` // of a type that has levels
	Effect float64     `json:"effect"`          // in robust standard deviations; its sign is that of Here - All
	Here   float64     `json:"here"`            // the median (see traits.SharedQuantile; of a date in days before the as-of), or the share that holds the level, of the cluster
	All    float64     `json:"all"`             // and of everybody
}

// labels names all clusters.
func (s *survey) labels() []Label {
	scales := s.scales()
	taken := map[string]bool{}
	labels, names := make([]Label, 0, s.Result.K), newNaming(s)
	for c := range s.Result.K {
		told := names.tell(c)
		said := make([]string, len(told.conditions))
		for i, condition := range told.conditions {
			told.conditions[i] = names.withWhole(condition)
			said[i] = names.text(c, told.conditions[i])
		}
		text := name(said, taken)
		taken[text] = true
		labels = append(labels, Label{Text: text, F1: told.f1, Conditions: told.conditions, Distinctions: s.distinctions(c, scales)})
	}
	return labels
}

// scales are those of everybody's numbers, by trait.
func (s *survey) scales() []scale {
	scales := make([]scale, len(s.reader.traits))
	for i, t := range s.reader.traits {
		if numeric(t.Type) {
			known, _ := s.groups[s.Result.K].sorted(i)
			scales[i] = measureScale(known)
		}
	}
	return scales
}

// distinctions are what sets a cluster apart from everybody.
func (s *survey) distinctions(cluster int, scales []scale) []Distinction {
	var found []Distinction
	for i, t := range s.reader.traits {
		d := Distinction{Path: t.Path, Type: t.Type}
		var sure float64 // standard errors, were the cluster drawn from everybody
		if numeric(t.Type) {
			sure = d.byMedian(&s.groups[cluster], i, scales[i])
		} else {
			sure = d.byLevel(&s.groups[cluster], &s.groups[s.Result.K], i)
		}
		if math.Abs(d.Effect) >= leastEffect && sure >= leastSure {
			found = append(found, d)
		}
	}
	slices.SortStableFunc(found, func(a, b Distinction) int { return cmp.Compare(math.Abs(b.Effect), math.Abs(a.Effect)) })
	return found[:min(len(found), maxDistinct)]
}

// name is a text of the conditions that is not taken, and counts where it is.
func name(said []string, taken map[string]bool) string {
	text := "mixed" // there is nothing by which users could be told apart
	if len(said) > 0 {
		text = strings.Join(said, ", ")
	}
	for n := 1; ; n++ {
		numbered := text
		if n > 1 {
			numbered = fmt.Sprintf("%s (%d)", text, n)
		}
		if !taken[numbered] {
			return numbered
		}
	}
}

// clip makes a client's text fit for a line.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > maxLabelRunes {
		return string(runes[:maxLabelRunes-1]) + "…"
	}
	return text
}

// scale is the middle and the width of everybody's numbers, and the shares on both sides of the middle.
type scale struct{ median, spread, below, above float64 }

func measureScale(sorted []float64) scale {
	if len(sorted) == 0 {
		return scale{}
	}
	s := scale{median: traits.SharedQuantile(sorted, 0.5), spread: (traits.SharedQuantile(sorted, 0.75) - traits.SharedQuantile(sorted, 0.25)) / 1.349}
	s.below, s.above = sides(sorted, s.median)
	if s.spread > 0 {
		return s
	}
	mean, sum, n := 0.0, 0.0, float64(len(sorted))
	for _, x := range sorted {
		mean += x / n
	}
	for _, x := range sorted {
		sum += (x - mean) * (x - mean) / n
	}
	s.spread = math.Sqrt(sum)
	return s
}

// sides are the shares of numbers below a middle and above it.
func sides(sorted []float64, middle float64) (below, above float64) {
	first, _ := slices.BinarySearch(sorted, middle)
	last, _ := slices.BinarySearch(sorted, math.Nextafter(middle, math.Inf(1)))
	n := float64(len(sorted))
	return float64(first) / n, (n - float64(last)) / n
}

// byMedian goes by the sign test, which asks nothing of how the numbers are spread: how many of the cluster are
// above everybody's median, and how many below.
func (d *Distinction) byMedian(g *group, trait int, all scale) (sure float64) {
	known, _ := g.sorted(trait)
	if len(known) < leastHolders || all.spread == 0 {
		return 0
	}
	d.Here, d.All = traits.SharedQuantile(known, 0.5), all.median
	d.Effect = min(max((d.Here-d.All)/all.spread, -mostEffect), mostEffect)
	below, above := sides(known, all.median)
	return math.Abs((above-below)-(all.above-all.below)) * math.Sqrt(float64(len(known))/(all.above+all.below))
}

// byLevel finds the level that sets the cluster apart the most; where one
// and another less do, such as the two of a flag, the one that is held more.
func (d *Distinction) byLevel(g, all *group, trait int) (sure float64) {
	for _, level := range slices.Sorted(maps.Keys(all.held[trait])) {
		holders, n := g.held[trait][level], all.held[trait][level]
		share, here := float64(n)/float64(all.users), float64(holders)/float64(g.users)
		if holders < leastHolders || share == 1 || level == traits.OtherLevels {
			continue
		}
		found := Distinction{d.Path, d.Type, level, (here - share) / math.Sqrt(share*(1-share)), here, share}
		if found.before(*d) {
			*d = found
		}
	}
	return math.Abs(d.Effect) * math.Sqrt(float64(g.users))
}

func (d Distinction) before(e Distinction) bool {
	const equal = 1e-9 // the two levels of a flag have the same effect but for rounding
	if difference := math.Abs(d.Effect) - math.Abs(e.Effect); math.Abs(difference) > equal {
		return difference > 0
	}
	return d.Effect > e.Effect
}
