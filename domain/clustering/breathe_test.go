package clustering

import (
	"context"
	"testing"

	"kindred/testkit"
)

// A start that ends with one center between two groups and two in a third is left, at
// every seed.
func TestBreathingLeavesAnEndThatJoinsTwoGroupsAndSplitsAThird(t *testing.T) {
	var points Points
	points.Dims = 2
	for i := range 600 {
		group, place := i%3, float32(i/3%20)/100
		points.Data = append(points.Data, [...]float32{0, 4, 20}[group]+place, float32(i/60%10)/50)
	}
	for seed := range uint64(20) {
		f := newFit(points, Options{Seed: seed, Threads: 2, MinSize: 1, Progress: func(Phase, int, int) {}})
		stuck := newCenters(3, 2)
		for i, at := range [][]float32{{2, 0}, {20, 0}, {20.2, 0}} {
			stuck.set(i, at)
		}
		from := testkit.Must(f.converge(context.Background(), points, stuck, 1))(t)
		random := draws(seed, forStart)
		to := testkit.Must(f.breathe(context.Background(), points, from, &random))(t)
		if from.inertia < 400 || to.inertia > 10 {
			t.Errorf("seed %d: the inertia went from %.1f to %.1f", seed, from.inertia, to.inertia)
		}
	}
}
