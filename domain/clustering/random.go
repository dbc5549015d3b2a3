package clustering

import (
	"math/bits"
	"slices"
)

// splitMix is the generator of Steele, Lea and Flood (2014), whose sequence no
// release of a library can change.
type splitMix uint64

// draws returns the generator of one purpose, which shares nothing with that
// of another.
func draws(seed uint64, purpose ...int) splitMix {
	s := splitMix(seed)
	for _, p := range purpose {
		s = splitMix(s.next() ^ uint64(p)*0xd1342543de82ef95) //nolint:gosec // G115: a purpose is never negative
	}
	return s
}

// The purposes, which number the places where a run draws.
const (
	forSample = iota
	forChoice
	forStart
	forBatch
	forSilhouette
	forProfile
)

func (s *splitMix) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number in 0..n-1, its bias less than n/2^64.
func (s *splitMix) below(n int) int {
	high, _ := bits.Mul64(s.next(), uint64(n)) //nolint:gosec // G115: n is the length of something
	return int(high)                           //nolint:gosec // G115: less than n
}

// unit returns a number in [0, 1).
func (s *splitMix) unit() float64 { return float64(s.next()>>11) / (1 << 53) }

// sample draws size different numbers below n (Floyd's algorithm), ascending;
// all of them where there are no more.
func (s *splitMix) sample(n, size int) []int {
	rows := make([]int, 0, min(n, size))
	if n <= size {
		for i := range n {
			rows = append(rows, i)
		}
		return rows
	}
	drawn := make(map[int]bool, size)
	for i := n - size; i < n; i++ {
		row := s.below(i + 1)
		if drawn[row] {
			row = i
		}
		drawn[row] = true
		rows = append(rows, row)
	}
	slices.Sort(rows)
	return rows
}
