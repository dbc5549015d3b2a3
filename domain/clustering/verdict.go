package clustering

import (
	"context"
	"errors"
	"math"

	"kindred/domain/traits"
)

// Verdict says whether the clusters of a run are more than a run finds where
// there are none.
type Verdict string

// The verdicts.
const (
	Groups    Verdict = "groups"    // users stand in groups, with fewer of them between
	Continuum Verdict = "continuum" // users differ together in several traits, but gradually, or come out otherwise at other seeds: the borders could be elsewhere
	None      Verdict = "none"      // no trait says anything of another: the clusters cut through one cloud
)

// What users are judged by.
const (
	MostJudged   = 2_000   // users of the sample
	leastJudged  = 500     // where they have very many dimensions
	judgedValues = 1 << 20 // values of the sample

	nullDraws      = 39 // of each null
	nullStarts     = 1
	bootstrapDraws = 50
	redrawnStarts  = 3 // of a draw of the bootstrap, the clusters themselves among them
	otherSeeds     = 3
	atMostByChance = 0.05
)

// judged are the numbers of clusters that are tried, for the users and each draw
// alike; a silhouette hardly depends on the next one, nor on the last steps of centers.
var judged = [...]int{2, 3, 4, 6, 8, 12, 18, 27, 40}

const judgedTolerance = 1e-2 // instead of tolerance

// stableRand is the adjusted Rand index from which two runs say the same of the users.
const stableRand = 0.95

// Trial is a run that is to be judged.
type Trial struct {
	Points   Points // of a sample of the users in the clusters, see DrawJudged
	Traits   []Span
	Assigned []uint16 // the cluster of each, 0..K-1
	K        int
	Asked    int // the number of clusters that the run was asked for; 0: it chose
	MinSize  int // users of the sample that make a cluster; 0: as Options.MinSize
	Seed     uint64
	Threads  int // at least 1; it changes nothing but the time
}

// Judgement is what came of a trial.
type Judgement struct {
	Verdict   Verdict
	Shuffled  Null      // users of whom no trait says anything of another
	Cloud     *Null     // users of one cloud; nil where the verdict is None
	Agreement *float64  // the least adjusted Rand index of the clusters with what runs of other seeds make of the users; nil where they are one cloud
	Stability []float64 // of each cluster, the mean Jaccard index with what it is found as among users drawn from the same; NaN where none of it is in the sample
}

// Null compares users with some that were drawn so that there are no groups, at the
// number of clusters at which the users stand out most.
type Null struct {
	P          float64 // the share, among the draws and the users, of those that stand out as much
	K          int
	Silhouette float64 // of the users
	Expected   float64 // the mean over the draws
}

// DrawJudged draws the users, of n in the clusters, by whom a run is judged.
func DrawJudged(n, dims int, seed uint64) []int {
	random := draws(seed, forJudged)
	return sample(&random, n, min(MostJudged, max(leastJudged, judgedValues/max(1, dims))))
}

// Spans are the dimensions of each trait that is encoded.
func Spans(s traits.Schema, e *traits.Encoder) []Span {
	of := map[string]traits.Type{}
	for _, t := range s.Traits {
		of[t.Path] = t.Type
	}
	var spans []Span
	for d, dimension := range e.Dimensions() {
		if d > 0 && e.Dimensions()[d-1].Path == dimension.Path {
			spans[len(spans)-1].Width++
		} else {
			spans = append(spans, Span{d, 1, numeric(of[dimension.Path]), of[dimension.Path] == traits.TypeSet})
		}
	}
	return spans
}

