package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// row is one line of the table.
type row struct {
	What    string    `json:"what"`
	Unit    string    `json:"unit"`
	Figures []float64 `json:"figures"` // one for each run
	Median  float64   `json:"median"`
	// AtMost and AtLeast are the target; zero where there is none.
	AtMost  float64 `json:"at_most,omitempty"`
	AtLeast float64 `json:"at_least,omitempty"`
	Reached *bool   `json:"reached,omitempty"` // nil where there is no target
}

// add notes the figures of a row. Its target holds for the median.
func (b *bench) add(r row) {
	r.Median = median(r.Figures)
	if r.AtMost != 0 || r.AtLeast != 0 {
		reached := (r.AtMost == 0 || r.Median <= r.AtMost) && r.Median >= r.AtLeast
		r.Reached = &reached
	}
	b.rows = append(b.rows, r)
}

// none notes how many there are of what there must not be any.
func (b *bench) none(what string, got int) {
	reached := got == 0
	b.rows = append(b.rows, row{
		What: what, Unit: "(wanted 0)", Figures: []float64{float64(got)}, Median: float64(got), Reached: &reached,
	})
}

func median(figures []float64) float64 {
	if len(figures) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(figures))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// quantile is that of sorted durations, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return math.Inf(1)
	}
	return ms(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (b *bench) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tMEDIAN\tFROM - TO\tRUNS\tTARGET\t")
	for _, r := range b.rows {
		target, mark := "", ""
		switch {
		case r.AtMost != 0:
			target = "<= " + number(r.AtMost)
		case r.AtLeast != 0:
			target = ">= " + number(r.AtLeast)
		}
		if r.Reached != nil {
			mark = map[bool]string{true: "reached", false: "MISSED"}[*r.Reached]
		}
		spread := ""
		if len(r.Figures) > 1 {
			spread = number(slices.Min(r.Figures)) + " - " + number(slices.Max(r.Figures))
		}
		fmt.Fprintf(table, "%s\t%s %s\t%s\t%d\t%s\t%s\n", r.What, number(r.Median), r.Unit, spread, len(r.Figures), target, mark)
	}
	_ = table.Flush() // what could not be printed is in the file
}

func number(x float64) string {
	switch {
	case x >= 100 || x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
