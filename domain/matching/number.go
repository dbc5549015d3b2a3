package matching

import (
	"math"

	"kindred/domain/traits"
)

// one is a similarity of 1 in the whole numbers of a scan.
const one = 1 << 20

// The fixed-point column of a number. Values far outside the sample are drawn
// in to ±farthest, which can only bring two of them nearer; absent is further
// from all of them than one.
const (
	farthest = 1 << 29
	absent   = -1 << 30
)

// numbers is a number or a date: similarity 1 - min(1, |a-b|/span).
type numbers struct {
	origin, span float64
	exact        []float64
	fixed        []int32 // (exact-origin)/span, in units of 1/one
}

func (c *numbers) grow(n int) {
	c.exact = grown(c.exact, n, 0)
	c.fixed = grown(c.fixed, n, absent)
}

func (c *numbers) copy(from, to int) { c.exact[to], c.fixed[to] = c.exact[from], c.fixed[from] }

func (c *numbers) reorder(order []int) {
	c.exact = reordered(c.exact, order, 0)
	c.fixed = reordered(c.fixed, order, absent)
}

func (c *numbers) put(row int, v traits.Value) {
	c.exact[row] = v.Number
	c.fixed[row] = int32(math.Round(min(max((v.Number-c.origin)/c.span*one, -farthest), farthest)))
}

func (c *numbers) clear(row int) { c.fixed[row] = absent }

func (c *numbers) similarity(a, b int) float64 {
	return 1 - min(1, math.Abs(c.exact[a]-c.exact[b])/c.span)
}

func (c *numbers) bytes() int { return 12 * len(c.exact) }

func (c *numbers) bounds(row int, weight int64) func(int, []int64) {
	// Each of the two roundings moves a value by half a unit; the second unit
	// covers what float64 loses on the way.
	const reach = one + 2
	q := c.fixed[row]
	return func(from int, sums []int64) {
		for i, x := range c.fixed[from : from+len(sums)] {
			d := x - q
			sign := d >> 31
			d = (d ^ sign) - sign
			sums[i] += weight * int64(reach-min(d, reach))
		}
	}
}