// Judge compares the silhouettes of the users, at several numbers of clusters, with those
// of users that were drawn from two nulls. How much somebody stands out is the
// largest distance from the mean over users and draws, in standard deviations, at any of the
// numbers: for each draw it is found as for the users, so that the share of draws that
// stand out as much is an exact p-value (a Monte Carlo test; Barnard 1963). Users who are
// more than one cloud are Groups only if they stand out as such at the number of clusters of the
// run, too, for others than these may make them do so, and if runs of other seeds find the same
// ones, their number included (Lange et al. 2004; von Luxburg 2010): else there may be groups, but not
// surely these. Then Judge finds out how stable each cluster is by the bootstrap. It
// returns the context's error within about 100 ms of its end, and needs 32 MiB and five
// times the points for each thread.
func Judge(ctx context.Context, t Trial) (Judgement, error) {
	j := Judgement{Verdict: None}
	n := newNull(t.Points, t.Traits, t.Seed)
	users, err := t.silhouettes(ctx, t.Points, 0)
	if err != nil {
		return j, err
	}
	if j.Shuffled, _, err = t.compare(ctx, users, n.shuffled); err != nil {
		return j, err
	}
	if j.Shuffled.P <= atMostByChance {
		cloud, own, err := t.compare(ctx, users, n.cloud)
		if err != nil {
			return j, err
		}
		j.Cloud, j.Verdict = &cloud, Continuum
		switch {
		case cloud.P >= atMostByChance:
		case own.P > atMostByChance: // there may be groups, but these clusters are not they
			j.Cloud = &own
		default:
			agreement, err := t.agreement(ctx)
			if err != nil {
				return j, err
			}
			if j.Agreement = &agreement; agreement >= stableRand {
				j.Verdict = Groups
			}
		}
	}
	j.Stability, err = t.stability(ctx)
	return j, err
}

// silhouettes are those at each of the numbers of clusters.
func (t Trial) silhouettes(ctx context.Context, points Points, number int) (of []float64, err error) {
	f := newFit(points, t.options(number))
	f.still, f.deep = f.still*judgedTolerance/tolerance, 0
	c, err := f.newChooser(ctx, points.Len(), func(int) int { return nullStarts }, func() {})
	if err == nil {
		err = c.tryAll(ctx, judged[:], max(judged[0], points.Len()/f.MinSize))
	}
	if err != nil {
		return nil, err
	}
	for _, tried := range c.tried {
		of = append(of, tried.score)
	}
	return of, nil
}

func (t Trial) options(number int) Options {
	random := draws(t.Seed, forJudged, number)
	return Options{
		Seed: random.Uint64(), Threads: 1, MinSize: max(MinMembers, t.Points.Len()/100), Progress: func(Phase, int, int) {},
	}
}

// compare draws from a null. Own is the comparison at the number of clusters, of those that are
// tried, that is the nearest to the run's.
func (t Trial) compare(ctx context.Context, users []float64, draw func(seed uint64, number int) Points) (found, own Null, err error) {
	all := make([][]float64, 1+nullDraws)
	all[0] = users
	err = each(ctx, nullDraws, t.Threads, func(i int) (err error) {
		all[1+i], err = t.silhouettes(ctx, draw(t.Seed, i), 1+i)
		return err
	})
	if err != nil {
		return found, own, err
	}
	most, here := make([]float64, len(all)), make([]float64, len(all))
	for n := range users {
		mean, deviation := spread(all, n)
		null := Null{K: judged[n], Silhouette: users[n], Expected: mean + (mean-users[n])/nullDraws} // the users do not count
		for i, of := range all {
			here[i] = of[n]
			out := (of[n] - mean) / max(deviation, 1e-9)
			if n > 0 && out <= most[i] {
				continue
			}
			if most[i] = out; i == 0 {
				found = null
			}
		}
		if n == 0 || t.K*t.K > judged[n-1]*judged[n] {
			own = null
			own.P = asGreat(here)
		}
	}
	found.P = asGreat(most)
	return found, own, nil
}

// asGreat is the share of values that are as great as the first, which is among them.
func asGreat(values []float64) float64 {
	as := 0
	for _, v := range values {
		if v >= values[0] {
			as++
		}
	}
	return float64(as) / float64(len(values))
}

