package projector_test

import (
	"context"
	"slices"
	"testing"
	"time"
)

// BenchmarkWriteThenRead is the time from an append's answer to a fresh read.
func BenchmarkWriteThenRead(b *testing.B) {
	w := newFixture(b)
	background(b, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	w.passed(b, "names_2", w.rename(b, acme, "warm"))
	var took []time.Duration
	for b.Loop() {
		w.rename(b, acme, "x")
		began := time.Now()
		if _, err := w.newest(b.Context(), acme, false); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkRebuild is the speed of a rebuild, in events.
func BenchmarkRebuild(b *testing.B) {
	w := newFixture(b)
	const events = 5000
	w.rename(b, acme, numbered("x", events)...)
	for b.Loop() {
		if err := w.runner("a").Rebuild(b.Context(), names{}, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(events*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
