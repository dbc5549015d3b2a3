// Package clustering divides users into groups of like people, says what sets
// each group apart, follows the groups from run to run, and tells when one of
// them has become something else.
//
// The same points, options and seed give the same clusters, bit for bit, on
// one thread or on many and on every kind of processor: every sum is taken in
// one fixed order, and no product is fused with a sum. Nothing in here reads a
// clock, a database or a random source.
package clustering

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// The bounds of a run.
const (
	MaxK       = 256 // clusters that can be asked for
	MaxAutoK   = 50  // clusters that are chosen without being asked for
	MinMembers = 20  // of a cluster, however few users there are
)

// Points are users as vectors, side by side, in an order that is the same for
// the same users, such as by id. What is 0 in a vector is not known.
type Points struct {
	Data []float32 // Len() * Dims
	Dims int
}

// Len is the number of users.
func (p Points) Len() int {
	if p.Dims <= 0 {
		return 0
	}
	return len(p.Data) / p.Dims
}

func (p Points) row(i int) []float32 { return p.Data[i*p.Dims:][:p.Dims] }

// gather copies rows, in the order given.
func (p Points) gather(rows []int) Points {
	g := Points{Data: make([]float32, 0, len(rows)*p.Dims), Dims: p.Dims}
	for _, i := range rows {
		g.Data = append(g.Data, p.row(i)...)
	}
	return g
}

// Options are what a run may be told; the zero value is a good choice.
type Options struct {
	K        int         // clusters, at most MaxK and n/MinSize; 0 chooses by silhouette
	Seed     uint64      // of all that is drawn
	Threads  int         // at least 1; it changes nothing but the time
	MinSize  int         // users of a cluster; 0 is max(MinMembers, 1 % of the users)
	Warm     [][]float32 // the centroids of the last run, if it had the same dimensions
	Keep     int         // the clusters of the last run, which stay as many unless another number is clearly better; 0: there was none
	Progress func(Phase, int, int)
}

// Phase names what a run is at; its progress counts up to a total that may not
// be reached, because most phases end early.
type Phase string

// The phases of a run, in their order.
const (
	Choosing Phase = "choosing" // counts starts on a small sample, where K is 0
	Starting Phase = "starting" // counts starts on a sample
	Refining Phase = "refining" // counts iterations, on all users
	Settling Phase = "settling" // counts 1, after the last pass
)

// Result is a division of the users. Clusters are ordered by size, the largest
// first.
type Result struct {
	K           int
	Assignments []uint16    // the cluster of each user, 0..K-1
	Centroids   [][]float32 // the mean of each cluster
	Sizes       []int       // users of each cluster
	Spreads     []float64   // root mean square distance of a cluster's users from its centroid, with three digits: who knows all others finds no more of the last one
	Inertia     float64     // sum of the squared distances of all users from their centroids
	Silhouette  float64     // -1..1 on a sample of 2,000 users; near 0 where the groups are weak; 0 where K is 1
}

// Why a run cannot come to a result.
const (
	NotEnoughUsers = "not_enough_users"
	NoUsableTraits = "no_usable_traits"
	TooFewDistinct = "too_few_distinct"
)

// Failure says, in a sentence for the client, why its users cannot be divided.
type Failure struct {
	Code   string // one of the constants above
	Detail string
}

func (f *Failure) Error() string { return f.Code + ": " + f.Detail }

// Fit divides the users. It returns a [*Failure], the context's error within
// about 100 ms of its end, or an error that names a mistake of the caller. It
// needs less than 40 bytes for each user beside the points (of which it keeps
// nothing), and 64 MiB + 160 KiB for each dimension.
//
// Ten starts or more by k-means++ on a seeded sample are compared; the best is improved
// by breathing and goes through Lloyd's iterations over all users, or above a million of them
// through mini-batches. Clusters under the minimal size are merged into the
// nearest, so there may be fewer than were asked for.
func Fit(ctx context.Context, points Points, o Options) (Result, error) {
	o.Threads = max(o.Threads, 1)
	if o.MinSize == 0 {
		o.MinSize = max(MinMembers, (points.Len()+99)/100)
	}
	if o.Progress == nil {
		o.Progress = func(Phase, int, int) {}
	}
	if err := check(ctx, points, o); err != nil {
		return Result{}, err
	}
	f := newFit(points, o)
	k := min(o.K, points.Len()/o.MinSize)
	if o.K == 0 {
		var err error
		if k, err = f.choose(ctx); err != nil {
			return Result{}, err
		}
	}
	done, times := 0, max(starts, k)
	best, err := f.tries(ctx, f.sample, k, times, func() {
		done++
		f.Progress(Starting, done, times)
	})
	if err != nil {
		return Result{}, err
	}
	return f.finish(ctx, best.centers)
}

func check(ctx context.Context, points Points, o Options) error {
	n := points.Len()
	switch {
	case o.K < 0 || o.K > MaxK || o.K == 1:
		return fmt.Errorf("%d clusters cannot be asked for: 0 or 2 to %d", o.K, MaxK)
	case o.MinSize < 1:
		return fmt.Errorf("a minimal size of %d users", o.MinSize)
	case points.Dims < 0 || n*points.Dims != len(points.Data) && points.Dims > 0:
		return fmt.Errorf("%d values are no users of %d dimensions", len(points.Data), points.Dims)
	case points.Dims == 0:
		return &Failure{NoUsableTraits, "None of the traits can be used for clustering: each is free text, ignored, " +
			"sensitive, outside of the consent layer, or the same for all users."}
	case n < 2*o.MinSize:
		return &Failure{NotEnoughUsers, fmt.Sprintf("There are %d users to cluster, and at least %d are needed: "+
			"two clusters of %d.", n, 2*o.MinSize, o.MinSize)}
	}
	for i := range n {
		if stopped(ctx, i) {
			return ctx.Err()
		}
		for _, x := range points.row(i) {
			if math.IsNaN(float64(x)) || math.Abs(float64(x)) > maxCoordinate {
				return fmt.Errorf("user %d has a coordinate that is no number, or over %g", i, maxCoordinate)
			}
		}
	}
	wanted := max(min(o.K, n/o.MinSize), 2)
	distinct, err := countDistinct(ctx, points, wanted)
	if err != nil {
		return err
	}
	if distinct < wanted {
		return &Failure{TooFewDistinct, fmt.Sprintf("The %d users differ in so little that there are only %d different "+
			"combinations of traits, and %d clusters need at least as many.", n, distinct, wanted)}
	}
	return nil
}

// maxCoordinate keeps the squares of distances finite.
const maxCoordinate = 1e15

// countDistinct counts the different rows, up to enough.
func countDistinct(ctx context.Context, points Points, enough int) (int, error) {
	var found []int
rows:
	for i := range points.Len() {
		if stopped(ctx, i) {
			return 0, ctx.Err()
		}
		for _, j := range found {
			if slices.Equal(points.row(i), points.row(j)) {
				continue rows
			}
		}
		if found = append(found, i); len(found) == enough {
			break
		}
	}
	return len(found), nil
}

// stopped looks at the context at every 64th step of a loop.
func stopped(ctx context.Context, step int) bool { return step%64 == 0 && ctx.Err() != nil }
