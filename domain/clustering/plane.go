package clustering

import (
	"cmp"
	"math"
	"slices"

	"kindred/domain/splitmix"
	"kindred/domain/traits"
)

// PlanePoints is how many points Plane is made for: its time grows with their square.
const PlanePoints = 400

const (
	planeDims  = 512  // that vary most; the others count in the sum alone
	planeSteps = 150  // of the power iteration, at most
	planeClose = 1e-9 // a step that moves it less is the last
	planeSeed  = 1
	planeUnit  = 1e-3 // of coordinates and shares
)

// Plane shows points in the two directions in which they differ most (principal
// components, by the power iteration on the Gram matrix), and the share of the
// variance that each direction holds. The same points give the same plane: of each
// direction, the point that is farthest out, or the first of those, is positive.
func Plane(p Points) (coordinates [][2]float64, held [2]float64) {
	n := p.Len()
	coordinates = make([][2]float64, n)
	rows, variance := p.centred()
	if variance == 0 {
		return coordinates, held
	}
	gram := make([][]float64, n)
	for i := range gram {
		gram[i] = make([]float64, n)
	}
	for i := range gram {
		for j := range i + 1 {
			gram[i][j] = dot(rows[i], rows[j])
			gram[j][i] = gram[i][j]
		}
	}
	for axis := range held {
		direction, value := dominant(gram)
		if value <= planeClose*variance {
			break
		}
		held[axis] = traits.Rounded(value/variance, planeUnit)
		for i, v := range direction {
			coordinates[i][axis] = traits.Rounded(v*math.Sqrt(value), planeUnit) + 0 // no -0
			for j, w := range direction {
				gram[i][j] -= float64(float64(value*v) * w)
			}
		}
	}
	return coordinates, held
}

// centred returns the points about their mean, by the dimensions that vary most, and
// the sum of squares over all dimensions.
func (p Points) centred() (rows [][]float64, squares float64) {
	n := p.Len()
	means, varies := make([]float64, p.Dims), make([]float64, p.Dims)
	for i := range n {
		for d, x := range p.row(i) {
			means[d] += float64(x) / float64(n)
		}
	}
	for i := range n {
		for d, x := range p.row(i) {
			off := float64(x) - means[d]
			varies[d] += float64(off * off)
		}
	}
	dims := make([]int, p.Dims)
	for d := range dims {
		dims[d] = d
		squares += varies[d]
	}
	slices.SortStableFunc(dims, func(a, b int) int { return cmp.Compare(varies[b], varies[a]) })
	dims = dims[:min(len(dims), planeDims)]
	rows = make([][]float64, n)
	for i := range rows {
		rows[i] = make([]float64, len(dims))
		for at, d := range dims {
			rows[i][at] = float64(p.row(i)[d]) - means[d]
		}
	}
	return rows, squares
}

// dominant is the eigenvector of the largest eigenvalue of a matrix that has none
// below 0, with its sign as [Plane] says.
func dominant(m [][]float64) (vector []float64, value float64) {
	random := splitmix.Source(planeSeed)
	vector, next := make([]float64, len(m)), make([]float64, len(m))
	for i := range vector {
		vector[i] = float64(random.Float64()) - 0.5 // not fused: every processor rounds alike
	}
	for range planeSteps {
		for i, row := range m {
			next[i] = dot(row, vector)
		}
		value = math.Sqrt(dot(next, next))
		if value < planeClose {
			return vector, 0
		}
		moved := 0.0
		for i := range next {
			next[i] /= value
			moved = max(moved, math.Abs(next[i]-vector[i]))
		}
		vector, next = next, vector
		if moved < planeClose {
			break
		}
	}
	farthest := 0
	for i, v := range vector {
		if math.Abs(v) > math.Abs(vector[farthest])+planeClose {
			farthest = i
		}
	}
	if vector[farthest] < 0 {
		for i := range vector {
			vector[i] = -vector[i]
		}
	}
	return vector, value
}

func dot(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += float64(x * b[i])
	}
	return sum
}
