package matching

import (
	"math"

	"kindred/domain/traits"
)

// places is a point on Earth.
//
// A scan looks the square of the chord up in a table of similarities, whose
// classes are narrow near 0: 64 to each doubling.
type places struct {
	at    []traits.Point
	chord []unit
	table []int64
}

// unit is a point on the unit sphere.
type unit struct{ x, y, z float32 }

// nowhere is further from every point than any two points are.
func nowhere() unit { return unit{x: 4} }

// The classes of a squared chord are the top bits of its float32, from
// nearestClass (2^-30 and below; a chord of 200 m) to the class of 2^5.
const (
	classShift   = 23 - 6
	nearestClass = (127 - 30) << 6
	classes      = (30 + 5) << 6
)

// chordError is more than float32 can be wrong by in a chord.
const chordError = 1e-6

func newPlaces() *places {
	c := &places{table: make([]int64, classes)}
	c.table[0] = one // the first class begins at 0
	for i := 1; i < classes; i++ {
		lowest := math.Float32frombits(uint32(i+nearestClass) << classShift)
		chord := math.Sqrt(float64(lowest)) - chordError
		if chord > 2 {
			break // beyond the antipode: nowhere
		}
		c.table[i] = int64(math.Ceil(one * traits.NearnessAt(2*math.Asin(chord/2))))
	}
	return c
}

func (c *places) grow(n int) {
	c.at = grown(c.at, n, traits.Point{})
	c.chord = grown(c.chord, n, nowhere())
}

func (c *places) copy(from, to int) { c.at[to], c.chord[to] = c.at[from], c.chord[from] }

func (c *places) reorder(order []int) {
	c.at = reordered(c.at, order, traits.Point{})
	c.chord = reordered(c.chord, order, nowhere())
}

func (c *places) put(row int, v traits.Value) {
	c.at[row] = v.Point()
	x, y, z := c.at[row].Unit()
	c.chord[row] = unit{float32(x), float32(y), float32(z)}
}

func (c *places) clear(row int) { c.chord[row] = nowhere() }

func (c *places) similarity(a, b int) float64 { return c.at[a].Nearness(c.at[b]) }

func (c *places) bytes() int { return 36 * len(c.at) }

func (c *places) bounds(row int, weight int64) func(int, []int64) {
	q, table := c.chord[row], c.table
	return func(from int, sums []int64) {
		for i, u := range c.chord[from : from+len(sums)] {
			x, y, z := u.x-q.x, u.y-q.y, u.z-q.z
			class := int(math.Float32bits(x*x+y*y+z*z)>>classShift) - nearestClass
			sums[i] += weight * table[max(class, 0)]
		}
	}
}
