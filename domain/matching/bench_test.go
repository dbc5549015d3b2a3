package matching

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkTop reports the median over many users beside the mean.
func BenchmarkTop(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		for _, missing := range []float64{0, 0.2} {
			b.Run(fmt.Sprintf("%d users, %.0f%% missing", n, missing*100), func(b *testing.B) {
				random := rand.New(rand.NewPCG(1, 1))
				people := crowd(b, random, n, missing)
				benchmarkTop(b, populate(learn(people, nil), people), people)
			})
		}
	}
	b.Run("census", func(b *testing.B) {
		people := census(b)
		benchmarkTop(b, populate(learn(people, nil), people), people)
	})
}

func benchmarkTop(b *testing.B, p *Population, people []person) {
	b.Helper()
	random := rand.New(rand.NewPCG(2, 2))
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := p.Top(Query{User: people[random.IntN(len(people))].id, Limit: 20}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkMillion searches a partition of a million users, and reports beside
// it what looking at everyone takes, how many cells are probed and how much of
// the exact answer is found.
func BenchmarkMillion(b *testing.B) {
	for _, c := range []struct {
		name    string
		missing float64
		write   func(*rand.Rand, float64) string
	}{
		{"10 mixed traits", 0, archetypes},
		{"10 mixed traits, 10% missing", 0.1, archetypes},
		{"1 number", 0, few(1)},
		{"2 numbers", 0, few(2)},
		{"3 numbers", 0, few(3)},
		{"structureless", 0, document},
		{"structureless, 20% missing", 0.2, document},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := multitude(b, 1_000_000, c.missing, c.write)
			start := time.Now()
			p.Partition(1)
			took := time.Since(start)
			random := rand.New(rand.NewPCG(2, 2))
			rows := someRows(p, random, 200)
			found := recall(p, rows, 20)
			start = time.Now()
			for _, row := range rows[:20] {
				p.view(nil).everywhere(row, Query{Limit: 20})
			}
			everyone := time.Since(start) / 20
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				if _, err := p.Top(Query{User: p.users[rows[i%len(rows)]], Limit: 20}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "queries/s")
			b.ReportMetric(float64(everyone.Microseconds()), "everyone-µs")
			b.ReportMetric(float64(p.partition.probes[0]), "probes")
			b.ReportMetric(found, "recall")
			b.ReportMetric(took.Seconds(), "partition-s")
		})
	}
}

func BenchmarkPut(b *testing.B) {
	people := crowd(b, rand.New(rand.NewPCG(1, 1)), 10_000, 0.1)
	p := populate(learn(people, nil), people)
	for i := 0; b.Loop(); i++ {
		p.Put(people[i%len(people)].id, people[(i*7)%len(people)].flat)
	}
}

func BenchmarkDistribution(b *testing.B) {
	people := crowd(b, rand.New(rand.NewPCG(1, 1)), 20_000, 0.1)
	p := populate(learn(people, nil), people)
	for b.Loop() {
		p.Distribution(1, nil)
	}
}
