// Package splitmix draws pseudo-random numbers whose sequence no release of a
// library can change: the same seed gives the same numbers for ever.
package splitmix

import (
	"iter"
	"math/bits"
)

// Source is the generator of Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators" (2014); its value is the seed.
type Source uint64

// Uint64 returns the next 64 bits.
func (s *Source) Uint64() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// IntN returns a number in 0..n-1, its bias less than n/2^64; n is positive.
func (s *Source) IntN(n int) int {
	high, _ := bits.Mul64(s.Uint64(), uint64(n)) //nolint:gosec // G115: n is positive
	return int(high)                             //nolint:gosec // G115: less than n
}

// Float64 returns a number in [0, 1).
func (s *Source) Float64() float64 { return float64(s.Uint64()>>11) / (1 << 53) }

// Shuffle puts a list into an order that is drawn.
func Shuffle[T any](random *Source, list []T) {
	for i := len(list) - 1; i > 0; i-- {
		j := random.IntN(i + 1)
		list[i], list[j] = list[j], list[i]
	}
}

// Pairs draws pairs of different numbers below n, so many of them, or yields every
// pair once where there are no more.
func Pairs(n, most int, seed uint64) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		if n*(n-1)/2 <= most {
			for a := range n {
				for b := range a {
					if !yield(a, b) {
						return
					}
				}
			}
			return
		}
		random := Source(seed)
		for range most {
			a := random.IntN(n)
			if !yield(a, (a+1+random.IntN(n-1))%n) {
				return
			}
		}
	}
}
