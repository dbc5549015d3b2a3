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
		`not traits.a`:                                      "line 1, column 5: 'traits' does not belong here. ! is not.",
		`traits.a | traits.b`:                               "line 1, column 10: What joins comparisons is written && or ||.",
		`traits.a == True`:                                  "line 1, column 13: It is written true and false.",
		`traits.first-name == "x"`:                          `line 1, column 14: A rule knows nothing of the name 'name'. A name with a hyphen is written traits["first-name"].`,
		`traits.a - b > 1`:                                  `line 1, column 12: A rule knows nothing of the name 'b'. If it is a trait, write traits.b, and if it is a text, "b".`,
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
		`plan == "pro"`:                                     `line 1, column 1: A rule knows nothing of the name 'plan'. If it is a trait, write traits.plan, and if it is a text, "plan".`,
		`viewer.traits.plan == "pro"`:                       "line 1, column 1: A rule knows nothing of the name 'viewer'.",
		`Traits.plan == "pro"`:                              "line 1, column 1: A rule knows nothing of the name 'Traits'. It is written traits.",
		`traits.name.startswith("A")`:                       "line 1, column 23: A rule knows nothing of the name 'startswith'. It is written startsWith.",
		`lower(traits.name) == "ada"`:                       "line 1, column 6: A rule knows nothing of the name 'lower'.",
		`int(traits.age) > 3`:                               "line 1, column 4: A rule knows nothing of the name 'int'.",
		`traits.plan LIKE "pro%"`:                           "line 1, column 13: 'LIKE' does not belong here: texts are searched by contains, startsWith, endsWith and matches.",
		`traits.age BETWEEN 20 AND 30`:                      "line 1, column 12: 'BETWEEN' does not belong here: two comparisons are joined by &&.",
		`traits.city IS NOT NULL`:                           "line 1, column 13: 'IS' does not belong here: == is is, and what is there is asked for by has(…).",
		`traits.city == NULL`:                               "line 1, column 16: What is missing or null is asked for by has(…).",
		`traits.plan IN ["pro"]`:                            "line 1, column 13: 'IN' does not belong here: it is written in.",
		`traits.plan == “pro”`:                              `line 1, column 16: A text stands in plain quotes: "pro".`,
		`traits.age => 30`:                                  "line 1, column 12: At least is written >=, and at most <=.",
		`traits.plan == "a" || "b"`:                         "line 1, column 23: What is joined, or asked by ! or ?, is true or false, which this never is.",
		`traits.likes.any(x, x == "jazz")`:                  "line 1, column 17: A rule knows nothing of the name 'any'.",
		`traits.pets.exists(p.kind == "dog")`:               `line 1, column 19: What exists and all take is a name, and what is asked of each element by it: traits.pets.exists(p, p.kind == "dog").`,
		`size(traits.l).exists(x, x == 1)`:                  "line 1, column 5: What exists and all ask is the elements of a list, which this never is.",
		`(traits.a ? 1 : "b") == 1`:                         "line 1, column 11: There is no '? :' applied to '(any, number, text)'.",
		`-"x" == traits.a`:                                  "line 1, column 1: There is no '-' applied to '(text)'.",
		`traits.a == 1e999`:                                 "line 1, column 13: There is no number as large as this.",
		`if traits.paid then true`:                          "line 1, column 1: 'if' does not belong here.",
		`traits.home->city == "x"`:                          "line 1, column 13: '>' does not belong here.",
		`within(traits.seen, "30d"`:                         "line 1, column 26: ')' is missing at the end.",
	} {
		_, err := rule.Parse(text, rule.Users)
		wrong, ok := errors.AsType[*rule.Error](err)
		if !ok || wrong.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}
