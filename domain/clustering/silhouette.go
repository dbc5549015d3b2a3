package clustering

import (
	"context"
	"math"
)

// silhouetteRows is how many users the silhouette is measured on.
const silhouetteRows = 2000

// silhouettes measures the silhouette (Rousseeuw 1987) of several divisions of
// the same sample.
type silhouettes struct {
	rows      []int     // of the points
	distances []float32 // between each two of them
}

// look draws the sample, at the first call.
func (f *fit) look(ctx context.Context) (*silhouettes, error) {
	if f.eyes != nil {
		return f.eyes, nil
	}
	random := draws(f.Seed, forSilhouette)
	rows := sample(&random, f.points.Len(), silhouetteRows)
	m := len(rows)
	s := &silhouettes{rows: rows, distances: make([]float32, m*m)}
	points := f.points.gather(rows)
	err := each(ctx, m, f.Threads, func(i int) error {
		x := points.row(i)
		own := newCenters(1, points.Dims)
		own.set(0, x)
		for j := range i {
			d := float32(math.Sqrt(square(points.row(j), own.at)))
			s.distances[i*m+j], s.distances[j*m+i] = d, d
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	f.eyes = s
	return s, nil
}

// mean is the mean silhouette of the sample under the labels 0..k-1; a member
// that is alone in its cluster counts as 0, and so does all where k is 1.
func (s *silhouettes) mean(labels []uint16, k int) float64 {
	m := len(labels)
	counts := make([]int, k)
	for _, l := range labels {
		counts[l]++
	}
	var total float64
	sums := make([]float64, k)
	for i, own := range labels {
		if counts[own] < 2 {
			continue
		}
		clear(sums)
		for j, d := range s.distances[i*m:][:m] {
			sums[labels[j]] += float64(d)
		}
		within, beside := sums[own]/float64(counts[own]-1), math.Inf(1)
		for c, n := range counts {
			if c != int(own) && n > 0 {
				beside = min(beside, sums[c]/float64(n))
			}
		}
		if larger := max(within, beside); larger > 0 && !math.IsInf(larger, 1) {
			total += (beside - within) / larger
		}
	}
	return total / float64(m)
}
