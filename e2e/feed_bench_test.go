package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"kindred/testkit"
)

// BenchmarkFeed reads first pages, and those that follow, of feeds out of
// 100,000 users.
func BenchmarkFeed(b *testing.B) {
	a := startService(b).signUp()
	a.populate(100_000)
	testkit.Eventually(b, "the population is in memory", func() bool { return a.get("/api/v1/users/ext:e0/feed").Status == http.StatusOK })
	for _, limit := range []int{20, 50} {
		first := fmt.Sprintf("/feed?limit=%d", limit)
		b.Run(fmt.Sprintf("first page of %d", limit), func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				if got := a.get(fmt.Sprintf("/api/v1/users/ext:e%d%s", i*997%100_000, first)); got.Status != http.StatusOK {
					b.Fatalf("%d: %s", got.Status, got.Body)
				}
				took = append(took, time.Since(start))
			}
			report(b, took)
		})
		b.Run(fmt.Sprintf("next page of %d", limit), func(b *testing.B) {
			next := "ext:e1" + first + "&cursor=" + *a.feed("ext:e1" + first).NextCursor
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				a.feed(next)
				took = append(took, time.Since(start))
			}
			report(b, took)
		})
	}
}

func report(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "p99-ms")
}
