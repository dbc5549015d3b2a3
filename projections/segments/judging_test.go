package segments

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"kindred/domain/fault"
	"kindred/domain/rule"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

func TestNobodyIsJudgedWithoutAPlace(t *testing.T) {
	m := Model{Reader: readmodel.Reader{Judging: readmodel.NewJudging()}}
	facts, found := explainable(1)
	for what, judge := range map[string]func(ctx context.Context) error{
		"judged":    func(ctx context.Context) error { return m.judged(ctx, "a", true, nil, nil, judgedByID, nil, nil) },
		"explained": func(ctx context.Context) error { return m.explain(ctx, "a", found, facts, newKnown(), maxExplained) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var within func(taken int) error
		within = func(taken int) error {
			if taken == (runtime.GOMAXPROCS(0)+1)/2 { // all that one client may have
				cancel()
				return judge(ctx)
			}
			return m.Judging.Do(t.Context(), "a", func() error { return within(taken + 1) })
		}
		if err := within(0); !fault.Is(err, "overloaded") {
			t.Errorf("users are %s without a place: %v", what, err)
		}
	}
}

// explainable is a user, and segments whose rules look at many things of it.
func explainable(segments int) (facts *rule.Facts, found []SegmentOfUser) {
	list := make([]any, 1_000)
	for i := range list {
		list[i] = float64(i)
	}
	for range segments {
		found = append(found, SegmentOfUser{Segment: Segment{Rule: `traits.list.exists(n, n == -1) || traits.list.exists(n, n == -2) || traits.n == 1`}})
	}
	return &rule.Facts{Traits: map[string]any{"list": list, "n": 1.}}, found
}

// What explains the segments of a user ends, however many there are: those behind are told without.
func TestOnlySoMuchOfAUserIsExplained(t *testing.T) {
	facts, found := explainable(10)
	m := Model{Reader: readmodel.Reader{Judging: readmodel.NewJudging()}}
	if err := m.explain(t.Context(), "a", found, facts, newKnown(), 50_000); err != nil {
		t.Fatal(err)
	}
	left := slices.IndexFunc(found, func(s SegmentOfUser) bool { return s.Why == nil })
	if left < 2 || slices.ContainsFunc(found[max(left, 0):], func(s SegmentOfUser) bool { return s.Why != nil }) {
		t.Errorf("of 10, %d are explained at first, by 50,000 steps: %+v", left, found)
	}
	if err := m.explain(t.Context(), "a", found, facts, newKnown(), maxExplained); err != nil {
		t.Fatal(err)
	}
	for i, s := range found {
		if len(s.Why) != 3 || s.Why[0].Truth != rule.False || s.Why[2].Truth != rule.True {
			t.Errorf("%d: %+v", i, s.Why)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.explain(gone, "a", found, facts, newKnown(), maxExplained); !errors.Is(err, context.Canceled) {
		t.Errorf("it goes on for who has gone: %v", err)
	}
}

// A preview ends in time, however few have granted its layer: each was opened.
func TestWhoHasNotGrantedALayerTakesSteps(t *testing.T) {
	parsed := testkit.Must(rule.Parse(`traits.n > 1`, rule.Users))(t)
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

// What finds the rules that do not name a user takes steps, too: they may be many, and its traits long.
func TestWhomNoRuleNamesTakesSteps(t *testing.T) {
	parsed := testkit.Must(rule.Parse(`1 in traits.l`, rule.Users))(t)
	c := &segmented{spend: freely, definitions: definitions{set: rule.NewSet()}}
	for number := range 300 {
		c.ordered = append(c.ordered, &segmentVersion{number: number, rule: parsed, inSet: c.set.Add(parsed)})
	}
	u := &segmentUser{facts: &rule.Facts{Traits: map[string]any{"l": slices.Repeat([]any{2.}, 1_000)}}, known: newKnown()}
	in, _, err := c.judge(u, c.ordered)
	if least := 2*1_000 + 300/excludedInAStep; err != nil || len(in) > 0 || c.steps < least || c.steps > least+10 {
		t.Errorf("it is in %v by %d steps, of %d: %v", in, c.steps, least, err)
	}
}
