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
	factor [][]float64 // its square is the correlation of the blocks
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
	standardize(normal)
	slices.Sort(normal)
	var all []scores
	for _, column := range degrees(points, u.blocks, &random) {
		u.order, all = append(u.order, ordered(column)), append(all, normalScores(column, normal))
	}
	u.factor = factor(all)
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

// scores are a column of length 1, or 0 where it has one value alone, so that the product of two is
// their correlation. Equal values hide a part of that of the normal variables that they are steps of,
// which is the product times both lengths.
type scores struct {
	steps  []float64
	length float64
}

// normalScores are the ranks of the values as places of the normal distribution
// (van der Waerden), the mean place where some are equal.
func normalScores(column []float64, normal []float64) scores {
	n := len(column)
	order := ordered(column)
	steps, squares, all := make([]float64, n), 0.0, 0.0
	for from := 0; from < n; {
		to, sum := from, 0.0
		for ; to < n && column[order[to]] == column[order[from]]; to++ {
			sum += normal[to]
			all += float64(normal[to] * normal[to])
		}
		if to-from == n {
			return scores{steps, 1}
		}
		mean := sum / float64(to-from)
		for _, i := range order[from:to] {
			steps[i] = mean
		}
		squares += float64(float64(to-from) * float64(mean*mean))
		from = to
	}
	for i := range steps {
		steps[i] /= math.Sqrt(squares)
	}
	return scores{steps, math.Sqrt(all / squares)}
}

// factor is a matrix whose square is the correlation matrix of the normal variables that columns
// are steps of. Their correlations are estimated one by one, and may contradict one another, above all
// those of what hardly anybody holds. Then the matrix is taken without its negative eigenvalues, with
// a diagonal of 1 again (Rebonato and Jäckel 1999): correlations that are sure stay nearly as they are.
func factor(of []scores) [][]float64 {
	r := make([][]float64, len(of))
	for i, a := range of {
		r[i] = make([]float64, len(of))
		r[i][i] = 1
		for j, b := range of[:i] {
			both := beyondChance(dot(a.steps, b.steps), len(a.steps)) * a.length * b.length
			r[i][j] = min(max(both, -mostCorrelated), mostCorrelated)
			r[j][i] = r[i][j]
		}
	}
	vectors := diagonalize(r)
	f := make([][]float64, len(of))
	for i := range f {
		f[i] = make([]float64, len(of))
		for k, v := range vectors {
			f[i][k] = v[i] * math.Sqrt(max(r[k][k], 0))
		}
		length := math.Sqrt(dot(f[i], f[i]))
		for k := range f[i] {
			f[i][k] /= length
		}
	}
	return f
}

// mostCorrelated is the largest correlation, so that no column follows from others.
const mostCorrelated = 0.99

// beyondChance is what remains of a correlation over n users where that of nothing with nothing
// has a variance of 1/n (James and Stein 1961).
func beyondChance(r float64, n int) float64 { return r * max(0, 1-1/(r*r*float64(n))) }

const (
	mostSweeps = 30    // some eight are enough
	diagonal   = 1e-12 // what is less beside the diagonal is 0
)

// diagonalize leaves a symmetric matrix with its eigenvalues in the diagonal, and returns its
// eigenvectors (Jacobi 1846).
func diagonalize(m [][]float64) (vectors [][]float64) {
	vectors = make([][]float64, len(m))
	for i := range m {
		vectors[i] = make([]float64, len(m))
		vectors[i][i] = 1
	}
	for range mostSweeps {
		done := true
		for p := range m {
			for q := range p {
				if math.Abs(m[p][q]) < diagonal {
					continue
				}
				done = false
				theta := (m[q][q] - m[p][p]) / (2 * m[p][q])
				tangent := math.Copysign(1/(math.Abs(theta)+math.Sqrt(float64(theta*theta)+1)), theta)
				cos := 1 / math.Sqrt(float64(tangent*tangent)+1)
				sin := cos * tangent
				for _, row := range m {
					row[p], row[q] = float64(cos*row[p])-float64(sin*row[q]), float64(sin*row[p])+float64(cos*row[q])
				}
				turn(m[p], m[q], cos, sin)
				turn(vectors[p], vectors[q], cos, sin)
			}
		}
		if done {
			break
		}
	}
	return vectors
}

// turn turns two rows into each other by an angle.
func turn(a, b []float64, cos, sin float64) {
	for k, x := range a {
		a[k], b[k] = float64(cos*x)-float64(sin*b[k]), float64(sin*x)+float64(cos*b[k])
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
		}
		for j, row := range u.factor {
			latent[j][i] = dot(row, free)
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
