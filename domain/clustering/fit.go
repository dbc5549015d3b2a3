package clustering

import (
	"cmp"
	"context"
	"math"
	"slices"

	"kindred/domain/traits"
)

// fit is one run.
type fit struct {
	points Points
	Options
	sample Points  // what starts are tried on
	still  float64 // the shift of all centers at which an iteration is the last
	deep   int     // centers of the first breaths; 0: starts are not improved
	eyes   *silhouettes
}

// Above fullRows users the iterations see batches of batchRows users.
const (
	sampleRows = 16_384
	fullRows   = 1_000_000
	batchRows  = 16_384
	batches    = 128
)

func newFit(points Points, o Options) *fit {
	f := &fit{points: points, Options: o, sample: points, deep: deepest}
	if n := points.Len(); n > sampleRows {
		random := draws(o.Seed, forSample)
		f.sample = points.gather(sample(&random, n, sampleRows))
	}
	f.still = tolerance * f.sample.variance()
	return f
}

// variance is the mean over the dimensions of the variance.
func (p Points) variance() float64 {
	mean, sum := make([]float64, p.Dims), 0.0
	n := float64(p.Len())
	for i := range p.Len() {
		for d, x := range p.row(i) {
			mean[d] += float64(x) / n
		}
	}
	for i := range p.Len() {
		sum += square(p.row(i), mean)
	}
	return sum / n / float64(p.Dims)
}

// finish takes the centers of the best start to all users, and merges clusters
// that are too small until there are none.
func (f *fit) finish(ctx context.Context, c centers) (Result, error) {
	assigned := make([]uint16, f.points.Len())
	for {
		if err := f.refine(ctx, c); err != nil {
			return Result{}, err
		}
		f.Progress(Settling, 0, 1)
		t, err := assignRows(ctx, f.points, c, f.Threads, assigned)
		if err != nil {
			return Result{}, err
		}
		merged, small := merge(t, f.MinSize)
		if !small {
			return f.result(ctx, c, t, assigned)
		}
		c = merged
	}
}

func (f *fit) refine(ctx context.Context, c centers) error {
	if f.points.Len() > fullRows {
		return f.refineByBatches(ctx, c)
	}
	return newLloyd(f.points, c, f.Threads).run(ctx, f.still, func(i int) { f.Progress(Refining, i, maxIterations) })
}

// refineByBatches is mini-batch k-means (Sculley 2010): each center becomes
// the mean of all rows that were drawn for it, those of the sample included.
func (f *fit) refineByBatches(ctx context.Context, c centers) error {
	seen, err := assignRows(ctx, f.sample, c, f.Threads, nil)
	if err != nil {
		return err
	}
	random := draws(f.Seed, forBatch)
	rows := make([]int, batchRows)
	for b := range batches {
		f.Progress(Refining, b, batches)
		for i := range rows {
			rows[i] = random.IntN(f.points.Len())
		}
		slices.Sort(rows)
		t, err := assignRows(ctx, f.points.gather(rows), c, f.Threads, nil)
		if err != nil {
			return err
		}
		for i, n := range t.counts {
			if n == 0 {
				continue
			}
			seen.counts[i] += n
			center, sum := c.row(i), t.sums.row(i)
			for d := range center {
				center[d] += (sum[d] - float64(float64(n)*center[d])) / float64(seen.counts[i])
			}
		}
	}
	return nil
}

// merge joins each cluster under the minimal size, the smallest first, with the
// one whose mean is nearest, and returns the means of what is left; false where
// there was nothing to do.
func merge(t *tally, minSize int) (means centers, small bool) {
	dims := t.sums.dims
	sizes := slices.Clone(t.counts)
	m := centers{slices.Clone(t.sums.at), dims}
	for c, n := range sizes {
		for d := range m.row(c) {
			m.row(c)[d] /= max(float64(n), 1)
		}
	}
	for len(sizes) > 1 && slices.Min(sizes) < minSize {
		small = true
		c := slices.Index(sizes, slices.Min(sizes))
		if n := float64(sizes[c]); n > 0 {
			to := m.nearestOther(c)
			whole := n + float64(sizes[to])
			for d, v := range m.row(c) {
				m.row(to)[d] += float64((v - m.row(to)[d]) * (n / whole))
			}
			sizes[to] += sizes[c]
		}
		sizes = slices.Delete(sizes, c, c+1)
		m.at = slices.Delete(m.at, c*dims, (c+1)*dims)
	}
	return m, small
}

func (c centers) nearestOther(i int) int {
	best, least := -1, math.Inf(1)
	for o := range c.len() {
		if s := squareBetween(c.row(i), c.row(o)); o != i && s < least {
			best, least = o, s
		}
	}
	return best
}

// result orders the clusters and measures them. The squares that t holds were
// taken from the centers; those from the means follow from the parallel axes.
func (f *fit) result(ctx context.Context, c centers, t *tally, assigned []uint16) (Result, error) {
	k := c.len()
	order := make([]int, k)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(t.counts[b], t.counts[a]), slices.Compare(c.row(a), c.row(b)))
	})
	r := Result{K: k, Assignments: assigned}
	renamed := make([]uint16, k)
	mean := make([]float64, c.dims)
	for i, old := range order {
		renamed[old] = uint16(i)
		n := float64(t.counts[old])
		centroid := make([]float32, c.dims)
		for d, v := range t.sums.row(old) {
			mean[d] = v / n
			centroid[d] = float32(mean[d])
		}
		squares := max(t.squares[old]-float64(n*squareBetween(mean, c.row(old))), 0)
		r.Centroids = append(r.Centroids, centroid)
		r.Sizes = append(r.Sizes, t.counts[old])
		spread := math.Sqrt(squares / n)
		r.Spreads = append(r.Spreads, traits.Rounded(spread, spread/100))
		r.Inertia += squares
	}
	for i, a := range assigned {
		assigned[i] = renamed[a]
	}
	eyes, err := f.look(ctx)
	if err != nil {
		return Result{}, err
	}
	labels := make([]uint16, len(eyes.rows))
	for i, row := range eyes.rows {
		labels[i] = assigned[row]
	}
	r.Silhouette = eyes.mean(labels, k)
	f.Progress(Settling, 1, 1)
	return r, nil
}
