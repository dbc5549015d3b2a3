package rule_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"kindred/domain/rule"
)

// A rule of a set says of whomever what it says alone, until the same moment, in as many steps.
func TestARuleOfASetJudgesAsItDoesAlone(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	met, excluded, guarded := 0, 0, 0 // comparisons that two rules of a set share, and judgements that they and guards save
	rapid.Check(t, func(t *rapid.T) {
		set, texts := rule.NewSet(), map[string]bool{}
		var rules []*rule.Rule
		var together []rule.InSet
		for range rapid.IntRange(1, 6).Draw(t, "rules") {
			text := drawLogic(t, 2, false).ours
			if rapid.Bool().Draw(t, "window") {
				text = "(" + text + ") || " + rapid.SampledFrom([]string{`within(traits.d, "2d")`, `older(traits.d, "1d")`, `in_segment("seg_00000000000000000000000001")`}).Draw(t, "part")
			}
			if rapid.Bool().Draw(t, "needs") {
				text = rapid.SampledFrom([]string{`traits.a == 1`, `traits.b < 2`, `within(traits.d, "2d")`, `!(older(traits.d, "1d"))`}).Draw(t, "needed") + " && (" + text + ")"
			}
			r, err := rule.Parse(text, rule.Users)
			if err != nil {
				t.Skip(err.Error())
			}
			all, _ := r.Explain(&rule.Facts{})
			for _, c := range all {
				if texts[c.Text] {
					met++
				}
				texts[c.Text] = true
			}
			rules, together = append(rules, r), append(together, set.Add(r))
		}
		for range 8 {
			set.Next()
			facts := &rule.Facts{Traits: drawTraits(t, []string{"a", "b", "c", "o", "l"}, 2), Now: now}
			facts.Traits["d"] = now.Add(-time.Duration(rapid.IntRange(0, 72).Draw(t, "hours")) * time.Hour).Format(time.RFC3339)
			for i, r := range rules {
				facts.InSegment = func(string) bool { return i%2 == 0 }
				beyond := rapid.Bool().Draw(t, "by its guard")
				if beyond {
					if beyond, _ = set.Excludes(together[i].Guard(), facts); beyond {
						guarded++
					}
				}
				if beyond || together[i].Excluded() {
					excluded++
					for _, hours := range []int{0, 1, 30, 1000} {
						later := *facts
						later.Now = now.Add(time.Duration(hours) * time.Hour)
						if truth, _, _ := r.JudgeUntil(&later); truth == rule.True {
							t.Fatalf("rule %d is excluded, and true after %d hours", i, hours)
						}
					}
				}
				truth, until, steps := r.JudgeUntil(facts)
				if got, at, took := together[i].JudgeUntil(facts); got != truth || !at.Equal(until) || took != steps {
					t.Fatalf("rule %d: %v until %v in %d steps, alone %v until %v in %d", i, got, at, took, truth, until, steps)
				}
			}
		}
	})
	if !t.Failed() && (met < 20 || excluded < 20 || guarded < 20) {
		t.Errorf("%d comparisons were shared, %d judgements saved, %d by guards", met, excluded, guarded)
	}
}
