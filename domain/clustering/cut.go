package clustering

import (
	"kindred/domain/traits"
)

// Nobody is the cluster of who was not in a run.
const Nobody = nowhere

// Division is how an earlier run divided its users. By it those of today are divided as
// that run would have: so what has become of people is told apart from what another cut
// makes of the same people.
type Division struct {
	Encoder   *traits.Encoder
	Centroids [][]float32
	Then      []uint16 // by user of today, the cluster that the earlier run put it into, or Nobody
}

// nearest is the cluster that a user of today would be in; room is memory to use again.
func (d Division) nearest(f traits.Flat, room []float32) (best int, vector []float32) {
	vector = d.Encoder.Append(room[:0], f)
	least := 0.0
	for c, at := range d.Centroids {
		if s := squaresAlong(vector, at, Span{Width: len(vector)}); c == 0 || s < least {
			best, least = c, s
		}
	}
	return best, vector
}

// Divide is the cluster that a user of today would be in.
func (d Division) Divide(f traits.Flat) int {
	best, _ := d.nearest(f, nil)
	return best
}

// Earlier is a cluster of an earlier run; Division is -1 where its division is not known.
type Earlier struct{ Division, Cluster int }

// Cut is what became of an earlier run's cluster, by that run's cut.
type Cut struct {
	Known bool    // false where the division is not
	Under Profile // of who would be in it now, in the bins of the earlier profile
	Same  Profile // of who was in it then, and is a user now, whatever cluster it would be in
	Turnover
}

// Turnover counts users of today.
type Turnover struct {
	Stayed int // were in the cluster, and would be now
	Left   int // were in it, and would now be in another
	Came   int // were in another, and would now be in it
	New    int // were not in the earlier run, and would be in it
	Both   int // would be in it, and are in the cluster of today's run
	Either int // would be in it, or are
}

// Members are those who were in the cluster, and those who would be now, among users of both runs.
func (t Turnover) Members() Members {
	return Members{Either: t.Stayed + t.Left + t.Came, Both: t.Stayed}
}

// Recut is the share of the same people that today's run has cut as the earlier one
// would have: 1 is all of them.
func (t Turnover) Recut() float64 { return Members{Either: t.Either, Both: t.Both}.Jaccard() }

// cutting divides the users of a survey by the cuts of earlier runs.
type cutting struct {
	cuts [][]Cut
	of   [][]cutOf // by division: what to count into
	room []float32
}

// cutOf is a cut that counts users.
type cutOf struct {
	*Cut
	earlier, cluster int // of the division, and of today's run
	under, same      []frame
}

func newCutting(s *survey) *cutting {
	c := &cutting{cuts: make([][]Cut, s.Result.K), of: make([][]cutOf, len(s.Divisions))}
	for j := range min(len(s.Earlier), s.Result.K) {
		c.cuts[j] = make([]Cut, len(s.Earlier[j]))
		for b, e := range s.Earlier[j] {
			if e.Division < 0 {
				continue
			}
			one := cutOf{Cut: &c.cuts[j][b], earlier: e.Cluster, cluster: j}
			blank := Profile{Schema: s.Schema.Version, AsOf: s.reader.asOf}
			one.Known = true
			one.Under, one.under = s.empty(blank, s.Against[j][b])
			one.Same, one.same = s.empty(blank, s.Against[j][b])
			c.of[e.Division] = append(c.of[e.Division], one)
		}
	}
	return c
}

// count counts the user at hand, of that place.
func (c *cutting) count(s *survey, place int, f traits.Flat) {
	now := int(s.Result.Assignments[place])
	for d, division := range s.Divisions {
		if len(c.of[d]) == 0 {
			continue
		}
		then := division.Then[place]
		var under int
		under, c.room = division.nearest(f, c.room)
		for _, one := range c.of[d] {
			was, would := int(then) == one.earlier, under == one.earlier
			one.count(then, was, would, now == one.cluster)
			one.Under.Total++
			one.Same.Total++
			if would {
				one.Under.Users++
				s.into(one.under)
			}
			if was {
				one.Same.Users++
				s.into(one.same)
			}
		}
	}
}

func (t *Turnover) count(then uint16, was, would, is bool) {
	switch {
	case was && would:
		t.Stayed++
	case was:
		t.Left++
	case would && then == Nobody:
		t.New++
	case would:
		t.Came++
	}
	if would || is {
		t.Either++
	}
	if would && is {
		t.Both++
	}
}
