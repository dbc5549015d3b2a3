package clustering

import "context"

// twoMargin is how many times as large as the best of more the silhouette of
// two clusters must be, for it overrates two: any gap between groups of groups
// brings that about. Where there truly were two groups it was 1.5 to 1.9 times
// as large, at every strength of the structure, and where there were three to
// eight 0.5 to 1.25 times.
const twoMargin = 1.3

// choose returns the centers of the try with the best silhouette, the one with
// the fewest clusters where some are equal.
func (f *fit) choose(ctx context.Context, found []try) (centers, error) {
	eyes, err := f.look(ctx)
	if err != nil {
		return centers{}, err
	}
	points := f.points.gather(eyes.rows)
	labels := make([]uint16, points.Len())
	minSize := max(1, f.MinSize*f.sample.Len()/f.points.Len())
	two, more := -1, -1
	scores := make([]float64, len(found))
	for i, t := range found {
		c, _ := merge(t.tally, minSize)
		if _, err := settle(ctx, points, c, 1, labels); err != nil {
			return centers{}, err
		}
		scores[i] = eyes.mean(labels, c.len())
		best := &more
		if c.len() <= 2 {
			best = &two
		}
		if *best < 0 || scores[i] > scores[*best] {
			*best = i
		}
	}
	if two < 0 || more >= 0 && scores[two] <= max(scores[more], twoMargin*scores[more]) {
		return found[more].centers, nil
	}
	return found[two].centers, nil
}
