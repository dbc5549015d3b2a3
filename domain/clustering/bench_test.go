package clustering

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"kindred/domain/traits"
)

// processorTime is what this process has used.
func processorTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkBesideTheReference fits 100,000 users, tight groups and loose ones,
// and reports the processor time beside that of scikit-learn in the same run.
func BenchmarkBesideTheReference(b *testing.B) {
	for name, apart := range map[string]float64{"tight": 0.8, "loose": 0.3} {
		b.Run(name, func(b *testing.B) {
			set := madeUp(100_000, 8, apart, 0.6, 1)
			theirs := besideReference(b, set, apart > 0.5)
			var used time.Duration
			for b.Loop() {
				before := processorTime()
				mustFit(b, set.points, Options{K: 8, Seed: 1, Threads: 2})
				used += processorTime() - before
			}
			seconds := used.Seconds() / float64(b.N)
			b.ReportMetric(seconds, "cpu-s")
			b.ReportMetric(theirs.CPU, "reference-cpu-s")
			b.ReportMetric(seconds/theirs.CPU, "ratio")
		})
	}
}

// BenchmarkMillion fits a million users, with eight clusters, with as many as
// the silhouette favours, and just above the size from which it goes in batches.
func BenchmarkMillion(b *testing.B) {
	for _, apart := range []float64{0.8, 0.3} {
		set := madeUp(fullRows+1, 8, apart, 0.6, 1)
		for name, c := range map[string]struct{ n, k int }{"given": {fullRows, 8}, "chosen": {fullRows, 0}, "batches": {fullRows + 1, 8}} {
			b.Run(name, func(b *testing.B) {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				var r Result
				for b.Loop() {
					r = mustFit(b, Points{set.points.Data[:c.n*64], 64}, Options{K: c.k, Seed: 1, Threads: 2})
				}
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/(1<<20), "MiB")
				b.ReportMetric(adjustedRand(r.Assignments, set.classes[:c.n]), "ari")
				b.ReportMetric(float64(r.K), "clusters")
			})
		}
	}
}

// BenchmarkCancel reports how long a fit goes on after its context has ended.
func BenchmarkCancel(b *testing.B) {
	points := madeUp(100_000, 8, 0.3, 0.5, 1).points
	var took []time.Duration
	for b.Loop() {
		ctx, cancel := context.WithCancel(context.Background())
		var ended time.Time
		time.AfterFunc(time.Duration(7*len(took)%900+1)*time.Millisecond, func() {
			ended = time.Now()
			cancel()
		})
		if _, err := Fit(ctx, points, Options{Threads: 2}); !errors.Is(err, context.Canceled) {
			b.Fatal(err)
		}
		took = append(took, time.Since(ended))
	}
	b.ReportMetric(float64(slices.Max(took).Microseconds())/1000, "max-ms")
}

func BenchmarkSurvey(b *testing.B) {
	users := shoppers(b, 10_000, draws(1))
	q := Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: halves(len(users))}
	s := mustSurvey(b, q, users)
	q.Against = [][]Profile{{s.Profiles[0], s.Profiles[0]}, {s.Profiles[1], s.Profiles[1]}}
	for b.Loop() {
		mustSurvey(b, q, users)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(users)), "ns/user")
}
