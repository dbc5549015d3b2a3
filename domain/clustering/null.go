package clustering

import (
	"cmp"
	"math"
	"slices"

	"kindred/domain/splitmix"
)

// A null is users as they would be if there were no groups: each trait, or block of
// traits that say one thing, is spread exactly as among the true users, and what one trait says of another is gone, or
// is what a single elongated cloud of users would have.
type null struct {
	points  Points
	blocks  []block
	numbers []int       // the dimensions of numbers, in their order
	sorted  [][]float32 // of each of numbers, its values
	factor  [][]float64 // the lower triangle whose square is the correlation of numbers
}

// Span is the dimensions of one trait.
type Span struct {
	First, Width int
	Number       bool // of one dimension, in which more is more
}

// block is traits that say one thing, which are dealt out together: mostly a single one.
type block []Span

// number says whether it is a number that goes with others by degrees.
func (b block) number() bool { return len(b) == 1 && b[0].Number }

func newNull(points Points, traits []Span, seed uint64) *null {
	u := &null{points: points, blocks: blocks(points, traits)}
	n := points.Len()
	random := draws(seed, forScores)
	normal := make([]float64, n)
	for i := range normal {
		normal[i] = gaussian(&random)
	}
	slices.Sort(normal)
	scores := make([][]float64, 0, len(traits))
	for _, b := range u.blocks {
		if !b.number() {
			continue
		}
		t := b[0]
		column := make([]float32, n)
		for i := range column {
			column[i] = points.row(i)[t.First]
		}
		scores = append(scores, normalScores(column, normal))
		slices.Sort(column)
		u.numbers, u.sorted = append(u.numbers, t.First), append(u.sorted, column)
	}
	u.factor = cholesky(correlations(scores))
	return u
}

// normalScores are the ranks of the values as places of the normal distribution
// (van der Waerden), the mean place where some are equal, made so long that the
// product of two such columns is the correlation of the normal variables that
// they would be steps of: equal values hide 1 - |scores|^2/n of theirs.
func normalScores(column []float32, normal []float64) []float64 {
	n := len(column)
	order := ordered(column)
	scores, squares, all := make([]float64, n), 0.0, 0.0
	for from := 0; from < n; {
		to, sum := from, 0.0
		for ; to < n && column[order[to]] == column[order[from]]; to++ {
			sum += normal[to]
			all += float64(normal[to] * normal[to])
		}
		mean := sum / float64(to-from)
		for _, i := range order[from:to] {
			scores[i] = mean
		}
		squares += float64(float64(to-from) * float64(mean*mean))
		from = to
	}
	if squares == 0 {
		return scores
	}
	// r = sum/(|a||b|) is the correlation of the steps; that of what they are steps
	// of is r/(sqrt(|a|^2/all) sqrt(|b|^2/all)).
	for i := range scores {
		scores[i] *= math.Sqrt(all) / squares
	}
	return scores
}

// most is the largest correlation, so that no column follows from others.
const mostCorrelated = 0.99

func correlations(scores [][]float64) [][]float64 {
	r := make([][]float64, len(scores))
	for i := range r {
		r[i] = make([]float64, i+1)
		r[i][i] = 1
		for j := range i {
			r[i][j] = min(max(dot(scores[i], scores[j]), -mostCorrelated), mostCorrelated)
		}
	}
	return r
}

// cholesky is the lower triangle whose square is a correlation matrix, of which r
// is the lower triangle. What is not quite one, for its entries were estimated one by one, is
// drawn towards none at all until it is.
func cholesky(r [][]float64) [][]float64 {
	const step, least = 0.05, 1e-6
	l := make([][]float64, len(r))
	for i := range l {
		l[i] = make([]float64, i+1)
	}
	for kept := 1.0; ; kept -= step {
		fine := true
		for i := 0; i < len(r) && fine; i++ {
			for j := range i {
				l[i][j] = (float64(kept*r[i][j]) - dot(l[i][:j], l[j][:j])) / l[j][j]
			}
			rest := 1 - dot(l[i][:i], l[i][:i])
			fine = rest > least
			l[i][i] = math.Sqrt(max(rest, least))
		}
		if fine || kept < step {
			return l
		}
	}
}

// shuffled draws users of whom no trait says anything of another.
func (u *null) shuffled(seed uint64, number int) Points {
	random := draws(seed, forShuffle, number)
	return u.drawn(&random, func(block) bool { return true }, func(Points) {})
}

// cloud draws users of a single cloud: its numbers have the correlations of the
// true ones (a Gaussian copula), all else says nothing of another trait.
func (u *null) cloud(seed uint64, number int) Points {
	random := draws(seed, forCopula, number)
	return u.drawn(&random, func(b block) bool { return !b.number() }, func(p Points) {
		n, d := p.Len(), len(u.numbers)
		free, latent := make([]float64, d), make([][]float64, d)
		for j := range latent {
			latent[j] = make([]float64, n)
		}
		for i := range n {
			for j := range free {
				free[j] = gaussian(&random)
				latent[j][i] = dot(u.factor[j], free[:j+1])
			}
		}
		order := make([]int, n)
		for j, z := range latent {
			for i := range order {
				order[i] = i
			}
			slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(z[a], z[b]), cmp.Compare(a, b)) })
			for place, i := range order {
				p.row(i)[u.numbers[j]] = u.sorted[j][place]
			}
		}
	})
}

// drawn shuffles the blocks that are to be among the users, each by itself, and
// has the others made.
func (u *null) drawn(random *splitmix.Source, shuffled func(block) bool, others func(Points)) Points {
	n := u.points.Len()
	p := Points{Data: make([]float32, len(u.points.Data)), Dims: u.points.Dims}
	from := make([]int, n)
	for i := range from {
		from[i] = i
	}
	for _, b := range u.blocks {
		if !shuffled(b) {
			continue
		}
		for i := n - 1; i > 0; i-- {
			j := random.IntN(i + 1)
			from[i], from[j] = from[j], from[i]
		}
		for i, other := range from {
			for _, t := range b {
				copy(p.row(i)[t.First:][:t.Width], u.points.row(other)[t.First:][:t.Width])
			}
		}
	}
	others(p)
	return p
}

// gaussian draws from the normal distribution, nearly: the sum of twelve, which
// needs no function that a processor may round otherwise.
func gaussian(random *splitmix.Source) float64 {
	sum := -6.0
	for range 12 {
		sum += float64(random.Float64()) // not fused
	}
	return sum
}
