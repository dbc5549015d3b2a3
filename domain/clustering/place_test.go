package clustering

import (
	"math"
	"testing"
)

func TestWhereSomebodyStandsAddsUp(t *testing.T) {
	centroids := [][]float32{{0, 0, 4}, {3, 0, 0}, {9, 9, 9}}
	p := Locate([]float32{2, 0, 1}, centroids, []Span{{0, 1, true, false}, {1, 2, false, false}})
	if p.Nearest != 1 || p.Next != 0 || p.Distance != math.Sqrt2 || p.NextDistance != math.Sqrt(13) {
		t.Fatalf("%+v", p)
	}
	if want := 1 - math.Sqrt(2.0/13); math.Abs(p.Confidence-want) > 1e-12 {
		t.Errorf("confidence %v, want %v", p.Confidence, want)
	}
	// The second trait brings it 9 - 1 nearer, the first 4 - 1.
	if len(p.Terms) != 2 || p.Terms[0] != (Nearer{1, 8}) || p.Terms[1] != (Nearer{0, 3}) {
		t.Errorf("%+v", p.Terms)
	}
}

func TestOfOneClusterOrOfTwoAtOnePlace(t *testing.T) {
	if p := Locate([]float32{1}, [][]float32{{4}}, []Span{{0, 1, true, false}}); p.Next != -1 || p.Confidence != 1 || p.Distance != 3 {
		t.Errorf("one: %+v", p)
	}
	if p := Locate([]float32{4}, [][]float32{{4}, {4}}, []Span{{0, 1, true, false}}); p.Nearest != 0 || p.Confidence != 0 {
		t.Errorf("two at one place: %+v", p)
	}
}
