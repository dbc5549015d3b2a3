package rule_test

import (
	"fmt"
	"strings"
	"testing"

	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/testkit"
)

// warnings are those of a rule where nobody was met who has what the schema has not.
func warnings(t *testing.T, text string, schema traits.Schema) []*rule.Error {
	t.Helper()
	r := parsed(t, text, rule.Users)
	return r.Warnings(schema, r.Unknown(schema))
}

// What seems not to be meant is told with its place, and what may be meant is not.
func TestARuleIsWarnedOf(t *testing.T) {
	t.Parallel()
	schema := traits.Schema{Traits: []traits.Trait{
		{Path: "age", Type: traits.TypeNumber},
		{Path: "born", Type: traits.TypeDate},
		{Path: "home.city", Type: traits.TypeCategory},
		{Path: "joined", Type: traits.TypeDate, Format: traits.FormatUnix},
		{Path: "last", Type: traits.TypeDate, Format: traits.FormatDayTime},
		{Path: "likes", Type: traits.TypeSet},
		{Path: "pets", Type: traits.TypeSet},
		{Path: "plan", Type: traits.TypeCategory},
		{Path: "price", Type: traits.TypeNumber, Format: traits.FormatUnit},
		{Path: "vip", Type: traits.TypeBool},
	}}
	for text, want := range map[string]string{
		`traits.agee > 30`: "line 1, column 7: No user that was looked at has traits.agee. Did you mean traits.age?",
		"traits.age > 30 &&\n traits.home.town == \"x\"":       "line 2, column 13: No user that was looked at has traits.home.town.",
		`has(traits.plam) || dyn(traits).lykes == 1`:           "traits.plam. Did you mean traits.plan? | traits.lykes. Did you mean traits.likes?",
		`traits.age > "30"`:                                    "column 7: traits.age holds numbers, which are written without quotes.",
		`"30" == traits.age`:                                   "traits.age holds numbers",
		`traits.born > 2000`:                                   "traits.born holds dates",
		`traits.vip == "yes"`:                                  "traits.vip is true or false",
		`traits.likes == "jazz"`:                               "traits.likes holds lists",
		`traits.price > 3`:                                     "traits.price holds texts of the form 1.5 kg",
		`within(traits.last, "3d") || older(traits.age, "1w")`: "column 14: traits.last holds dates as YYYY-MM-DD hh:mm, which are no times to a rule: those are as 2026-01-31, and as 2026-01-31T12:00:00Z. | column 42: traits.age holds no times.",
		`timestamp("2026-01-31T12:00:00Z") < traits.last`:      "traits.last holds dates as YYYY-MM-DD hh:mm",
		`older(traits.born, "1w") && traits.born < timestamp("2026-01-31T12:00:00Z") && within(user.created_at, "1d")`: "",
		`user.created_at > "2026-02-30" || 5 == user.updated_at`:                                                       "column 5: user.created_at is a time, and beside it is none: those are as 2026-01-31, and as 2026-01-31T12:00:00Z. | column 44: user.updated_at is a time",
		`user.created_at > "2026-02-28" && user.updated_at > traits.born && user.created_at < user.updated_at`:         "",
		`traits.joined > 1700000000 && traits.plan == "x"`:                                                             "",
		`traits.age > 30 && traits.vip && traits.plan != 3`:                                                            "",
		`"jazz" in traits.likes && traits.pets.exists(p, p.kind == "dog") && has(traits.home)`:                         "",
		`traits.born > "2000-01-01" && traits.age > traits.price && traits.age > size(traits.likes)`:                   "",
		`traits.agee > 30 && traits.agee < 40`:                                                                         "traits.agee. Did you mean traits.age?",
		`has(traits.age) == true && false != has(traits.likes)`:                                                        "",
	} {
		warned := warnings(t, text, schema)
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
	if warned := warnings(t, `traits.agee > 30`, traits.Schema{}); warned != nil {
		t.Errorf("where nothing was learnt: %v", warned)
	}
}

// A rule of 4 KiB reads hundreds of paths of thousands of letters, by way of a list of them: to
// compare these with all of a schema, letter by letter, takes minutes, and this test no end.
func TestWarningsOfLongPathsEnd(t *testing.T) {
	t.Parallel()
	var schema traits.Schema
	for i := range traits.MaxPaths {
		path := strings.Repeat("l", traits.MaxPathBytes-3) + fmt.Sprintf("%03d", i)
		schema.Traits = append(schema.Traits, traits.Trait{Path: path, Type: traits.TypeBool})
	}
	for _, long := range []int{traits.MaxPathBytes - 4, 1_300} { // as long as those of the schema, and the longest
		text := "[traits.a"
		for i := range 220 {
			text += fmt.Sprintf(",traits.a%d", i)
		}
		text += "].exists(x, x." + strings.Repeat("l", long) + ")"
		if warned := warnings(t, text, schema); len(warned) != 2*221 {
			t.Errorf("%d paths are warned of", len(warned))
		}
	}
}

func TestTheNearestPathIsAFewLettersAway(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	word := func() string {
		letters := []rune("abé")
		text := []rune{}
		for range 1 + random.IntN(9) {
			text = append(text, letters[random.IntN(len(letters))])
		}
		return string(text)
	}
	for range 500 {
		known, path := word(), word()
		near := distance([]rune(known), []rune(path)) < min(3, (len([]rune(path))+2)/3)
		warned := warnings(t, fmt.Sprintf(`has(traits[%q])`, path), traits.Schema{Traits: []traits.Trait{{Path: known}}})
		if known != path && strings.Contains(warned[0].Error(), "Did you mean") != near {
			t.Fatalf("%s beside %s: %v", path, known, warned)
		}
	}
}

// distance is how many letters are to be put in, taken out or replaced.
func distance(a, b []rune) int {
	switch {
	case len(a) == 0 || len(b) == 0:
		return len(a) + len(b)
	case a[0] == b[0]:
		return distance(a[1:], b[1:])
	}
	return 1 + min(distance(a[1:], b), distance(a, b[1:]), distance(a[1:], b[1:]))
}
