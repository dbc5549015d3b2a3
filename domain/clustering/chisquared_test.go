package clustering

import (
	"math"
	"testing"
)

// The values are scipy.stats.chi2.ppf's (SciPy 1.10.1).
func TestChiSquaredQuantiles(t *testing.T) {
	for _, c := range []struct {
		degrees int
		p, want float64
	}{
		{1, 0.5, 0.454936423120},
		{1, 0.99, 6.634896601021},
		{2, 0.9995, 15.201804919084},
		{9, 0.95, 16.918977604620},
		{9, 0.9995, 29.665808103596},
		{10, 0.99, 23.209251158954},
		{10, 0.9995, 31.419812507400},
		{31, 0.9999, 69.105692289868},
		{10, 1 - 0.01/256/64, 48.039872652028},
		{63, 0.999999, 131.369702051582},
	} {
		if got := chiSquared(c.degrees, c.p); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%d degrees, %v: %.9f, not %.9f", c.degrees, c.p, got, c.want)
		}
	}
}