// spread is the mean and the standard deviation of the values at one place.
func spread(all [][]float64, place int) (mean, deviation float64) {
	n := float64(len(all))
	for _, of := range all {
		mean += of[place] / n
	}
	for _, of := range all {
		off := of[place] - mean
		deviation += float64(off*off) / n
	}
	return mean, math.Sqrt(deviation)
}

// agreement divides the sample as the run has divided all, at other seeds.
func (t Trial) agreement(ctx context.Context) (float64, error) {
	least := 1.0
	for i := range otherSeeds {
		random := draws(t.Seed, forAgreement, i)
		again, err := Fit(ctx, t.Points, Options{K: t.Asked, MinSize: t.MinSize, Seed: random.Uint64(), Threads: t.Threads})
		if _, failed := errors.AsType[*Failure](err); failed {
			return 0, nil // the sample alone would not have been divided
		}
		if err != nil {
			return 0, err
		}
		least = min(least, AdjustedRand(t.Assigned, again.Assignments))
	}
	return least, nil
}

// stability draws users from the sample, with replacement, divides them anew, and
// compares (Hennig 2007). The clusters themselves are among the starts, so that a
// start that came to a worse end does not count against them.
func (t Trial) stability(ctx context.Context) ([]float64, error) {
	whole, err := t.tally(ctx)
	if err != nil {
		return nil, err
	}
	var warm [][]float32
	for c, n := range whole.counts {
		mean := make([]float32, t.Points.Dims)
		for d, v := range whole.sums.row(c) {
			mean[d] = float32(v / float64(max(n, 1)))
		}
		warm = append(warm, mean)
	}
	found := make([][]float64, bootstrapDraws)
	err = each(ctx, bootstrapDraws, t.Threads, func(i int) (err error) {
		found[i], err = t.bootstrap(ctx, warm, i)
		return err
	})
	if err != nil {
		return nil, err
	}
	stability := make([]float64, t.K)
	for c := range stability {
		sum, times := 0.0, 0
		for _, of := range found {
			if !math.IsNaN(of[c]) {
				sum += of[c]
				times++
			}
		}
		stability[c] = sum / float64(times) // NaN where there was none
	}
	return stability, nil
}

func (t Trial) tally(ctx context.Context) (*tally, error) {
	whole := newTally(t.K, t.Points.Dims)
	for i, c := range t.Assigned {
		if stopped(ctx, i) {
			return nil, ctx.Err()
		}
		whole.add(int(c), t.Points.row(i))
	}
	return whole, nil
}

// bootstrap is the Jaccard index of each cluster with what it is found as in one
// draw; NaN where nobody of it was drawn.
func (t Trial) bootstrap(ctx context.Context, warm [][]float32, number int) ([]float64, error) {
	random := draws(t.Seed, forBootstrap, number)
	rows := make([]int, t.Points.Len())
	for i := range rows {
		rows[i] = random.IntN(len(rows))
	}
	points := t.Points.gather(rows)
	o := t.options(0)
	o.Seed, o.Warm = random.Uint64(), warm
	f := newFit(points, o)
	f.deep = 0
	ended, err := f.tries(ctx, points, t.K, redrawnStarts, func() {})
	if err != nil {
		return nil, err
	}
	centers, _ := merge(ended.tally, min(o.MinSize, points.Len()/t.K))
	assigned := make([]uint16, len(rows))
	if _, err := assignRows(ctx, points, centers, 1, assigned); err != nil {
		return nil, err
	}
	overlap := NewOverlap(t.K, centers.len())
	for i, row := range rows {
		overlap[t.Assigned[row]][assigned[i]]++
	}
	found := make([]float64, t.K)
	for c := range found {
		found[c] = math.NaN()
		if sum(overlap[c]) == 0 {
			continue
		}
		found[c] = 0
		for other := range centers.len() {
			found[c] = max(found[c], overlap.Members(c, other).Jaccard())
		}
	}
	return found, nil
}

func sum(of []int) (all int) {
	for _, n := range of {
		all += n
	}
	return all
}
