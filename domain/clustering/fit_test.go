package clustering

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"kindred/testkit"

	"github.com/google/go-cmp/cmp"
)

func mustFit(t testing.TB, p Points, o Options) Result {
	t.Helper()
	return testkit.Must(Fit(context.Background(), p, o))(t)
}

func TestKnownClassesAreFound(t *testing.T) {
	least := map[string]float64{"wine": 0.87, "breast_cancer": 0.68, "digits": 0.63, "iris": 0.56}
	sets := knownClasses(t)
	for _, set := range sets {
		r := mustFit(t, set.points, Options{K: set.k, Threads: 2})
		ari := AdjustedRand(r.Assignments, set.classes)
		t.Logf("%s: %.3f", set.name, ari)
		if ari < least[set.name] {
			t.Errorf("%s: the adjusted Rand index is %.3f, not %.2f", set.name, ari, least[set.name])
		}
	}
	findK(t, sets)
}

func TestMixedGroupsAreFoundAsTightlyAsByTheReference(t *testing.T) {
	besideReference(t, madeUp(10_000, 8, 0.8, 0.6, 5), true)
	besideReference(t, madeUp(2_000, 8, 0.3, 0.6, 5), false)
}

// besideReference fits a made-up set and compares the inertia with that of
// scikit-learn, which it returns; the groups of a tight set must be found.
func besideReference(t testing.TB, set known, tight bool) reference {
	t.Helper()
	theirs := scikit(t, set.points, set.k, 1)
	r := mustFit(t, set.points, Options{K: set.k, Seed: 1, Threads: 2})
	ari := AdjustedRand(r.Assignments, set.classes)
	t.Logf("%s: adjusted Rand index %.4f, inertia %.5f of the reference's", set.name, ari, r.Inertia/theirs.Inertia)
	if tight && ari < 0.98 {
		t.Errorf("%s: the adjusted Rand index is %.4f", set.name, ari)
	}
	if r.Inertia > 1.005*theirs.Inertia {
		t.Errorf("%s: the inertia is %.1f, that of the reference %.1f", set.name, r.Inertia, theirs.Inertia)
	}
	return theirs
}

// findK asks that the number of clusters is right on six of seven sets: iris,
// wine and digits of the known classes, which have three or more, and four that
// are made up.
func findK(t *testing.T, sets []known) {
	t.Helper()
	for _, k := range []int{4, 5, 6, 8} {
		sets = append(sets, madeUp(600, k, 0.5, 0.6, uint64(k)))
	}
	right := 0
	for _, set := range sets {
		if set.k < 3 {
			continue
		}
		r := mustFit(t, set.points, Options{Seed: 1, Threads: 2})
		t.Logf("%s: %d of %d clusters", set.name, r.K, set.k)
		if r.K == set.k {
			right++
		}
	}
	if right < 6 {
		t.Errorf("the number of clusters is right on %d of 7 sets", right)
	}
}

func TestTwoGroupsAreTwoClusters(t *testing.T) {
	for _, apart := range []float64{0.3, 0.8} {
		set := madeUp(400, 2, apart, 0.6, 20)
		if r := mustFit(t, set.points, Options{Seed: 1}); r.K != 2 {
			t.Errorf("groups that are %.1f apart: %d clusters", apart, r.K)
		}
	}
}

func TestTheSameSeedGivesTheSameBitsOnAnyThreads(t *testing.T) {
	points := narrow(madeUp(5000, 4, 1, 0.5, 3).points, 4)
	want := mustFit(t, points, Options{K: 4, Seed: 7})
	for run := range 6 { // each number of threads twice
		if diff := cmp.Diff(want, mustFit(t, points, Options{K: 4, Seed: 7, Threads: 1 + run%3})); diff != "" {
			t.Fatalf("run %d on %d threads: %s", run, 1+run%3, diff)
		}
	}
	small := Points{points.Data[:4*300], 4}
	want = mustFit(t, small, Options{Seed: 7})
	if diff := cmp.Diff(want, mustFit(t, small, Options{Seed: 7, Threads: 2})); diff != "" {
		t.Fatalf("a chosen number of clusters on 2 threads: %s", diff)
	}
}

