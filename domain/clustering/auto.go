package clustering

import (
	"context"
	"math"
	"slices"
)

// twoMargin is how many times as large as the best of more the silhouette of
// two clusters must be, for it overrates two: any gap between groups of groups
// brings that about. Where there truly were two groups it was 1.5 to 1.9 times
// as large, at every strength of the structure, and where there were three to
// eight 0.5 to 1.25 times.
const twoMargin = 1.3

// keepMargin is how many times as large the silhouette of another number of
// clusters must be than that of the last run's, for it to take its place. Within one
// cloud they differ by a tenth; a number that is off by two fifths costs a third. A larger
// number at which gains end takes its place, too: where half of a group had moved far away, or
// others came there, the last number joined two groups to make room (60 worlds of four
// groups: the fifth was found in 55, not in none, and 10 clusters of 240 lost their ids, not 91).
const keepMargin = 1.2

// A silhouette is best where the largest gaps are: of eight groups that stand in three
// groups of groups it is that of three. So a larger number is chosen where what one
// cluster more gains of the inertia ends at once: twice what each of the next two gains,
// with a silhouette that is not much worse. Of 18 made-up worlds of 5 to 12 groups it
// found the number in 16 instead of 9 (mean ARI .74 to .85), and it changed
// nothing on Fisher's irises, wines, tumours, digits and census records, where gains
// fade.
const (
	kneeRatio  = 2.0
	coarseKnee = 1.5 // between the numbers that are tried first, of which one step may hold a part of it
	kneeScore  = 0.8 // of the best silhouette of more than two, and of that of the last run's number: .9 and more where a group had come, .68 in a crowd
	kneeNext   = 2   // clusters, over which the gain that follows is measured
)

// The number of clusters is chosen by fewer starts on fewer users: a silhouette
// needs no better. Many clusters get a start for each three.
const (
	autoRows   = 2048
	autoStarts = 4
)

// coarse are the numbers of clusters that are tried, each a quarter more than
// the one before from 12 on.
var coarse = [...]int{2, 3, 4, 5, 6, 8, 10, 12, 15, 19, 24, 30, 38, MaxAutoK}

// chooser tries numbers of clusters on some of the users.
type chooser struct {
	*fit
	made    Points // that starts are made on
	starts  func(k int) int
	minSize int // of a cluster of the sample
	eyes    *silhouettes
	seen    Points // what the eyes see
	labels  []uint16
	tried   []trial
	done    func()
}

// trial is what came of a number of clusters.
type trial struct {
	k     int // asked for
	found int // left after merging
	score float64

	inertia float64
}

func (f *fit) newChooser(ctx context.Context, rows int, starts func(k int) int, done func()) (*chooser, error) {
	eyes, err := f.look(ctx)
	if err != nil {
		return nil, err
	}
	random := draws(f.Seed, forChoice)
	c := &chooser{
		fit: f, starts: starts, eyes: eyes, done: done, seen: f.points.gather(eyes.rows),
		made: f.sample.gather(sample(&random, f.sample.Len(), rows)), labels: make([]uint16, len(eyes.rows)),
	}
	c.minSize = max(1, f.MinSize*c.made.Len()/f.points.Len())
	return c, nil
}

// try divides into k clusters, unless that was done.
func (c *chooser) try(ctx context.Context, k int) error {
	if slices.ContainsFunc(c.tried, func(t trial) bool { return t.k == k }) {
		return nil
	}
	found, err := c.tries(ctx, c.made, k, c.starts(k), c.done)
	if err != nil {
		return err
	}
	at, _ := merge(found.tally, c.minSize)
	if _, err := assignRows(ctx, c.seen, at, 1, c.labels); err != nil {
		return err
	}
	c.tried = append(c.tried, trial{k, at.len(), c.eyes.mean(c.labels, at.len()), found.inertia})
	return nil
}

