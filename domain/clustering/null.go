package clustering

import (
	"math"
	"slices"

	"kindred/domain/splitmix"
)

// A null is users as they would be if there were no groups: each trait, or block of
// traits that say one thing, is spread exactly as among the true users, and what one trait says of another is gone, or
// is what a single elongated cloud of users would have.
type null struct {
	points Points
	blocks []block
	order  [][]int     // of each block, the users from little to much of it
	factor [][]float64 // the lower triangle whose square is the correlation of the blocks
}

// Span is the dimensions of one trait.
type Span struct {
	First, Width int
	Number       bool // of one dimension, in which more is more
	Set          bool // a dimension for each member, 0 for what is not held
}

// block is traits that say one thing, which are dealt out together: mostly a single one.
type block []Span

// number says whether it is a number, of which there is more and less.
func (b block) number() bool { return len(b) == 1 && b[0].Number }

func newNull(points Points, traits []Span, seed uint64) *null {
	u := &null{points: points, blocks: blocks(points, traits)}
	random := draws(seed, forScores)
	normal := make([]float64, points.Len())
	for i := range normal {
		normal[i] = gaussian(&random)
	}
	slices.Sort(normal)
	var scores [][]float64
	for _, column := range degrees(points, u.blocks, &random) {
		u.order = append(u.order, ordered(column))
		scores = append(scores, normalScores(column, normal))
	}
	u.factor = cholesky(correlations(scores))
	return u
}

// degreeRounds are enough to find a direction: later ones change no order.
const degreeRounds = 20

// degrees are columns of how much each user has of each block. A number says that itself;
// for levels and members it is what those who hold them have of all other blocks, so that
// answers of yes and no, or in words, go together by degrees, too (alternating least
// squares; Young, de Leeuw and Takane 1978).
func degrees(points Points, blocks []block, random *splitmix.Source) [][]float64 {
	n := points.Len()
	columns, all := make([][]float64, len(blocks)), make([]float64, n)
	for j, b := range blocks {
		columns[j] = make([]float64, n)
		for i := range n {
			if columns[j][i] = gaussian(random); b.number() {
				columns[j][i] = float64(points.row(i)[b[0].First])
			}
		}
		standardize(columns[j])
		for i, x := range columns[j] {
			all[i] += x
		}
	}
	for range degreeRounds {
		for j, b := range blocks {
			for i, x := range columns[j] {
				all[i] -= x
			}
			if !b.number() {
				b.project(points, all, columns[j])
			} else if dot(columns[j], all) < 0 {
				for i := range columns[j] {
					columns[j][i] = -columns[j][i]
				}
			}
			for i, x := range columns[j] {
				all[i] += x
			}
		}
	}
	return columns
}

// project weighs each dimension by what those who hold it have of the others.
func (b block) project(points Points, others, column []float64) {
	clear(column)
	for _, t := range b {
		for d := t.First; d < t.First+t.Width; d++ {
			var with, squares float64
			for i, of := range others {
				x := float64(points.row(i)[d])
				with += float64(x * of)
				squares += float64(x * x)
			}
			if squares == 0 {
				continue
			}
			for i := range column {
				column[i] += float64(float64(points.row(i)[d]) * (with / squares))
			}
		}
	}
	standardize(column)
}

// standardize brings a column to a mean of 0 and a variance of 1; one of equal values to 0.
func standardize(column []float64) {
	n := float64(len(column))
	var mean, squares float64
	for _, x := range column {
		mean += x / n
	}
	for i := range column {
		column[i] -= mean
		squares += float64(column[i] * column[i])
	}
	for i := range column {
		column[i] /= max(math.Sqrt(squares/n), 1e-9)
	}
}

// normalScores are the ranks of the values as places of the normal distribution
// (van der Waerden), the mean place where some are equal, made so long that the
// product of two such columns is the correlation of the normal variables that
// they would be steps of: equal values hide 1 - |scores|^2/n of theirs.
func normalScores(column []float64, normal []float64) []float64 {
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

// mostCorrelated is the largest correlation, so that no column follows from others.
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

// shuffled draws users of whom no trait says anything of another, nor a member of a set.
func (u *null) shuffled(seed uint64, number int) Points {
	random := draws(seed, forShuffle, number)
	p, from := u.empty()
	for _, b := range u.blocks {
		splitmix.Shuffle(&random, from)
		for i, other := range from {
			b.copy(p.row(i), u.points.row(other))
		}
		if len(b) == 1 && b[0].Set {
			deal(p, b[0], &random)
		}
	}
	return p
}

// cloud draws users of a single cloud: its blocks have the correlations of the true ones
// (a Gaussian copula).
func (u *null) cloud(seed uint64, number int) Points {
	random := draws(seed, forCopula, number)
	p, _ := u.empty()
	free, latent := make([]float64, len(u.blocks)), make([][]float64, len(u.blocks))
	for j := range latent {
		latent[j] = make([]float64, p.Len())
	}
	for i := range p.Len() {
		for j := range free {
			free[j] = gaussian(&random)
			latent[j][i] = dot(u.factor[j], free[:j+1])
		}
	}
	for j, z := range latent {
		for place, i := range ordered(z) {
			u.blocks[j].copy(p.row(i), u.points.row(u.order[j][place]))
		}
	}
	return p
}

// empty are as many users of whom nothing is said yet, and their places.
func (u *null) empty() (p Points, places []int) {
	places = make([]int, u.points.Len())
	for i := range places {
		places[i] = i
	}
	return Points{Data: make([]float32, len(u.points.Data)), Dims: u.points.Dims}, places
}

// copy says of one user what is said of another.
func (b block) copy(to, from []float32) {
	for _, t := range b {
		copy(to[t.First:][:t.Width], from[t.First:][:t.Width])
	}
}

// deal deals the members of a set out anew: everybody holds as many as before, and each is
// held by as many (the curveball algorithm, Strona et al. 2014). Else users who hold what
// goes together would be one crowd, however many kinds of them there are.
func deal(p Points, t Span, random *splitmix.Source) {
	const trades = 5 // for each user
	n, pool := p.Len(), make([]int, 0, t.Width)
	for range trades * n {
		a, b := p.row(random.IntN(n))[t.First:][:t.Width], p.row(random.IntN(n))[t.First:][:t.Width]
		pool = pool[:0] // what one of the two holds alone
		var own int     // of a
		var inA, inB float32
		for d := range a {
			inA, inB = max(inA, a[d]), max(inB, b[d])
			if (a[d] > 0) != (b[d] > 0) {
				pool = append(pool, d)
			}
			if a[d] > 0 && b[d] == 0 {
				own++
			}
		}
		for i := range pool {
			j := i + random.IntN(len(pool)-i)
			pool[i], pool[j] = pool[j], pool[i]
			a[pool[i]], b[pool[i]] = 0, inB
			if i < own {
				a[pool[i]], b[pool[i]] = inA, 0
			}
		}
	}
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
