package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"kindred/testkit"
)

// BenchmarkMatches asks for the 20 best of 100,000 through the API, with and
// without recording them, and reports how long the first request waited for
// the population to be read.
func BenchmarkMatches(b *testing.B) {
	a := startService(b).signUp()
	a.populate(100_000)
	began := time.Now()
	ask := func(i int, record bool) answer {
		return a.send("POST", fmt.Sprintf("/api/v1/users/ext:e%d/matches", i*997%100_000), fmt.Sprintf(`{"limit":20,"record":%t}`, record))
	}
	testkit.Eventually(b, "the population is in memory", func() bool { return ask(0, false).Status == http.StatusOK })
	cold := time.Since(began)
	for _, record := range []bool{false, true} {
		b.Run(fmt.Sprintf("record=%t", record), func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				if got := ask(i, record); got.Status != http.StatusOK {
					b.Fatalf("%d: %s", got.Status, got.Body)
				}
				took = append(took, time.Since(start))
			}
			report(b, took)
			b.ReportMetric(cold.Seconds(), "cold-s")
		})
	}
	// In turns, so that what else goes on disturbs both alike.
	b.Run("filtered", func(b *testing.B) {
		filtered := func(i int) answer {
			return a.send("POST", fmt.Sprintf("/api/v1/users/ext:e%d/matches", i*997%100_000), `{"limit":20,"record":false,"filter":"traits.plan == \"p1\""}`)
		}
		began := time.Now()
		testkit.Eventually(b, "the filter is judged by the segments", func() bool { return filtered(0).Status == http.StatusOK })
		known := time.Since(began)
		took := [2][]time.Duration{}
		for i := 0; b.Loop(); i++ {
			for with, ask := range []func() answer{func() answer { return ask(i, false) }, func() answer { return filtered(i) }} {
				start := time.Now()
				if got := ask(); got.Status != http.StatusOK {
					b.Fatalf("%d: %s", got.Status, got.Body)
				}
				took[with] = append(took[with], time.Since(start))
			}
		}
		report(b, took[1])
		slices.Sort(took[0])
		b.ReportMetric(float64(took[0][len(took[0])/2].Microseconds())/1e3, "without-p50-ms")
		b.ReportMetric(known.Seconds(), "known-s")
	})
}
