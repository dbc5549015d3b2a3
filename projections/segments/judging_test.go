package segments

import (
	"context"
	"runtime"
	"testing"

	"kindred/domain/fault"
	"kindred/domain/rule"
	"kindred/projections/readmodel"
)

func TestNobodyIsJudgedWithoutAPlace(t *testing.T) {
	m := Model{Reader: readmodel.Reader{Judging: readmodel.NewJudging()}}
	ctx, cancel := context.WithCancel(t.Context())
	var within func(taken int) error
	within = func(taken int) error {
		if taken == (runtime.GOMAXPROCS(0)+1)/2 { // all that one client may have
			cancel()
			return m.judged(ctx, "a", true, nil, nil, judgedByID, nil, nil)
		}
		return m.Judging.Do(t.Context(), "a", func() error { return within(taken + 1) })
	}
	if err := within(0); !fault.Is(err, "overloaded") {
		t.Errorf("users are judged without a place: %v", err)
	}
}

// A preview ends in time, however few have granted its layer: each was opened.
func TestWhoHasNotGrantedALayerTakesSteps(t *testing.T) {
	parsed, err := rule.Parse(`traits.n > 1`, rule.Users)
	if err != nil {
		t.Fatal(err)
	}
	for _, granted := range []bool{true, false} {
		filter := rule.Filter{Rule: parsed}
		u := &segmentUser{facts: &rule.Facts{Traits: map[string]any{"n": 2.}}, known: newKnown()}
		u.known.granted["lay_1"] = granted
		for range 1_000 {
			if named := namedUnder("lay_1", &filter, u, 1_000_000); named != granted {
				t.Fatalf("granted %v, named %v", granted, named)
			}
		}
		if !filter.Exhausted() {
			t.Errorf("granted %v: the filter goes on", granted)
		}
	}
}
