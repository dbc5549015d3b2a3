package rule_test

import (
	"strings"
	"testing"

	"kindred/domain/rule"
	"kindred/domain/traits"
)

// What seems not to be meant is told with its place, and what may be meant is not.
func TestARuleIsWarnedOf(t *testing.T) {
	t.Parallel()
	schema := traits.Schema{Traits: []traits.Trait{
		{Path: "age", Type: traits.TypeNumber},
		{Path: "born", Type: traits.TypeDate},
		{Path: "home.city", Type: traits.TypeCategory},
		{Path: "joined", Type: traits.TypeDate, Format: traits.FormatUnix},
		{Path: "likes", Type: traits.TypeSet},
		{Path: "pets", Type: traits.TypeSet},
		{Path: "plan", Type: traits.TypeCategory},
		{Path: "price", Type: traits.TypeNumber, Format: traits.FormatUnit},
		{Path: "vip", Type: traits.TypeBool},
	}}
	for text, want := range map[string]string{
		`traits.agee > 30`: "line 1, column 7: No user that was looked at has traits.agee. Did you mean traits.age?",
		"traits.age > 30 &&\n traits.home.town == \"x\"":    "line 2, column 13: No user that was looked at has traits.home.town.",
		`has(traits.plam) || dyn(traits).lykes == 1`:        "traits.plam. Did you mean traits.plan? | traits.lykes. Did you mean traits.likes?",
		`traits.age > "30"`:                                 "column 7: traits.age holds numbers, which are written without quotes.",
		`"30" == traits.age`:                                "traits.age holds numbers",
		`traits.born > 2000`:                                "traits.born holds dates",
		`traits.vip == "yes"`:                               "traits.vip is true or false",
		`traits.likes == "jazz"`:                            "traits.likes holds lists",
		`traits.price > 3`:                                  "traits.price holds texts such as 1.5 kg",
		`traits.joined > 1700000000 && traits.plan == "x"`:  "",
		`traits.age > 30 && traits.vip && traits.plan != 3`: "",
		`"jazz" in traits.likes && traits.pets.exists(p, p.kind == "dog") && has(traits.home)`: "",
		`traits.born > "2000-01-01" && traits.age > traits.price`:                              "",
	} {
		warned := parsed(t, text, rule.Users).Warnings(schema)
		wanted := strings.Split(want, " | ")
		if want == "" {
			wanted = nil
		}
		if len(warned) != len(wanted) {
			t.Errorf("%s: %v, not %q", text, warned, wanted)
			continue
		}
		for i, part := range wanted {
			if !strings.Contains(warned[i].Error(), part) {
				t.Errorf("%s: %v, not %q", text, warned[i], part)
			}
		}
	}
	if warned := parsed(t, `traits.agee > 30`, rule.Users).Warnings(traits.Schema{}); warned != nil {
		t.Errorf("where nothing was learnt: %v", warned)
	}
}
