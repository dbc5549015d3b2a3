package segments

import (
	"testing"

	"kindred/projections/readmodel"
)

// A rebuild judges without a bound on its steps, so it reads as many users at a time as it may.
func TestHowManyUsersABuildReads(t *testing.T) {
	t.Parallel()
	before := make([]*segmentUser, buildBegins)
	for i := range before {
		before[i] = &segmentUser{traits: readmodel.Sealed{Box: make([]byte, 1_000)}}
	}
	each := before[0].openSteps()
	for steps, want := range map[int]int64{unbounded: buildRead, buildSteps: buildRead, each * (buildBegins + 70): 70, each * buildBegins: 1, 0: 1} {
		if got := buildReads(before, steps); got != want {
			t.Errorf("%d of %d steps each are read within %d, not %d", got, each, steps, want)
		}
	}
}
