package clustering

import (
	"cmp"
	"context"
	"math"
	"slices"

	"kindred/domain/splitmix"
)

// Breathing ends after so many breaths. It begins with so many centers at once, and
// takes one fewer after a breath that brought less than leastGain.
const (
	maxBreaths = 50
	deepest    = 5
	leastGain  = 1e-3 // of the inertia
	apart      = 0.02 // of a cluster's spread: how far a new center begins from the old one
)

// breathe is breathing k-means (Fritzke 2020): it adds centers where users are far from
// theirs, removes those that are missed least, and keeps what came of it where the
// inertia is less. So it leaves the ends of Lloyd's iterations in which one center stands
// between two groups and two centers share a third.
func (f *fit) breathe(ctx context.Context, points Points, best try, random *splitmix.Source) (try, error) {
	deep := min(f.deep, best.centers.len())
	for i := 0; i < maxBreaths && deep > 0; i++ {
		found, err := f.breath(ctx, points, best, deep, random)
		if err != nil {
			return best, err
		}
		if found.inertia < (1-leastGain)*best.inertia {
			best = found
		} else {
			deep--
		}
	}
	return best, nil
}

// breath adds so many centers and removes as many.
func (f *fit) breath(ctx context.Context, points Points, from try, deep int, random *splitmix.Source) (try, error) {
	grown, err := f.converge(ctx, points, from.grown(deep, random), f.Threads)
	if err != nil {
		return try{}, err
	}
	by, err := missed(ctx, points, grown.centers)
	if err != nil {
		return try{}, err
	}
	return f.converge(ctx, points, grown.centers.without(by, deep), f.Threads)
}

// grown are the centers with so many more, each beside one of those with the largest
// sums of squares.
func (t try) grown(more int, random *splitmix.Source) centers {
	c := centers{slices.Clone(t.centers.at), t.centers.dims}
	for _, i := range ordered(t.tally.squares)[t.centers.len()-more:] {
		spread := math.Sqrt(t.tally.squares[i] / float64(max(t.tally.counts[i], 1)*c.dims))
		for _, x := range t.centers.row(i) {
			c.at = append(c.at, x+float64(apart*spread*(float64(random.Float64())-0.5)))
		}
	}
	return c
}

// missed is by how much the inertia would grow without each center.
func missed(ctx context.Context, points Points, c centers) ([]float64, error) {
	by := make([]float64, c.len())
	for i := range points.Len() {
		if stopped(ctx, i) {
			return nil, ctx.Err()
		}
		own, first, second := c.nearest(points.row(i))
		by[own] += second - first
	}
	return by, nil
}

// without removes so many centers, those that are missed least. The neighbour that takes
// the users of one stays: without it they would be missed more.
func (c centers) without(missed []float64, fewer int) centers {
	removed, stays := make([]bool, c.len()), make([]bool, c.len())
	for _, i := range ordered(missed) {
		if stays[i] || fewer == 0 {
			continue
		}
		removed[i], stays[c.nearestOther(i)] = true, true
		fewer--
	}
	left := centers{dims: c.dims}
	for i, gone := range removed {
		if !gone {
			left.at = append(left.at, c.row(i)...)
		}
	}
	return left
}

// ordered are the places of values, the least first.
func ordered[T cmp.Ordered](values []T) []int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	return order
}
