package rule_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kindred/domain/rule"
)

// A rule of a set says of whomever what it says alone, until the same moment, in as many steps or none.
func TestARuleOfASetJudgesAsItDoesAlone(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	excluded, joined := 0, 0 // judgements that are saved, and joined comparisons that are true
	rapid.Check(t, func(t *rapid.T) {
		set := rule.NewSet()
		var rules []*rule.Rule
		var together []*rule.InSet
		var isJoined []bool
		for range rapid.IntRange(1, 6).Draw(t, "rules") {
			text := drawLogic(t, 2, false).ours
			if rapid.Bool().Draw(t, "window") {
				text = "(" + text + ") || " + rapid.SampledFrom([]string{`within(traits.d, "2d")`, `older(traits.d, "1d")`, `in_segment("seg_04hk8ls48pkqs04hk8ls48pkqs")`}).Draw(t, "part")
			}
			if rapid.Bool().Draw(t, "needs") {
				text = rapid.SampledFrom([]string{`traits.a == 1`, `traits.b < 2`, `within(traits.d, "2d")`, `!(older(traits.d, "1d"))`}).Draw(t, "needed") + " && (" + text + ")"
			}
			plain := rapid.Bool().Draw(t, "plain")
			if plain {
				text = drawJoined(t)
			}
			r, err := rule.Parse(text, rule.Users)
			if err != nil {
				t.Skip(err.Error())
			}
			isJoined = append(isJoined, plain)
			rules, together = append(rules, r), append(together, set.Add(r))
		}
		for range 8 {
			facts := &rule.Facts{Traits: drawTraits(t, []string{"a", "b", "c", "o", "l"}, 2), Now: now}
			facts.Traits["d"] = now.Add(-time.Duration(rapid.IntRange(0, 72).Draw(t, "hours")) * time.Hour).Format(time.RFC3339)
			set.Next(facts)
			for i, r := range rules {
				facts.InSegment = func(string) bool { return i%2 == 0 }
				if together[i].Excluded() {
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
				if isJoined[i] && truth == rule.True {
					joined++
				}
				if got, at, took := together[i].JudgeUntil(facts); got != truth || !at.Equal(until) || took != steps && took != 0 {
					t.Fatalf("rule %d: %v until %v in %d steps, alone %v until %v in %d", i, got, at, took, truth, until, steps)
				}
			}
		}
	})
	if !t.Failed() && (excluded < 20 || joined < 20) {
		t.Errorf("%d judgements were saved, %d joined comparisons true", excluded, joined)
	}
}

// drawJoined draws comparisons with what drawTraits may draw, joined by &&.
func drawJoined(t *rapid.T) string {
	var parts []string
	for range rapid.IntRange(1, 4).Draw(t, "parts") {
		path := rapid.SampledFrom([]string{"traits.a", "traits.b", `traits["c"]`, "traits.l", "traits.o", "traits.o.a", `traits.o["b"].c`, "traits.none"}).Draw(t, "path")
		value := func() string {
			return rapid.SampledFrom([]string{"0", "1", "2.5", "-3.0", `"x"`, `"jazz"`, `"a"`, `""`, "true", "false"}).Draw(t, "value")
		}
		parts = append(parts, rapid.SampledFrom([]string{
			path, "!" + path, "has(" + path + ")", "has(" + path + ") == true", "has(" + path + ") in [" + value() + ", false]", path + " in [" + value() + ", " + value() + "]", path + " in [" + value() + ", traits.b]", value() + " in " + path,
			path + rapid.SampledFrom([]string{" == ", " == ", " != ", " < ", " <= ", " > ", " >= "}).Draw(t, "operator") + value(),
		}).Draw(t, "part"))
	}
	return strings.Join(parts, " && ")
}

// An element that stands in a list twice counts twice, which is no reason to take the rule for true.
func TestARuleOfASetIsNotTrueByAnElementThatStandsTwice(t *testing.T) {
	set := rule.NewSet()
	in := set.Add(parsed(t, `"jazz" in traits.likes && traits.age == 30`, rule.Users))
	facts := &rule.Facts{Traits: map[string]any{"likes": []any{"jazz", "jazz"}, "age": 31.0}}
	set.Next(facts)
	if truth, _, _ := in.JudgeUntil(facts); truth != rule.False {
		t.Errorf("it is %v", truth)
	}
}

// Each of these rules is true of its user, whatever other rule the set holds.
func TestARuleOfASetIsNotTakenForAnotherOne(t *testing.T) {
	for _, texts := range [][]string{
		{`has(traits.a) == true`},
		{`has(traits.a) != false`},
		{`has(traits.none) == false`},
		{`has(traits.a) in [true]`},
		{`traits.o.b == 2`, `traits["o\x00b"] == 3`},
		{`traits["o\x00b"] == 3`, `traits.o.b == 2`},
		{`user.external_id == "ada"`},
		{`traits.a == traits.b && traits.a in [traits.b]`},
		{`traits.four in traits.l`},
		{`traits.l[0] == 4`},
		{`traits["l"][0] == 4 && !has(traits.none)`},
	} {
		set := rule.NewSet()
		var all []*rule.InSet
		for _, text := range texts {
			all = append(all, set.Add(parsed(t, text, rule.Users)))
		}
		facts := &rule.Facts{Traits: map[string]any{"a": 1.0, "b": 1.0, "o": map[string]any{"b": 2.0}, "o\x00b": 3.0, "four": 4.0, "l": []any{4.0}}, ExternalID: "ada"}
		set.Next(facts)
		for i, in := range all {
			if truth, _, _ := in.JudgeUntil(facts); truth != rule.True || in.Excluded() {
				t.Errorf("%s of %q is %v, excluded: %v", texts[i], texts, truth, in.Excluded())
			}
		}
	}
}

// Elements are looked at once, however often a rule asks for one, and are counted as what that takes.
func TestToCountARuleIsBoundedByItsTextAndTheTraits(t *testing.T) {
	list := make([]any, 60_000)
	for i := range list {
		list[i] = "x"
	}
	facts := &rule.Facts{Traits: map[string]any{"l": list}}
	steps := func(text string) int {
		set := rule.NewSet()
		in := set.Add(parsed(t, text, rule.Users))
		took := set.Next(facts)
		if in.Excluded() {
			t.Errorf("%.40s is excluded", text)
		}
		return took
	}
	once := steps(`"x" in traits.l`)
	if often := steps(strings.Repeat(`"x" in traits.l && `, 100) + `"x" in traits.l`); often != once {
		t.Errorf("it takes %d steps, and %d if asked once", often, once)
	}
	if once < 2*len(list) || once > 3*len(list) {
		t.Errorf("%d elements take %d steps", len(list), once)
	}
	set := rule.NewSet()
	for range 100 {
		set.Add(parsed(t, `"x" in traits.l`, rule.Users))
	}
	if took := set.Next(facts); took < 20*len(list) || took > 30*len(list) {
		t.Errorf("100 rules that are counted at each of %d elements take %d steps", len(list), took)
	}
	set = rule.NewSet()
	set.Add(parsed(t, `has(traits.one.by.another)`, rule.Users))
	if took := set.Next(facts); took != 3 {
		t.Errorf("a path of three names takes %d steps", took)
	}
}

// What takes more steps than a rule has is unknown, though a look at it holds.
func TestARuleOfASetIsExhaustedAsItIsAlone(t *testing.T) {
	facts := &rule.Facts{Traits: map[string]any{"l": slices.Repeat([]any{1.0}, 200_000)}}
	for _, text := range []string{`traits.l != 2`, `traits["l"] != "x"`, `1 in traits.l`, `has(traits.l) && traits.l != 2`} {
		r, set := parsed(t, text, rule.Users), rule.NewSet()
		in := set.Add(r)
		set.Next(facts)
		alone, _, _ := r.JudgeUntil(facts)
		if truth, _, _ := in.JudgeUntil(facts); truth != rule.Unknown || alone != rule.Unknown || in.Excluded() {
			t.Errorf("%s is %v, alone %v, excluded: %v", text, truth, alone, in.Excluded())
		}
	}
}

// What is nothing but looks at the traits is excluded of exactly those of whom it is not true.
func TestLooksExcludeARuleWhereTheyDoNotHold(t *testing.T) {
	var texts []string
	for _, number := range []string{"3", "-1", "7", "2.5", "0"} {
		for _, operator := range []string{">", "<", ">=", "<=", "==", "!="} {
			texts = append(texts, "traits.a "+operator+" "+number)
		}
	}
	texts = append(texts, `traits.a != "x" && traits.a != true`, `traits.a > -1 && traits.a < 3`, `traits.a == 3 && traits.b == 3`, `traits.a`, `has(traits.a)`, `has(traits.o.a)`,
		`traits.a in ["x", 3, 3, true]`, `traits.a in []`, `traits.a in [3, 3.0] && traits.b == 4`, `traits.o.a == 3`, `"x" in traits.l`, `3 in traits.l && true in traits.l`, `3 in traits.l && 3 in traits.l`, `"a" in traits.o`, `"b" in traits.o`, `3 in traits.o`)
	set := rule.NewSet()
	var rules []*rule.Rule
	var all []*rule.InSet
	for _, text := range texts {
		r := parsed(t, text, rule.Users)
		rules, all = append(rules, r), append(all, set.Add(r))
		set.Next(&rule.Facts{}) // whenever a rule is added, its bounds are in order
	}
	for _, v := range []any{nil, "x", "", true, false, 3.0, 7.0, -1.0, 2.5, 2.0, 0.0, 99.0, -99.0, []any{"x", 3.0, []any{}}, []any{3.0, true, nil}, map[string]any{"a": 3.0, "b": nil}} {
		for _, name := range []string{"a", "o", "l"} {
			facts := &rule.Facts{Traits: map[string]any{name: v, "b": 3.0}}
			set.Next(facts)
			for i, in := range all {
				if truth := rules[i].Judge(facts); in.Excluded() != (truth != rule.True) {
					t.Errorf("%s of %v is %v, excluded: %v", texts[i], facts.Traits, truth, in.Excluded())
				}
			}
		}
	}
}
