package event

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestARoundedComparisonStillAddsUp(t *testing.T) {
	for name, c := range map[string]struct {
		of, want MatchComputed
	}{
		"terms": {
			MatchComputed{Score: 0.712345, Explanation: []Term{{"a", 2, 0.98765, 0.6584, false}, {"b", 1, 0.1617, 0.0539, false}, {"c", 3, 0, 0, false}}},
			MatchComputed{Score: 0.7123, Explanation: []Term{{"a", 2, 0.99, 0.7123 * 1.98 / 2.14, false}, {"b", 1, 0.16, 0.7123 * 0.16 / 2.14, false}, {"c", 3, 0, 0, false}}},
		},
		"nearly nothing": {
			MatchComputed{Score: 0.003, Explanation: []Term{{"a", 1, 0.004, 0.002, false}, {"b", 1, 0.002, 0.001, false}}},
			MatchComputed{Score: 0.003, Explanation: []Term{{"a", 1, 0, 0.0015, false}, {"b", 1, 0, 0.0015, false}}},
		},
		"another order": {
			MatchComputed{Score: 0.5, Explanation: []Term{{"a", 1, 0.5049, 0.25, false}, {"b", 1.001, 0.5041, 0.25, false}}},
			MatchComputed{Score: 0.5, Explanation: []Term{{"b", 1.001, 0.5, 0.5 * 1.001 / 2.001, false}, {"a", 1, 0.5, 0.5 / 2.001, false}}},
		},
		"what is missing comes last": {
			MatchComputed{Score: 0.6, Explanation: []Term{{"a", 1, 0.4, 0.2, false}, {"b", 1, 0.8, 0.4, true}}},
			MatchComputed{Score: 0.6, Explanation: []Term{{"a", 1, 0.4, 0.2, false}, {"b", 1, 0.8, 0.4, true}}},
		},
		"no terms": {MatchComputed{Score: 1}, MatchComputed{Score: 1, Explanation: []Term{}}},
	} {
		got := c.of.Rounded()
		if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }), cmp.AllowUnexported(MatchComputed{}, fact{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		sum := 0.0
		for _, term := range got.Explanation {
			sum += term.Contribution
		}
		if len(got.Explanation) > 0 && math.Abs(sum-got.Score) > 1e-12 {
			t.Errorf("%s: the contributions add up to %v, not to %v", name, sum, got.Score)
		}
	}
}
