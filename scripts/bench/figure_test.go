package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestASpreadHoldsTheMedianAndTheEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values []float64
		want   Spread
	}{
		"one":  {[]float64{3}, Spread{3, 3, 3}},
		"odd":  {[]float64{9, 1, 4}, Spread{4, 1, 9}},
		"even": {[]float64{8, 1, 2, 4}, Spread{3, 1, 8}},
	} {
		if diff := cmp.Diff(c.want, spreadOf(c.values)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestAPercentileIsAValueThatWasMeasured(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for name, c := range map[string]struct {
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		"median of a hundred": {hundred, 0.5, 50},
		"p99 of a hundred":    {hundred, 0.99, 99},
		"p99 of two":          {hundred[:2], 0.99, 2},
		"least":               {hundred, 0, 1},
		"none":                {nil, 0.99, 0},
	} {
		if got := percentile(c.sorted, c.q); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Both sides of a round are disturbed alike: the ratio of the medians would be
// 200 to 100.
func TestRatiosAreTakenRoundByRound(t *testing.T) {
	t.Parallel()
	f := measured("user", "GET user", "req/s", []float64{100, 200, 400}, []float64{50, 400, 100}, ratioAtLeast(2))
	if want := (Spread{2, 0.5, 4}); *f.Ratio != want {
		t.Errorf("%v, want %v", *f.Ratio, want)
	}
	if f.Mark() != "reached" {
		t.Errorf("a median of 2 has %s 2", f.Mark())
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	values := func(target *Target) Figure { return measured("", "", "", []float64{10}, nil, target) }
	ratio := func(target *Target) Figure { return measured("", "", "", []float64{10}, []float64{5}, target) }
	for name, c := range map[string]struct {
		figure Figure
		want   string
	}{
		"for information":  {values(nil), ""},
		"enough":           {values(atLeast(10)), "reached"},
		"too little":       {values(atLeast(10.1)), "missed"},
		"little enough":    {values(atMost(10)), "reached"},
		"too much":         {values(atMost(9.9)), "missed"},
		"ratio enough":     {ratio(ratioAtLeast(2)), "reached"},
		"ratio too little": {ratio(ratioAtLeast(2.1)), "missed"},
		"ratio too much":   {ratio(ratioAtMost(1.9)), "missed"},
		"no ratio":         {values(ratioAtLeast(1)), "missed"},
		"skipped":          {skipped("", "", "no tool"), "skipped"},
	} {
		if got := c.figure.Mark(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]string{
		0: "0", 0.00123: "0.00123", 0.25: "0.25", 1.5: "1.5", 12.345: "12.3", 100: "100", 999.4: "999",
		1234.5: "1,234", 1234567: "1,234,567", -4321: "-4,321",
	} {
		if got := number(value); got != want {
			t.Errorf("%v: %s, want %s", value, got, want)
		}
	}
}

func report(figures ...Figure) Report {
	return Report{Revision: "abc", Users: 1000, Clients: 10, Rounds: 5, Figures: figures}
}

func TestTheTableShowsTargetsAndMarks(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := printTable(&out, report(
		measured("user", "GET user", "req/s", []float64{8000, 9000, 10000}, []float64{10000, 10000, 10000}, ratioAtLeast(0.8)),
		measured("user", "GET user, p99", "ms", []float64{2}, nil, nil),
		skipped("reference", "fit", "python3-sklearn is not installed"),
	)); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), "\n")
	const want = `
               unit                 kindred  beside         ratio   target
GET user       req/s  9,000 (8,000..10,000)  10,000  0.9 (0.8..1)  ≥ 0.8 ×  reached
GET user, p99  ms                         2
fit                                                                         skipped: python3-sklearn is not installed
`
	if diff := cmp.Diff(want[1:], table); diff != "" {
		t.Error(diff)
	}
}

func TestAComparisonTellsChangesFromNoise(t *testing.T) {
	t.Parallel()
	before := report(
		measured("user", "GET user", "req/s", []float64{100, 110, 120}, []float64{200, 200, 200}, ratioAtLeast(0.8)),
		measured("user", "p99", "ms", []float64{5, 6}, nil, nil),
		measured("", "gone", "s", []float64{1}, nil, nil),
	)
	after := report(
		measured("user", "GET user", "req/s", []float64{210, 220, 230}, []float64{200, 200, 200}, ratioAtLeast(0.8)),
		measured("user", "p99", "ms", []float64{4, 5.5}, nil, nil),
		measured("", "new", "s", []float64{1}, nil, nil),
	)
	var out strings.Builder
	if err := printComparison(&out, before, after); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+100.0 %     0.55      1.1  +100.0 %", "missed → reached", "-13.6 % ~", "gone", "new"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "+100.0 % ~") {
		t.Errorf("a doubling is called noise:\n%s", &out)
	}
}

func TestAReportReadsAsItWasWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "bench.json")
	wrote := newReport(t.Context(), options{users: 10, clients: 2, rounds: 5, run: time.Second}, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	wrote.Figures = []Figure{
		measured("user", "GET user", "req/s", []float64{1, 2}, []float64{2, 2}, ratioAtLeast(0.8)),
		skipped("x", "y", "z"),
	}
	if err := wrote.write(file); err != nil {
		t.Fatal(err)
	}
	read, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wrote, read); diff != "" {
		t.Error(diff)
	}
}
