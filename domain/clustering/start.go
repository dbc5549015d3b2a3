package clustering

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"

	"kindred/domain/splitmix"
)

// starts is how often k-means++ is tried, and at least once for each cluster: of many
// clusters, most starts join two and split a third.
const starts = 10

// try is where one start ended.
type try struct {
	centers centers
	inertia float64
	tally   *tally
}

// tries starts so often with k clusters, and returns the end with the least
// inertia, improved by breathing.
func (f *fit) tries(ctx context.Context, points Points, k, times int, done func()) (try, error) {
	all := make([]try, times)
	var mu sync.Mutex
	err := each(ctx, times, f.Threads, func(i int) (err error) {
		all[i], err = f.try(ctx, points, k, i)
		mu.Lock()
		defer mu.Unlock()
		done()
		return err
	})
	if err != nil {
		return try{}, err
	}
	best := slices.MinFunc(all, func(a, b try) int { return cmp.Compare(a.inertia, b.inertia) })
	random := draws(f.Seed, forStart, k, times)
	return f.breathe(ctx, points, best, &random)
}

// try makes one start. The first is made from the last run's centroids, where
// they are as many.
func (f *fit) try(ctx context.Context, points Points, k, number int) (try, error) {
	var c centers
	if number == 0 && len(f.Warm) == k && len(f.Warm[0]) == points.Dims {
		c = newCenters(k, points.Dims)
		for i, w := range f.Warm {
			c.set(i, w)
		}
	} else {
		var err error
		if c, err = plusPlus(ctx, points, k, draws(f.Seed, forStart, k, number)); err != nil {
			return try{}, err
		}
	}
	return f.converge(ctx, points, c, 1)
}

// converge moves the centers by Lloyd's iterations and tallies where they end.
func (f *fit) converge(ctx context.Context, points Points, c centers, threads int) (try, error) {
	if err := newLloyd(points, c, threads).run(ctx, f.still, func(int) {}); err != nil {
		return try{}, err
	}
	t, err := assignRows(ctx, points, c, threads, nil)
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
func plusPlus(ctx context.Context, points Points, k int, random splitmix.Source) (centers, error) {
	n := points.Len()
	c := newCenters(k, points.Dims)
	c.set(0, points.row(random.IntN(n)))
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
			row, _ := slices.BinarySearch(reaching, random.Float64()*sum)
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