// tryAll tries numbers up to most.
func (c *chooser) tryAll(ctx context.Context, numbers []int, most int) error {
	for _, k := range numbers {
		if k > most {
			break
		}
		if err := c.try(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// best is the trial with the best silhouette, the smallest number where some are
// equal; two clusters only by the margin. more is the best of more than two.
func (c *chooser) best() (best, more trial) {
	two, more := trial{score: math.Inf(-1)}, trial{score: math.Inf(-1)}
	for _, t := range c.tried {
		of := &more
		if t.found <= 2 {
			of = &two
		}
		if t.score > of.score || t.score == of.score && t.k < of.k {
			*of = t
		}
	}
	if two.score > max(more.score, twoMargin*more.score) {
		return two, more
	}
	return more, more
}

// of is the trial of a number of clusters.
func (c *chooser) of(k int) (t trial, ok bool) {
	i := slices.IndexFunc(c.tried, func(t trial) bool { return t.k == k })
	if i < 0 {
		return t, false
	}
	return c.tried[i], true
}

// gain is what each cluster more gains of the inertia, from one trial to another.
func gain(from, to trial) float64 {
	return (from.inertia - to.inertia) / (max(from.inertia, math.SmallestNonzeroFloat64) * float64(to.k-from.k))
}

// knee says whether gains end at a number of clusters, given those before and after it.
// more is the best of more than two: groups that stand alone make the silhouette of
// two large, however many the others are.
func (c *chooser) knee(more trial, before, at, after int, ratio float64) (t trial, ends bool) {
	t, there := c.of(at)
	less, lower := c.of(before)
	next, higher := c.of(after)
	return t, there && lower && higher && t.found == t.k && t.score >= kneeScore*more.score && gain(less, t) >= ratio*gain(t, next)
}

// ends tries the numbers around k, up to most, and says whether gains end at it.
func (c *chooser) ends(ctx context.Context, more trial, k, most int) (t trial, ends bool, err error) {
	if err := c.tryAll(ctx, []int{k - 1, k, k + kneeNext}, most); err != nil {
		return t, false, err
	}
	t, ends = c.knee(more, k-1, k, k+kneeNext, kneeRatio)
	return t, ends, nil
}

// beyond is the largest number of clusters, above the best one, at which gains end; the
// best one where there is none.
func (c *chooser) beyond(ctx context.Context, best, more trial, most int) (trial, error) {
	for i := len(coarse) - 2; i > 0; i-- {
		if coarse[i+1] <= best.k {
			break
		}
		if _, near := c.knee(more, coarse[i-1], coarse[i], coarse[i+1], coarseKnee); !near {
			continue
		}
		for k := min(coarse[i+1], most-kneeNext); k > max(coarse[i-1], best.k); k-- {
			if t, ends, err := c.ends(ctx, more, k, most); ends || err != nil {
				return t, err
			}
		}
	}
	return best, nil
}

// choose returns the number of clusters with the best silhouette, of the coarse
// numbers and then of those around the best of them, or a larger one at which gains end. The number of the last run
// stays unless another is clearly better, or gains end at a larger one.
func (f *fit) choose(ctx context.Context) (int, error) {
	most := min(MaxAutoK, f.points.Len()/f.MinSize)
	tries := 0
	starts := func(k int) int { return max(autoStarts, k/3) }
	total := 0
	for _, k := range coarse {
		total += starts(k)
	}
	c, err := f.newChooser(ctx, autoRows, starts, func() {
		tries++
		f.Progress(Choosing, min(tries, total), total)
	})
	if err != nil {
		return 0, err
	}
	if err := c.tryAll(ctx, coarse[:], most); err != nil {
		return 0, err
	}
	best, _ := c.best()
	at := slices.Index(coarse[:], best.k)
	for k := coarse[max(at-1, 0)]; k <= min(most, coarse[min(at+1, len(coarse)-1)]); k++ {
		if err := c.try(ctx, k); err != nil {
			return 0, err
		}
	}
	best, more := c.best()
	if best, err = c.beyond(ctx, best, more, most); err != nil {
		return 0, err
	}
	if f.Keep < 2 || f.Keep > most {
		return best.k, nil
	}
	if err := c.try(ctx, f.Keep); err != nil {
		return 0, err
	}
	kept, _ := c.of(f.Keep)
	if best.score > max(kept.score, keepMargin*kept.score) {
		return best.k, nil
	}
	if best.k > f.Keep && best.score >= kneeScore*kept.score {
		if _, ends, err := c.ends(ctx, more, best.k, most); ends || err != nil {
			return best.k, err
		}
	}
	return f.Keep, nil
}
