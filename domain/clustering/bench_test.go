package clustering

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
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
// the silhouette favours, and just above the size from which it goes in
// batches. It reports the most memory that the process had meanwhile, the
// users' points included.
func BenchmarkMillion(b *testing.B) {
	for name, apart := range map[string]float64{"tight": 0.8, "loose": 0.3} {
		b.Run(name, func(b *testing.B) {
			set := madeUp(fullRows+1, 8, apart, 0.6, 1)
			for name, c := range map[string]struct{ n, k int }{"given": {fullRows, 8}, "chosen": {fullRows, 0}, "batches": {fullRows + 1, 8}} {
				b.Run(name, func(b *testing.B) {
					forgetPeak(b)
					var r Result
					for b.Loop() {
						r = mustFit(b, Points{set.points.Data[:c.n*64], 64}, Options{K: c.k, Seed: 1, Threads: 2})
					}
					b.ReportMetric(peakMiB(b), "peak-MiB")
					b.ReportMetric(AdjustedRand(r.Assignments, set.classes[:c.n]), "ari")
					b.ReportMetric(float64(r.K), "clusters")
				})
			}
		})
	}
}

// forgetPeak has the most memory of this process counted from now on.
func forgetPeak(b *testing.B) {
	b.Helper()
	debug.FreeOSMemory()
	const fromNowOn = "5" // proc_pid_clear_refs(5)
	if err := os.WriteFile("/proc/self/clear_refs", []byte(fromNowOn), 0); err != nil {
		b.Skip("this system does not say how much memory a process had")
	}
}

// peakMiB is the most memory that was resident.
func peakMiB(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib / 1024
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

// BenchmarkJudge judges 100,000 users with 20 numbers and 10 categories of six levels, on
// one thread, as on a machine with two processors; cpu-s is what a quiet one takes.
func BenchmarkJudge(b *testing.B) {
	const users, numbers, categories, levels, groups = 100_000, 20, 10, 6, 8
	random := draws(9)
	points := Points{Dims: numbers + categories*levels}
	var spans []Span
	for d := range numbers {
		spans = append(spans, Span{d, 1, true, false})
	}
	for c := range categories {
		spans = append(spans, Span{numbers + c*levels, levels, false, false})
	}
	at := make([]float32, groups*points.Dims)
	for i := range at {
		at[i] = float32(gauss(&random))
	}
	t := Trial{Traits: spans, K: groups, Seed: 1, Threads: 1}
	row := make([]float32, points.Dims)
	for i := range users {
		group := at[i%groups*points.Dims:]
		clear(row)
		for d := range numbers {
			row[d] = group[d] + float32(gauss(&random))
		}
		for c := range categories {
			row[numbers+c*levels+random.IntN(1+i%groups)%levels] = 0.5
		}
		points.Data, t.Assigned = append(points.Data, row...), append(t.Assigned, uint16(i%groups))
	}
	forgetPeak(b)
	before := processorTime()
	for b.Loop() {
		drawn := DrawJudged(users, points.Dims, 1)
		sampled := t
		sampled.Points, sampled.Assigned = points.gather(drawn), nil
		for _, i := range drawn {
			sampled.Assigned = append(sampled.Assigned, t.Assigned[i])
		}
		if j, err := Judge(context.Background(), sampled); err != nil || j.Verdict != Groups {
			b.Fatal(j, err)
		}
	}
	b.ReportMetric((processorTime()-before).Seconds()/float64(b.N), "cpu-s")
	b.ReportMetric(peakMiB(b), "peak-MiB")
}
