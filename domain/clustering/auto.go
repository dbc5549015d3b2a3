package clustering

import (
	"context"
	"math"
)

// twoMargin is how many times as large as the best of more the silhouette of
// two clusters must be, for it overrates two: any gap between groups of groups
// brings that about. Where there truly were two groups it was 1.5 to 1.9 times
// as large, at every strength of the structure, and where there were three to
// eight 0.5 to 1.25 times.
const twoMargin = 1.3

// The number of clusters is chosen by fewer starts on fewer users: a silhouette
// needs no better.
const (
	autoRows   = 4096
	autoStarts = 4
)

// choose returns the number of clusters with the best silhouette, the smallest
// where some are equal.
func (f *fit) choose(ctx context.Context) (int, error) {
	eyes, err := f.look(ctx)
	if err != nil {
		return 0, err
	}
	seen := f.points.gather(eyes.rows)
	labels := make([]uint16, seen.Len())
	random := draws(f.Seed, forChoice)
	points := f.sample.gather(sample(&random, f.sample.Len(), autoRows))
	minSize := max(1, f.MinSize*points.Len()/f.points.Len())
	most := min(MaxAutoK, f.points.Len()/f.MinSize)
	done := 0
	var two, more int // the best k of those that leave two clusters after merging, or more
	ofTwo, ofMore := math.Inf(-1), math.Inf(-1)
	for k := 2; k <= most; k++ {
		found, err := f.tries(ctx, points, k, autoStarts, func() {
			done++
			f.Progress(Choosing, done, (most-1)*autoStarts)
		})
		if err != nil {
			return 0, err
		}
		c, _ := merge(found.tally, minSize)
		if _, err := assignRows(ctx, seen, c, 1, labels); err != nil {
			return 0, err
		}
		score := eyes.mean(labels, c.len())
		switch {
		case c.len() <= 2 && score > ofTwo:
			ofTwo, two = score, k
		case c.len() > 2 && score > ofMore:
			ofMore, more = score, k
		}
	}
	if ofTwo > max(ofMore, twoMargin*ofMore) {
		return two, nil
	}
	return more, nil
}
