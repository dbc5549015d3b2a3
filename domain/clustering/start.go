package clustering

import (
	"context"
	"math"
	"slices"
	"sync"
)

// starts is how often k-means++ is tried for each number of clusters.
const starts = 10

// start returns the centers that the sample favours, of the number of clusters
// that was asked for or is best.
func (f *fit) start(ctx context.Context) (centers, error) {
	most := f.points.Len() / f.MinSize
	if f.K > 0 {
		found, err := f.tries(ctx, min(f.K, most), min(f.K, most))
		if err != nil {
			return centers{}, err
		}
		return found[0].centers, nil
	}
	found, err := f.tries(ctx, 2, min(MaxAutoK, most))
	if err != nil {
		return centers{}, err
	}
	return f.choose(ctx, found)
}

// try is where one start ended.
type try struct {
	centers centers
	inertia float64
	tally   *tally
}

// tries returns the best start for each k in least..most.
func (f *fit) tries(ctx context.Context, least, most int) ([]try, error) {
	all := make([]try, (most-least+1)*starts)
	errs := make([]error, len(all))
	var mu sync.Mutex
	done := 0
	err := each(ctx, len(all), f.Threads, func(i int) {
		all[i], errs[i] = f.try(ctx, least+i/starts, i%starts)
		mu.Lock()
		defer mu.Unlock()
		done++
		f.Progress(Starting, done, len(all))
	})
	if err != nil {
		return nil, err
	}
	var best []try
	for i := range all {
		switch {
		case errs[i] != nil:
			return nil, errs[i]
		case i%starts == 0:
			best = append(best, all[i])
		case all[i].inertia < best[len(best)-1].inertia:
			best[len(best)-1] = all[i]
		}
	}
	return best, nil
}

// try makes one start on the sample. The first is made from the last run's
// centroids, where they are as many.
func (f *fit) try(ctx context.Context, k, number int) (try, error) {
	var c centers
	if number == 0 && len(f.Warm) == k && len(f.Warm[0]) == f.points.Dims {
		c = newCenters(k, f.points.Dims)
		for i, w := range f.Warm {
			c.set(i, w)
		}
	} else {
		var err error
		if c, err = plusPlus(ctx, f.sample, k, draws(f.Seed, forStart, k, number)); err != nil {
			return try{}, err
		}
	}
	if err := newLloyd(f.sample, c, 1).run(ctx, f.still, func(int) {}); err != nil {
		return try{}, err
	}
	t, err := settle(ctx, f.sample, c, 1, nil)
	if err != nil {
		return try{}, err
	}
	found := try{centers: c, tally: t}
	for _, s := range t.squares {
		found.inertia += s
	}
	return found, nil
}

// plusPlus chooses k rows as centers by greedy k-means++ (Arthur and
// Vassilvitskii 2007): each is the best of 2 + ln k rows that are drawn with
// the squares of their distances from the centers so far as odds.
func plusPlus(ctx context.Context, points Points, k int, random splitMix) (centers, error) {
	n := points.Len()
	c := newCenters(k, points.Dims)
	c.set(0, points.row(random.below(n)))
	nearest := make([]float64, n)  // squared distance of each row from the centers so far
	reaching := make([]float64, n) // running sum of nearest
	for i := range nearest {
		if stopped(ctx, i) {
			return c, ctx.Err()
		}
		nearest[i] = square(points.row(i), c.row(0))
	}
	trials := 2 + int(math.Log(float64(k)))
	drawn := newCenters(trials, points.Dims)
	distances := make([]float64, trials*n) // of each row from each row drawn
	for next := 1; next < k; next++ {
		sum := 0.0
		for i, s := range nearest {
			sum += s
			reaching[i] = sum
		}
		for t := range trials {
			row, _ := slices.BinarySearch(reaching, random.unit()*sum)
			drawn.set(t, points.row(min(row, n-1)))
		}
		if err := measure(ctx, points, drawn, distances); err != nil {
			return c, err
		}
		best, least := 0, math.Inf(1)
		for t := range trials {
			left := 0.0
			for i, s := range distances[t*n:][:n] {
				left += min(s, nearest[i])
			}
			if left < least {
				best, least = t, left
			}
		}
		copy(c.row(next), drawn.row(best))
		for i, s := range distances[best*n:][:n] {
			nearest[i] = min(s, nearest[i])
		}
	}
	return c, nil
}

// measure writes the squared distance of row i from center t to at[t*n+i].
func measure(ctx context.Context, points Points, from centers, at []float64) error {
	n, k := points.Len(), from.len()
	for i := range n {
		if stopped(ctx, i) {
			return ctx.Err()
		}
		x := points.row(i)
		for t := 0; t < k; t += 4 {
			d0, d1, d2, d3 := squares(x, from.row(t), from.row(min(t+1, k-1)), from.row(min(t+2, k-1)), from.row(min(t+3, k-1)))
			for j, d := range [4]float64{d0, d1, d2, d3} {
				if t+j < k {
					at[(t+j)*n+i] = d
				}
			}
		}
	}
	return nil
}
