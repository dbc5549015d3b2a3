package clustering_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"kindred/domain/clustering"
)

func TestThePlaneShowsWhereThePointsDiffer(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	// Along (3, 4, 0)/5 the points spread by 10, along the third axis by 2, and no
	// further: the plane holds all of it.
	const n = 300
	var p clustering.Points
	p.Dims = 3
	far, near := make([]float64, n), make([]float64, n)
	for i := range n {
		far[i], near[i] = 10*random.NormFloat64(), 2*random.NormFloat64()
		p.Data = append(p.Data, float32(5+0.6*far[i]), float32(0.8*far[i]), float32(near[i]))
	}
	at, held := clustering.Plane(p)
	if held[0] < 0.9 || held[1] > 0.1 || math.Abs(held[0]+held[1]-1) > 0.002 {
		t.Errorf("the directions hold %v", held)
	}
	for axis, of := range [][]float64{far, near} {
		mean := 0.0
		for _, x := range of {
			mean += x / n
		}
		sign, most := 1.0, 0.0
		for i, x := range of {
			if math.Abs(at[i][axis]) > most {
				most, sign = math.Abs(at[i][axis]), math.Copysign(1, x-mean)
			}
		}
		for i, x := range of {
			if off := math.Abs(at[i][axis] - sign*(x-mean)); off > 0.5 {
				t.Fatalf("point %d is %v on axis %d, %v from where it is", i, at[i][axis], axis, off)
			}
		}
		farthest := slices.MaxFunc(at, func(a, b [2]float64) int { return int(1e6 * (math.Abs(a[axis]) - math.Abs(b[axis]))) })
		if farthest[axis] < 0 {
			t.Errorf("axis %d: the farthest point is at %v", axis, farthest[axis])
		}
	}
	for _, v := range at {
		for _, x := range v {
			if math.Abs(x*1000-math.Round(x*1000)) > 1e-6 {
				t.Fatalf("%v is not rounded", x)
			}
		}
	}
	again, _ := clustering.Plane(p)
	if !slices.Equal(at, again) {
		t.Error("the same points are shown in another plane")
	}
}

func TestAPlaneOfPointsThatDoNotDiffer(t *testing.T) {
	for name, p := range map[string]clustering.Points{
		"none":            {},
		"one":             {Data: []float32{1, 2}, Dims: 2},
		"all the same":    {Data: []float32{1, 2, 1, 2, 1, 2}, Dims: 2},
		"on one line":     {Data: []float32{1, 3, 2}, Dims: 1},
		"many dimensions": {Data: make([]float32, 4*2000), Dims: 2000},
	} {
		at, held := clustering.Plane(p)
		if len(at) != p.Len() || held[1] != 0 {
			t.Errorf("%s: %v, %v", name, at, held)
		}
		for _, v := range at {
			if v[1] != 0 || math.IsNaN(v[0]) {
				t.Errorf("%s: %v", name, at)
			}
		}
	}
}
