package matching

import (
	"math"
	"math/bits"
	"slices"

	"kindred/domain/traits"
)

// sets compares by Jaccard's index; two empty sets are equal.
//
// A scan sees of each set a signature, in which a member is one of 64 bits (the
// schema's levels have a bit each, as far as others do not join them), and its
// size. From the bits in common follows the largest possible index.
type sets struct {
	known      *interner[string]
	members    [][]uint32 // sorted
	signatures []uint64
	sizes      []uint8 // up to manyMembers; noSet where absent
}

const (
	manyMembers = 64 // or more
	noSet       = 65
	sizeClasses = 66
)

// newSets gives the schema's levels the first numbers, and so bits of their own.
func newSets(named []traits.Level) *sets {
	c := &sets{known: newInterner[string]()}
	for _, level := range named {
		holdText(c.known, level.Name)
	}
	return c
}

func (c *sets) grow(n int) {
	c.members = grown(c.members, n, nil)
	c.signatures = grown(c.signatures, n, 0)
	c.sizes = grown(c.sizes, n, noSet)
}

func (c *sets) copy(from, to int) {
	for _, m := range c.members[from] {
		c.known.hold(c.known.keys[m])
	}
	c.members[to], c.signatures[to], c.sizes[to] = c.members[from], c.signatures[from], c.sizes[from]
}

func (c *sets) reorder(order []int) {
	c.members = reordered(c.members, order, nil)
	c.signatures = reordered(c.signatures, order, 0)
	c.sizes = reordered(c.sizes, order, noSet)
}

func (c *sets) put(row int, v traits.Value) {
	members := make([]uint32, len(v.Set))
	var signature uint64
	for i, text := range v.Set {
		members[i] = holdText(c.known, text)
		signature |= bit(members[i])
	}
	slices.Sort(members)
	c.members[row], c.signatures[row], c.sizes[row] = members, signature, uint8(min(len(members), manyMembers))
}

func (c *sets) clear(row int) {
	for _, m := range c.members[row] {
		c.known.release(m)
	}
	c.members[row], c.signatures[row], c.sizes[row] = nil, 0, noSet
}

func bit(member uint32) uint64 { return 1 << ((member - 1) % 64) }

func (c *sets) similarity(a, b int) float64 {
	x, y := c.members[a], c.members[b]
	if len(x)+len(y) == 0 {
		return 1
	}
	common := 0
	for i, j := 0, 0; i < len(x) && j < len(y); {
		switch {
		case x[i] < y[j]:
			i++
		case x[i] > y[j]:
			j++
		default:
			common, i, j = common+1, i+1, j+1
		}
	}
	return float64(common) / float64(len(x)+len(y)-common)
}

func (c *sets) bounds(row int, weight int64) func(int, []int64) {
	signature := c.signatures[row]
	table := boundTable(len(c.members[row]), bits.OnesCount64(signature), weight)
	return func(from int, sums []int64) {
		sizes := c.sizes[from : from+len(sums)]
		for i, s := range c.signatures[from : from+len(sums)] {
			sums[i] += table[bits.OnesCount64(s&signature)*sizeClasses+int(sizes[i])]
		}
	}
}

// boundTable returns, by bits in common and size of the other set, weight times
// the largest Jaccard index with a set of size members in ones bits.
func boundTable(size, ones int, weight int64) []int64 {
	table := make([]int64, (ones+1)*sizeClasses)
	for shared := range ones + 1 {
		for other := range noSet {
			common := 0
			if shared > 0 { // the members that share a bit may all be meant
				common = min(shared+size-ones, size)
				if other < manyMembers {
					common = min(common, other)
				}
			}
			index := 1.0
			if size+other > 0 {
				index = float64(common) / float64(size+max(other, common)-common)
			}
			table[shared*sizeClasses+other] = weight * int64(math.Ceil(index*one))
		}
	}
	return table
}