func TestBatchesComeNearToAllUsers(t *testing.T) {
	points := narrow(madeUp(17_000, 4, 0.8, 0.8, 5).points, 10)
	o := Options{K: 4, Seed: 1, Threads: 2, MinSize: 170, Progress: func(Phase, int, int) {}}
	f := newFit(points, o)
	found := testkit.Must(f.tries(context.Background(), f.sample, 4, 1, func() {}))(t)
	c := found.centers
	before := slices.Clone(c.at)
	if err := f.refineByBatches(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(before, c.at) {
		t.Error("the batches moved no center")
	}
	assigned := make([]uint16, points.Len())
	tally := testkit.Must(assignRows(context.Background(), points, c, 2, assigned))(t)
	inertia := 0.0
	for _, s := range tally.squares {
		inertia += s
	}
	if full := mustFit(t, points, Options{K: 4, Seed: 1}).Inertia; inertia > 1.005*full {
		t.Errorf("the inertia is %.1f, that of all users %.1f", inertia, full)
	}
}

// plainLloyd is the algorithm without bounds.
func plainLloyd(p Points, c centers) []uint16 {
	assigned := make([]uint16, p.Len())
	for range maxIterations {
		changed := 0
		t := newTally(c.len(), p.Dims)
		for i := range p.Len() {
			best, _, _ := c.nearest(p.row(i))
			if int(assigned[i]) != best {
				changed++
			}
			assigned[i] = uint16(best)
			t.add(best, p.row(i))
		}
		if changed == 0 {
			break
		}
		for k, n := range t.counts {
			for d, sum := range t.sums.row(k) {
				if n > 0 {
					c.row(k)[d] = sum / float64(n)
				}
			}
		}
	}
	return assigned
}

func TestBoundsChangeNothing(t *testing.T) {
	for seed := range uint64(3) {
		points := madeUp(1500, 5, 0.25, 0.5, seed).points
		c := testkit.Must(plusPlus(context.Background(), points, 7, draws(seed)))(t)
		l := newLloyd(points, centers{slices.Clone(c.at), c.dims}, 2)
		if err := l.run(context.Background(), 0, func(int) {}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plainLloyd(points, c), l.assigned); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
	}
}

func TestAnEmptyClusterTakesTheFarthestRow(t *testing.T) {
	points := Points{[]float32{0, 1, 2, 3, 100}, 1}
	l := newLloyd(points, centers{[]float64{0, -1e6}, 1}, 1)
	if err := l.run(context.Background(), 0, func(int) {}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint16{0, 0, 0, 0, 1}, l.assigned); diff != "" {
		t.Error(diff)
	}
}

func TestSmallClustersAreMerged(t *testing.T) {
	var p Points
	p.Dims = 2
	random := draws(1)
	for i := range 300 {
		at := [3][2]float64{{0, 0}, {50, 0}, {60, 0}}[min(i%2+i/290*2, 2)] // ten outliers near the second group
		p.Data = append(p.Data, float32(at[0]+gauss(&random)), float32(at[1]+gauss(&random)))
	}
	r := mustFit(t, p, Options{K: 3, Seed: 1})
	if r.K != 2 || slices.Min(r.Sizes) < 140 {
		t.Errorf("%d clusters of %v", r.K, r.Sizes)
	}
	if r = mustFit(t, p, Options{K: 3, Seed: 1, MinSize: 5}); r.K != 3 || r.Sizes[2] != 10 {
		t.Errorf("where five are enough: %d clusters of %v", r.K, r.Sizes)
	}
}

func TestOutliersHideNoGroups(t *testing.T) {
	set := madeUp(400, 2, 0.8, 0.8, 3)
	for d := range 64 {
		set.points.Data[17*64+d] = 100 // so that two clusters are this user and the others
	}
	if r := mustFit(t, set.points, Options{Seed: 1}); r.K != 2 || r.Silhouette < 0.2 {
		t.Errorf("%d clusters of %v, silhouette %.2f", r.K, r.Sizes, r.Silhouette)
	}
}

func TestRunsThatCannotSucceedSaySo(t *testing.T) {
	line := func(n, distinct int) Points {
		p := Points{Dims: 1}
		for i := range n {
			p.Data = append(p.Data, float32(i%distinct))
		}
		return p
	}
	for _, c := range []struct {
		points Points
		k      int
		code   string
	}{
		{line(39, 39), 0, NotEnoughUsers},
		{line(2100, 2100), 0, ""},
		{Points{}, 0, NoUsableTraits},
		{line(100, 1), 0, TooFewDistinct},
		{line(100, 4), 5, TooFewDistinct},
		{line(100, 6), 10, ""}, // of 100 users there are no more than 5 clusters
		{line(100, 4), 10, TooFewDistinct},
		{line(100, 2), 2, ""},
		{line(100, 2), 0, ""},
	} {
		_, err := Fit(context.Background(), c.points, Options{K: c.k})
		var failure *Failure
		switch errors.As(err, &failure); {
		case c.code == "" && err != nil:
			t.Errorf("%d users: %v", c.points.Len(), err)
		case c.code != "" && (failure == nil || failure.Code != c.code || !strings.HasSuffix(failure.Detail, ".")):
			t.Errorf("%d users: %v, not %s", c.points.Len(), err, c.code)
		}
	}
}

func TestMistakesAreNoFailures(t *testing.T) {
	fine := madeUp(100, 2, 1, 1, 1).points
	nan := Points{slices.Clone(fine.Data), 64}
	nan.Data[77] = float32(math.NaN())
	huge := Points{slices.Clone(fine.Data), 64}
	huge.Data[77] = 1e30
	for name, c := range map[string]struct {
		points Points
		o      Options
	}{
		"one cluster": {fine, Options{K: 1}}, "too many": {fine, Options{K: MaxK + 1}}, "no number": {nan, Options{}},
		"out of range": {huge, Options{}}, "half a row": {Points{fine.Data[:100], 64}, Options{}}, "no size": {fine, Options{MinSize: -1}},
	} {
		var failure *Failure
		if _, err := Fit(context.Background(), c.points, c.o); err == nil || errors.As(err, &failure) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// narrow keeps the first dimensions.
func narrow(p Points, dims int) Points {
	n := Points{Dims: dims}
	for i := range p.Len() {
		n.Data = append(n.Data, p.row(i)[:dims]...)
	}
	return n
}

// endingContext ends when it has been looked at so many times.
type endingContext struct {
	context.Context //nolint:containedctx // it is one
	looks           atomic.Int64
}

func (c *endingContext) Err() error {
	if c.looks.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func TestARunEndsWithItsContextAtAnyPoint(t *testing.T) {
	points := narrow(madeUp(4200, 3, 0.8, 0.6, 1).points, 4)
	count := &endingContext{Context: context.Background()}
	count.looks.Store(math.MaxInt64)
	mustFit := func(ctx context.Context, threads int) error {
		_, err := Fit(ctx, points, Options{Seed: 1, Threads: threads, MinSize: 1300})
		return err
	}
	if err := mustFit(count, 1); err != nil {
		t.Fatal(err)
	}
	all := math.MaxInt64 - count.looks.Load()
	for part := range int64(6) {
		threads := 1 + 2*int(part%2)
		c := &endingContext{Context: context.Background()}
		c.looks.Store(part * all / 6)
		if err := mustFit(c, threads); !errors.Is(err, context.Canceled) {
			t.Errorf("after %d/6, on %d threads: %v", part, threads, err)
		}
	}
}

func TestProgressIsToldInOrder(t *testing.T) {
	var told []string
	mustFit(t, madeUp(200, 2, 1, 1, 1).points, Options{K: 2, Threads: 3, Progress: func(p Phase, done, total int) {
		told = append(told, fmt.Sprintf("%s %d/%d", p, done, total))
	}})
	for i, want := range []string{"starting 1/10", "starting 2/10"} {
		if told[i] != want {
			t.Errorf("%q, not %q", told[i], want)
		}
	}
	if last := told[len(told)-1]; last != "settling 1/1" || !slices.Contains(told, "refining 0/300") {
		t.Errorf("%q", told)
	}
}

func TestAWarmRunKeepsItsClustersThroughChurn(t *testing.T) {
	set := madeUp(440, 4, 0.6, 0.8, 9)
	older := mustFit(t, Points{set.points.Data[:400*64], 64}, Options{Seed: 1})
	newer := mustFit(t, Points{set.points.Data[40*64:], 64}, Options{Seed: 101, Warm: older.Centroids})
	o := NewOverlap(older.K, newer.K)
	for i := 40; i < 400; i++ {
		o[older.Assignments[i]][newer.Assignments[i-40]]++
	}
	s := o.Succession()
	if len(s.Retired) > 0 || len(s.Splits)+len(s.Merges) > 0 || slices.Contains(s.Keeps, -1) {
		t.Fatalf("%+v", s)
	}
	for n, old := range s.Keeps {
		if j := o.Members(old, n).Jaccard(); j < 0.99 {
			t.Errorf("cluster %d: the Jaccard index is %.4f", n, j)
		}
	}
}

func TestTheSampleHasDifferentRowsOfAllPlaces(t *testing.T) {
	seen := make([]int, 100)
	for seed := range uint64(2000) {
		random := draws(seed)
		rows := sample(&random, 100, 10)
		if len(rows) != 10 || len(slices.Compact(slices.Clone(rows))) != 10 || !slices.IsSorted(rows) {
			t.Fatal(rows)
		}
		for _, r := range rows {
			seen[r]++
		}
	}
	if slices.Min(seen) < 140 || slices.Max(seen) > 260 {
		t.Errorf("200 times each, more or less: %v", seen)
	}
}

func TestSilhouetteOfFourPoints(t *testing.T) {
	f := &fit{points: Points{[]float32{0, 1, 10, 12}, 1}, Options: Options{Threads: 1}}
	eyes := testkit.Must(f.look(context.Background()))(t)
	want := ((1 - 1/11.0) + (1 - 1/10.0) + (1 - 2/9.5) + (1 - 2/11.5)) / 4
	if got := eyes.mean([]uint16{0, 0, 1, 1}, 2); math.Abs(got-want) > 1e-6 {
		t.Errorf("%.6f, not %.6f", got, want)
	}
	if got := eyes.mean([]uint16{0, 0, 0, 0}, 1); got != 0 {
		t.Errorf("one cluster: %v", got)
	}
}

func FuzzFit(f *testing.F) {
	f.Add([]byte("the same points over and over: the same points"), uint8(2), uint8(3), uint64(1))
	f.Add([]byte{0, 0, 0, 1, 255, 255, 255, 254, 9, 8, 7, 6, 5}, uint8(1), uint8(0), uint64(2))
	f.Fuzz(func(t *testing.T, raw []byte, dims, k uint8, seed uint64) {
		p := Points{Dims: int(dims%8) + 1}
		raw = raw[:min(len(raw), 800)]
		for len(raw) >= 2 {
			p.Data = append(p.Data, float32(int16(binary.LittleEndian.Uint16(raw)))/1000)
			raw = raw[2:]
		}
		p.Data = p.Data[:p.Len()*p.Dims]
		o := Options{K: int(k % 9), Seed: seed, MinSize: 3}
		r, err := Fit(context.Background(), p, o)
		var failure *Failure
		if err != nil {
			if !errors.As(err, &failure) && o.K != 1 {
				t.Fatal(err)
			}
			return
		}
		o.Threads = 3
		again := mustFit(t, p, o)
		if diff := cmp.Diff(r, again); diff != "" {
			t.Fatal(diff)
		}
		valid(t, p, r, o.MinSize)
	})
}

// valid checks what holds for every result.
func valid(t *testing.T, p Points, r Result, minSize int) {
	t.Helper()
	sizes := make([]int, r.K)
	var inertia float64
	for i, a := range r.Assignments {
		sizes[a]++
		c := newCenters(1, p.Dims)
		c.set(0, r.Centroids[a])
		inertia += square(p.row(i), c.at)
	}
	if len(r.Assignments) != p.Len() || !slices.Equal(sizes, r.Sizes) || r.K > 1 && slices.Min(sizes) < minSize {
		t.Fatalf("%d clusters of %v, said to be %v", r.K, sizes, r.Sizes)
	}
	if !slices.IsSortedFunc(r.Sizes, func(a, b int) int { return b - a }) {
		t.Fatalf("sizes %v", r.Sizes)
	}
	if math.Abs(inertia-r.Inertia) > 1e-4*(1+inertia) || r.Silhouette < -1 || r.Silhouette > 1 {
		t.Fatalf("inertia %v, said to be %v; silhouette %v", inertia, r.Inertia, r.Silhouette)
	}
}
