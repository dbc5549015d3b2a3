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
