package readapi

import (
	"strings"
	"testing"

	"kindred/domain/event"
)

func TestAVerdictSaysWhyThereIsAContinuum(t *testing.T) {
	for words, agreement := range map[string]*float64{"gradually": nil, "not settled": new(0.7)} {
		body := verdictBody(&event.ClusteringJudged{Verdict: "continuum", Agreement: agreement})
		if !strings.Contains(body.Explanation, words) || body.Agreement != agreement {
			t.Errorf("%+v does not say %q", body, words)
		}
	}
}
