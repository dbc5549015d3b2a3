package rule_test

import (
	"errors"
	"strings"
	"testing"

	"kindred/domain/rule"
)

// A text that is no rule is refused with its place, and in words that name nothing of a parser.
func TestWhatIsNoRuleIsRefusedInWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`traits.age >`:                                      "line 1, column 13: The rule ends where something is missing.",
		`(traits.age > 30`:                                  "line 1, column 17: ')' is missing at the end.",
		`traits.age > 30 30`:                                "line 1, column 17: '30' does not belong here.",
		`traits.age > 30 && && a`:                           "line 1, column 20: '&&' does not belong here.",
		"traits.plan ==\n  \"pro":                           "line 2, column 3: This cannot be read: \"pro.",
		`traits.age # 30`:                                   "line 1, column 12: This cannot be read: #.",
		`traits.age = 30`:                                   "line 1, column 12: A comparison is written ==, not =.",
		`traits.plan == "string`:                            "line 1, column 16: This cannot be read: \"string.",
		`traits.tags[`:                                      "line 1, column 13: The rule ends where something is missing.",
		`traits.a == 1 and traits.b == 2`:                   "line 1, column 15: 'and' does not belong here: && is and, || is or, ! is not.",
		`not traits.a`:                                      "line 1, column 5: 'traits' does not belong here.",
		`traits.a | traits.b`:                               "line 1, column 10: What joins comparisons is written && or ||.",
		`traits.a == True`:                                  "line 1, column 13: It is written true and false.",
		`traits.first-name == "x"`:                          `line 1, column 14: A rule knows nothing of the name 'name'. A name with a hyphen is written traits["first-name"].`,
		`traits.a - b > 1`:                                  "line 1, column 12: A rule knows nothing of the name 'b'.",
		`"a" in 3`:                                          "line 1, column 5: There is no 'in' applied to '(text, number)'.",
		`traits.a == 9223372036854775808`:                   "line 1, column 13: A whole number has 18 digits at most: write a longer one with a point, such as 9223372036854775808.0.",
		`[1]["x"] == 1`:                                     "line 1, column 4: Only an object has members.",
		`traits.b || (-traits.a).b == 1`:                    "line 1, column 14: What - makes is a number: it has no members, and is neither a text nor a list.",
		`(-traits.a).contains("x")`:                         "line 1, column 2: What - makes is a number: it has no members, and is neither a text nor a list.",
		`(-traits.a)[0] == 1`:                               "line 1, column 2: What - makes is a number: it has no members, and is neither a text nor a list.",
		`(-traits.a).exists(p, p == 1)`:                     "line 1, column 2: What - makes is a number: it has no members, and is neither a text nor a list.",
		`has(traits)`:                                       `line 1, column 5: A member stands in has: has(traits.home.city), or has(traits["odd name"]).`,
		`traits.l.exists(__result__, __result__ == 1)`:      "line 1, column 17: The elements take another name in exists and all.",
		strings.Repeat("traits.a + ", 60) + "1 > 2":         "line 1, column 1: A rule nests 48 deep at most, and a sum as often as it has parts.",
		"traits.a in [1" + strings.Repeat(",1", 1200) + "]": "line 1, column 1: A rule has 1024 names, values and operators at most.",
		`within(traits.seen, "30d"`:                         "line 1, column 26: ')' is missing at the end.",
	} {
		_, err := rule.Parse(text, rule.Users)
		wrong, ok := errors.AsType[*rule.Error](err)
		if !ok || wrong.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}
