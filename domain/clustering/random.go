package clustering

import (
	"slices"

	"kindred/domain/splitmix"
)

// draws returns the generator of one purpose, which shares nothing with that
// of another.
func draws(seed uint64, purpose ...int) splitmix.Source {
	s := splitmix.Source(seed)
	for _, p := range purpose {
		s = splitmix.Source(s.Uint64() ^ uint64(p)*0xd1342543de82ef95) //nolint:gosec // G115: a purpose is never negative
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
	forShuffle
	forCopula
	forBootstrap
	forScores
	forJudged
	forAgreement
)

// sample draws size different numbers below n (Floyd's algorithm), ascending;
// all of them where there are no more.
func sample(random *splitmix.Source, n, size int) []int {
	rows := make([]int, 0, min(n, size))
	if n <= size {
		for i := range n {
			rows = append(rows, i)
		}
		return rows
	}
	drawn := make(map[int]bool, size)
	for i := n - size; i < n; i++ {
		row := random.IntN(i + 1)
		if drawn[row] {
			row = i
		}
		drawn[row] = true
		rows = append(rows, row)
	}
	slices.Sort(rows)
	return rows
}
