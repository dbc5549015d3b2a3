package e2e

import (
	"strings"
	"testing"

	"kindred/cmd/kindred/demo"
)

func TestTheDemoTellsItsWholeStory(t *testing.T) {
	t.Parallel()
	s := shared(t)
	var out strings.Builder
	err := demo.Run(t.Context(), demo.Options{URL: s.URL, Out: &out, Users: 250, Seed: 1, Patience: patience})
	if err != nil {
		t.Fatalf("%v, after:\n%s", err, &out)
	}
	for _, want := range []string{
		"campaign.budget_exhausted   1\n", "clustering.completed        2\n", "clustering.failed           1\n", "match.computed              13\n",
		"clusters kept their ids", "All as it should be",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the story does not say %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "cluster.drift_detected      0\n") {
		t.Errorf("no drift was told:\n%s", &out)
	}
}
