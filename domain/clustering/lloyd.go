package clustering

import (
	"context"
	"math"
)

// Lloyd's iterations stop after so many, or once the centers together move by
// less than this share of the mean variance of a dimension.
const (
	maxIterations = 300
	tolerance     = 1e-4
)

// nowhere is the cluster of a row that has none yet.
const nowhere = math.MaxUint16

// lloyd is Lloyd's algorithm with the bounds of Hamerly (2010): a row whose
// distance from its own center is certainly less than that from every other
// one is not looked at again.
type lloyd struct {
	points   Points
	threads  int
	centers  centers
	assigned []uint16
	upper    []float64 // of the distance from the row's own center
	lower    []float64 // of the distance from every other
	total    tally     // of all rows, as assigned

	half     []float64 // of the distance from a center to its nearest other
	moved    []float64 // how far each center went in the last step
	farthest int       // the center that went farthest,
	runnerUp float64   // and how far the next one went
}

// tally is what a set of rows adds to each cluster.
type tally struct {
	sums    centers
	counts  []int
	squares []float64 // sum of the squared distances, where they are wanted
	moved   int       // rows that changed their cluster
}

func newTally(k, dims int) *tally {
	return &tally{sums: newCenters(k, dims), counts: make([]int, k), squares: make([]float64, k)}
}

func (t *tally) clear() {
	clear(t.sums.at)
	clear(t.counts)
	clear(t.squares)
	t.moved = 0
}

func (t *tally) add(c int, x []float32) {
	t.counts[c]++
	sum := t.sums.row(c)
	for d, v := range x {
		sum[d] += float64(v)
	}
}

func (t *tally) remove(c int, x []float32) {
	t.counts[c]--
	sum := t.sums.row(c)
	for d, v := range x {
		sum[d] -= float64(v)
	}
}

func (t *tally) join(u *tally) {
	for i, v := range u.sums.at {
		t.sums.at[i] += v
	}
	for c, n := range u.counts {
		t.counts[c] += n
		t.squares[c] += u.squares[c]
	}
	t.moved += u.moved
}

// newLloyd takes the centers over and changes them.
func newLloyd(points Points, c centers, threads int) *lloyd {
	n, k := points.Len(), c.len()
	l := &lloyd{
		points: points, threads: threads, centers: c,
		assigned: make([]uint16, n), upper: make([]float64, n), lower: make([]float64, n),
		total: *newTally(k, points.Dims), half: make([]float64, k), moved: make([]float64, k),
	}
	for i := range l.assigned {
		l.assigned[i] = nowhere
	}
	return l
}

// run iterates until the centers stand still.
func (l *lloyd) run(ctx context.Context, still float64, progress func(done int)) error {
	for i := range maxIterations {
		progress(i)
		if err := l.assign(ctx); err != nil {
			return err
		}
		if l.total.moved == 0 {
			return nil
		}
		shift, err := l.update(ctx)
		if err != nil || shift <= still {
			return err
		}
	}
	return nil
}

// assign gives every row its nearest center.
func (l *lloyd) assign(ctx context.Context) error {
	l.total.moved = 0
	return inChunks(ctx, l.points.Len(), l.threads,
		func() *tally { return newTally(l.centers.len(), l.points.Dims) },
		func(t *tally, from, to int) {
			t.clear()
			for i := from; i < to && !stopped(ctx, i); i++ {
				l.place(t, i)
			}
		}, l.total.join)
}

func (l *lloyd) place(t *tally, i int) {
	x, own := l.points.row(i), l.assigned[i]
	if own != nowhere {
		l.upper[i] += l.moved[own]
		if int(own) == l.farthest {
			l.lower[i] -= l.runnerUp
		} else {
			l.lower[i] -= l.moved[l.farthest]
		}
		enough := max(l.lower[i], l.half[own])
		if l.upper[i] < enough {
			return
		}
		l.upper[i] = math.Sqrt(square(x, l.centers.row(int(own))))
		if l.upper[i] < enough {
			return
		}
	}
	best, first, second := l.centers.nearest(x)
	l.upper[i], l.lower[i] = math.Sqrt(first), math.Sqrt(second)
	if best == int(own) {
		return
	}
	if own != nowhere {
		t.remove(int(own), x)
	}
	t.add(best, x)
	t.moved++
	l.assigned[i] = uint16(best) //nolint:gosec // G115: at most MaxK
}

// update moves each center to the mean of its rows, and returns the sum of the
// squared distances that they went.
func (l *lloyd) update(ctx context.Context) (float64, error) {
	if err := l.fill(ctx); err != nil {
		return 0, err
	}
	var shift float64
	l.farthest, l.runnerUp = 0, 0
	mean := make([]float64, l.points.Dims)
	for c, n := range l.total.counts {
		l.moved[c] = 0
		if n == 0 {
			continue
		}
		for d, v := range l.total.sums.row(c) {
			mean[d] = v / float64(n)
		}
		step := squareBetween(mean, l.centers.row(c))
		copy(l.centers.row(c), mean)
		shift += step
		l.moved[c] = math.Sqrt(step)
	}
	for c, m := range l.moved {
		if m > l.moved[l.farthest] {
			l.farthest = c
		}
	}
	for c, m := range l.moved {
		if c != l.farthest {
			l.runnerUp = max(l.runnerUp, m)
		}
	}
	return shift, l.halve(ctx)
}

// halve measures the centers' distances from one another.
func (l *lloyd) halve(ctx context.Context) error {
	for c := range l.half {
		if err := ctx.Err(); err != nil {
			return err
		}
		nearest := math.Inf(1)
		for o := range l.half {
			if o != c {
				nearest = min(nearest, squareBetween(l.centers.row(c), l.centers.row(o)))
			}
		}
		l.half[c] = math.Sqrt(nearest) / 2
	}
	return nil
}

// fill gives each empty cluster the row that is farthest from its own center.
func (l *lloyd) fill(ctx context.Context) error {
	for c, n := range l.total.counts {
		if n > 0 {
			continue
		}
		far, distance := -1, 0.0
		for i, own := range l.assigned {
			if stopped(ctx, i) {
				return ctx.Err()
			}
			if l.total.counts[own] == 1 {
				continue
			}
			if s := square(l.points.row(i), l.centers.row(int(own))); s > distance {
				far, distance = i, s
			}
		}
		if far < 0 {
			return nil // all rows lie on their centers
		}
		l.total.remove(int(l.assigned[far]), l.points.row(far))
		l.total.add(c, l.points.row(far))
		l.assigned[far] = uint16(c)
		l.upper[far], l.lower[far] = 0, 0
	}
	return nil
}

// assignRows gives each row its nearest center, which stays where it is, and
// tallies the clusters with the squared distances. Assigned may be nil.
func assignRows(ctx context.Context, points Points, c centers, threads int, assigned []uint16) (*tally, error) {
	total := newTally(c.len(), points.Dims)
	err := inChunks(ctx, points.Len(), threads,
		func() *tally { return newTally(c.len(), points.Dims) },
		func(t *tally, from, to int) {
			t.clear()
			for i := from; i < to && !stopped(ctx, i); i++ {
				x := points.row(i)
				best, first, _ := c.nearest(x)
				t.add(best, x)
				t.squares[best] += first
				if assigned != nil {
					assigned[i] = uint16(best) //nolint:gosec // G115: at most MaxK
				}
			}
		}, total.join)
	return total, err
}
