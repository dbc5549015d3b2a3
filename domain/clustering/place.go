package clustering

import (
	"cmp"
	"math"
	"slices"
)

// Place is where somebody stands among clusters.
type Place struct {
	Nearest, Next int     // clusters; Next is -1 where there is one alone
	Distance      float64 // from the nearest centroid
	NextDistance  float64 // from the next; 0 where there is none
	Confidence    float64 // how much nearer it is than the next: 0 halfway between them, 1 at the centroid and where there is no other
	Terms         []Nearer
}

// Nearer is what one trait adds to NextDistance² - Distance²; the largest first.
// What is negative speaks for the next cluster.
type Nearer struct {
	Trait int // its place among the spans
	By    float64
}

// Locate finds the nearest of clusters, the first of equals, by Euclid's distance from
// their centroids, as a run does. There is one centroid at least, all as long as the vector.
func Locate(vector []float32, centroids [][]float32, of []Span) Place {
	squares := make([]float64, len(centroids))
	for c, at := range centroids {
		squares[c] = squaresAlong(vector, at, Span{Width: len(vector)})
	}
	order := ordered(squares)
	p := Place{Nearest: order[0], Next: -1, Distance: math.Sqrt(squares[order[0]])}
	if len(order) == 1 {
		p.Confidence = 1
		return p
	}
	p.Next = order[1]
	if p.NextDistance = math.Sqrt(squares[p.Next]); p.NextDistance > 0 { // else two clusters are at one place
		p.Confidence = (p.NextDistance - p.Distance) / p.NextDistance
	}
	for i, t := range of {
		by := squaresAlong(vector, centroids[p.Next], t) - squaresAlong(vector, centroids[p.Nearest], t)
		p.Terms = append(p.Terms, Nearer{i, by})
	}
	slices.SortStableFunc(p.Terms, func(a, b Nearer) int { return cmp.Compare(b.By, a.By) })
	return p
}

// squaresAlong is the squared distance in the dimensions of one trait.
func squaresAlong(a, b []float32, of Span) (sum float64) {
	for d := of.First; d < of.First+of.Width; d++ {
		off := float64(a[d]) - float64(b[d])
		sum += float64(off * off)
	}
	return sum
}
