package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFiguresArePickedFromWhatBenchmarksPrint(t *testing.T) {
	t.Parallel()
	r := goRow{row: "fit", metrics: []metric{
		{of: "/tight", metric: "cpu-s", beside: "reference-cpu-s", name: "tight", unit: "s", scale: 1, target: ratioAtMost(1.5)},
		{of: "/loose", metric: "ns/op", name: "loose", unit: "µs", scale: 1e-3, target: atMost(5)},
		{of: "/other", metric: "ns/op", name: "other", unit: "s", scale: 1},
	}}
	const out = `goos: linux
BenchmarkFit/tight-2         	       1	2000000000 ns/op	         2.000 cpu-s	         1.000 reference-cpu-s
BenchmarkFit/tight-2         	       1	4000000000 ns/op	         4.000 cpu-s	         4.000 reference-cpu-s
BenchmarkFit/very_loose      	  239486	      1701 ns/op	     512 B/op	       1 allocs/op
BenchmarkFit/loose           	  239486	      1700 ns/op	     512 B/op	       1 allocs/op
    known_test.go:32: no python3 with scikit-learn is installed
PASS
`
	want := []Figure{
		{
			Row: "fit", Name: "tight", Unit: "s", Value: &Spread{3, 2, 4}, Beside: &Spread{2.5, 1, 4}, Ratio: &Spread{1.5, 1, 2},
			Target: ratioAtMost(1.5),
		},
		{Row: "fit", Name: "loose", Unit: "µs", Value: &Spread{1.7, 1.7, 1.7}, Target: atMost(5)},
		{Row: "fit", Name: "other", Skipped: "no python3 with scikit-learn is installed"},
	}
	if diff := cmp.Diff(want, r.figures(out)); diff != "" {
		t.Error(diff)
	}
}

func TestEachFigureHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range goRows() {
		for _, m := range r.metrics {
			if seen[m.name] {
				t.Errorf("%q is the name of two", m.name)
			}
			seen[m.name] = true
		}
	}
}
