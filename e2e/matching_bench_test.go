package e2e

import (
	"fmt"
	"net/http"
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
}
