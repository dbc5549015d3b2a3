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
// cloud they differ by a tenth; a number that is off by two fifths costs a third.
const keepMargin = 1.2

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
	c.tried = append(c.tried, trial{k, at.len(), c.eyes.mean(c.labels, at.len())})
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
// equal; two clusters only by the margin.
func (c *chooser) best() trial {
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
		return two
	}
	return more
}

// choose returns the number of clusters with the best silhouette: of the coarse
// numbers, and then of those around the best of them. The number of the last run
// stays unless another is clearly better.
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
	at := slices.Index(coarse[:], c.best().k)
	for k := coarse[max(at-1, 0)]; k <= min(most, coarse[min(at+1, len(coarse)-1)]); k++ {
		if err := c.try(ctx, k); err != nil {
			return 0, err
		}
	}
	best := c.best()
	if f.Keep < 2 || f.Keep > most {
		return best.k, nil
	}
	if err := c.try(ctx, f.Keep); err != nil {
		return 0, err
	}
	for _, t := range c.tried {
		if t.k == f.Keep && best.score <= max(t.score, keepMargin*t.score) {
			return f.Keep, nil
		}
	}
	return best.k, nil
}
