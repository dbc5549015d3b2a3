package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Spread is what several runs gave: their median, and how far they lie apart.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf needs at least one value. The median of an even number is the mean
// of the two in the middle.
func spreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// percentile of sorted values: the least one that a share q of all does not
// exceed (nearest rank). 0 where there are none.
func percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// ratios divides run by run: what disturbed both sides of a round cancels out.
func ratios(of, by []float64) []float64 {
	quotients := make([]float64, min(len(of), len(by)))
	for i := range quotients {
		quotients[i] = of[i] / by[i]
	}
	return quotients
}

// Figure is one line of the table.
type Figure struct {
	Row     string  `json:"row"`  // what --rows selects it by
	Name    string  `json:"name"` // unique
	Unit    string  `json:"unit"`
	Value   *Spread `json:"value,omitempty"`   // of kindred
	Beside  *Spread `json:"beside,omitempty"`  // of what it is held against
	Ratio   *Spread `json:"ratio,omitempty"`   // value to beside, run by run
	Target  *Target `json:"target,omitempty"`  // nil: for information
	Skipped string  `json:"skipped,omitempty"` // why there is no value
}

// Target is the bound that the median of a ratio, or else of a value, must
// keep.
type Target struct {
	OfRatio bool    `json:"of_ratio"`
	AtMost  bool    `json:"at_most"` // else: at least
	Bound   float64 `json:"bound"`
}

func (t Target) String() string {
	sign := "≥ "
	if t.AtMost {
		sign = "≤ "
	}
	if t.OfRatio {
		return sign + number(t.Bound) + " ×"
	}
	return sign + number(t.Bound)
}

func ratioAtLeast(bound float64) *Target { return &Target{OfRatio: true, Bound: bound} }
func ratioAtMost(bound float64) *Target {
	return &Target{OfRatio: true, AtMost: true, Bound: bound}
}
func atLeast(bound float64) *Target { return &Target{Bound: bound} }
func atMost(bound float64) *Target  { return &Target{AtMost: true, Bound: bound} }

// Mark says how a figure stands to its target: "reached", "missed", "skipped",
// or "" for one without a target.
func (f Figure) Mark() string {
	if f.Skipped != "" {
		return "skipped"
	}
	if f.Target == nil {
		return ""
	}
	of := f.Value
	if f.Target.OfRatio {
		of = f.Ratio
	}
	if of == nil {
		return "missed"
	}
	reached := of.Median >= f.Target.Bound
	if f.Target.AtMost {
		reached = of.Median <= f.Target.Bound
	}
	if reached {
		return "reached"
	}
	return "missed"
}

// measured is a figure of the values of several runs; beside may be nil.
func measured(row, name, unit string, values, beside []float64, target *Target) Figure {
	f := Figure{Row: row, Name: name, Unit: unit, Target: target}
	value := spreadOf(values)
	f.Value = &value
	if len(beside) > 0 {
		b, r := spreadOf(beside), spreadOf(ratios(values, beside))
		f.Beside, f.Ratio = &b, &r
	}
	return f
}

func skipped(row, name, reason string) Figure {
	return Figure{Row: row, Name: name, Skipped: reason}
}

// number writes a figure with three digits that count, and thousands apart.
func number(v float64) string {
	magnitude := math.Abs(v)
	if magnitude < 1000 {
		digits := 2
		if magnitude > 0 {
			digits = min(max(2-int(math.Floor(math.Log10(magnitude))), 0), 6)
		}
		text := strconv.FormatFloat(v, 'f', digits, 64)
		if strings.Contains(text, ".") {
			text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
		}
		return cmp.Or(text, "0")
	}
	text := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func (s *Spread) String() string {
	switch {
	case s == nil:
		return ""
	case s.Min == s.Max:
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Min), number(s.Max))
}
