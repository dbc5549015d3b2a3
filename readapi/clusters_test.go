package readapi

import (
	"strings"
	"testing"

	"kindred/domain/event"
)

func TestAVerdictSaysWhyThereIsAContinuum(t *testing.T) {
	// Without an agreement the event does not say whether another number of clusters would find groups.
	for words, agreement := range map[string]*float64{"gradually": nil, "another number of clusters may find": nil, "not settled": new(0.7)} {
		body := verdictBody(&event.ClusteringJudged{Verdict: "continuum", Agreement: agreement})
		if !strings.Contains(body.Explanation, words) || body.Agreement != agreement {
			t.Errorf("%+v does not say %q", body, words)
		}
	}
}
