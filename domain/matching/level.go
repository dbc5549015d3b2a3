package matching

import (
	"strconv"
	"strings"

	"kindred/domain/traits"
)

// levels is a bool or a category: similarity 1 where equal, else 0. Every level
// counts, also those that are too rare for the schema to name.
type levels struct {
	known *interner[string]
	codes []uint32 // 0 where absent
}

func (c *levels) grow(n int) { c.codes = grown(c.codes, n, 0) }

func (c *levels) copy(from, to int) {
	if code := c.codes[from]; code != 0 {
		c.codes[to] = c.known.hold(c.known.keys[code])
	}
}

func (c *levels) reorder(order []int) { c.codes = reordered(c.codes, order, 0) }

func (c *levels) put(row int, v traits.Value) {
	text := v.Text
	if v.Kind == traits.Bool {
		text = strconv.FormatBool(v.Number != 0)
	}
	c.codes[row] = holdText(c.known, text)
}

func (c *levels) clear(row int) {
	c.known.release(c.codes[row])
	c.codes[row] = 0
}

func (c *levels) similarity(a, b int) float64 {
	if c.codes[a] == c.codes[b] {
		return 1
	}
	return 0
}

func (c *levels) bytes() int {
	const level = 200 // its text, number and holders
	return 4*len(c.codes) + level*len(c.known.keys)
}

func (c *levels) bounds(row int, weight int64) func(int, []int64) {
	q, whole := c.codes[row], weight*one
	return func(from int, sums []int64) {
		for i, code := range c.codes[from : from+len(sums)] {
			equal := (int64(code^q) - 1) >> 63 // all ones or all zeros: a branch would be mispredicted
			sums[i] += whole & equal
		}
	}
}

// holdText holds a text without the document that it may be a part of.
func holdText(in *interner[string], text string) uint32 {
	if _, ok := in.numbers[text]; !ok {
		text = strings.Clone(text)
	}
	return in.hold(text)
}
