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
//
// Members are told apart by hashes of 64 bits, which take 8 bytes each however
// long the texts are and however many there are; among a million members two are
// taken for one with a probability of 3e-8.
type sets struct {
	own        map[uint64]int // the bits of the schema's levels
	members    [][]uint64     // sorted
	held       int            // members of all
	signatures []uint64
	sizes      []uint8 // up to manyMembers; noSet where absent
}

const (
	manyMembers = 64 // or more
	noSet       = 65
	sizeClasses = 66
)

// newSets gives the schema's levels bits of their own, as far as there are.
func newSets(named []traits.Level) *sets {
	c := &sets{own: make(map[uint64]int, len(named))}
	for i, level := range named {
		c.own[hashOf(level.Name)] = i % signatureBits
	}
	return c
}

const signatureBits = 64

// hashOf is FNV-1a, its bits mixed as splitmix64 does: the same in every process.
func hashOf(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return mix(h)
}

func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func (c *sets) grow(n int) {
	c.members = grown(c.members, n, nil)
	c.signatures = grown(c.signatures, n, 0)
	c.sizes = grown(c.sizes, n, noSet)
}

func (c *sets) copy(from, to int) {
	c.held += len(c.members[from])
	c.members[to], c.signatures[to], c.sizes[to] = c.members[from], c.signatures[from], c.sizes[from]
}

func (c *sets) reorder(order []int) {
	c.members = reordered(c.members, order, nil)
	c.signatures = reordered(c.signatures, order, 0)
	c.sizes = reordered(c.sizes, order, noSet)
}

func (c *sets) put(row int, v traits.Value) {
	members := make([]uint64, len(v.Set))
	var signature uint64
	for i, text := range v.Set {
		members[i] = hashOf(text)
		signature |= c.bit(members[i])
	}
	c.held += len(members)
	slices.Sort(members)
	c.members[row], c.signatures[row], c.sizes[row] = members, signature, uint8(min(len(members), manyMembers))
}

func (c *sets) clear(row int) {
	c.held -= len(c.members[row])
	c.members[row], c.signatures[row], c.sizes[row] = nil, 0, noSet
}

func (c *sets) bit(member uint64) uint64 {
	if own, named := c.own[member]; named {
		return 1 << own
	}
	return 1 << (member % signatureBits)
}

func (c *sets) bytes() int { return 8*c.held + 33*len(c.members) }

func (c *sets) similarity(a, b int) float64 { return traits.Jaccard(c.members[a], c.members[b]) }

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
