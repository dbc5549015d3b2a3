package clustering

import "math"

// centers are k points side by side, in double precision.
type centers struct {
	at   []float64 // k * dims
	dims int
}

func newCenters(k, dims int) centers { return centers{make([]float64, k*dims), dims} }

func (c centers) len() int            { return len(c.at) / c.dims }
func (c centers) row(i int) []float64 { return c.at[i*c.dims:][:c.dims] }

func (c centers) set(i int, x []float32) {
	for d, v := range x {
		c.at[i*c.dims+d] = float64(v)
	}
}

// nearest finds the center that is nearest to x, the first of equals, and the
// squared distances to it and to the second nearest.
func (c centers) nearest(x []float32) (best int, first, second float64) {
	first, second = math.Inf(1), math.Inf(1)
	k := c.len()
	for i := 0; i < k; i += 4 {
		d0, d1, d2, d3 := squares(x, c.row(i), c.row(min(i+1, k-1)), c.row(min(i+2, k-1)), c.row(min(i+3, k-1)))
		for j, d := range [4]float64{d0, d1, d2, d3} {
			switch {
			case i+j >= k:
			case d < first:
				best, first, second = i+j, d, first
			case d < second:
				second = d
			}
		}
	}
	return best, first, second
}

// squares returns the squared distances of x from four points. The conversions
// keep processors that could from fusing the product with the sum, which would
// round otherwise than the rest.
//
// The race detector is spared these two innermost loops, which it makes twenty
// times slower: they only read, what their callers read as well.
//
//go:norace
func squares(x []float32, a, b, c, d []float64) (sa, sb, sc, sd float64) {
	a, b, c, d = a[:len(x)], b[:len(x)], c[:len(x)], d[:len(x)]
	for i, v := range x {
		v := float64(v)
		da, db, dc, dd := v-a[i], v-b[i], v-c[i], v-d[i]
		sa += float64(da * da)
		sb += float64(db * db)
		sc += float64(dc * dc)
		sd += float64(dd * dd)
	}
	return sa, sb, sc, sd
}

// square returns the squared distance of x from a.
//
//go:norace
func square(x []float32, a []float64) float64 {
	a = a[:len(x)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		d0, d1, d2, d3 := float64(x[i])-a[i], float64(x[i+1])-a[i+1], float64(x[i+2])-a[i+2], float64(x[i+3])-a[i+3]
		s0 += float64(d0 * d0)
		s1 += float64(d1 * d1)
		s2 += float64(d2 * d2)
		s3 += float64(d3 * d3)
	}
	for ; i < len(x); i++ {
		d := float64(x[i]) - a[i]
		s0 += float64(d * d)
	}
	return (s0 + s1) + (s2 + s3)
}

// squareBetween returns the squared distance of two centers.
func squareBetween(a, b []float64) float64 {
	b = b[:len(a)]
	var s float64
	for i, v := range a {
		d := v - b[i]
		s += float64(d * d)
	}
	return s
}
