package rule_test

import (
	"errors"
	"testing"

	"kindred/domain/rule"
)

// A text that is no rule is refused with its place, and in words that name nothing of a parser.
func TestWhatIsNoRuleIsRefusedInWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`traits.age >`:              "line 1, column 13: The rule ends where something is missing.",
		`(traits.age > 30`:          "line 1, column 17: ')' is missing at the end.",
		`traits.age > 30 30`:        "line 1, column 17: '30' does not belong here.",
		`traits.age > 30 && && a`:   "line 1, column 20: '&&' does not belong here.",
		"traits.plan ==\n  \"pro":   "line 2, column 3: This cannot be read: \"pro.",
		`traits.age # 30`:           "line 1, column 12: This cannot be read: #.",
		`traits.age = 30`:           "line 1, column 12: A comparison is written ==, not =.",
		`traits.tags[`:              "line 1, column 13: The rule ends where something is missing.",
		`within(traits.seen, "30d"`: "line 1, column 26: ')' is missing at the end.",
	} {
		_, err := rule.Parse(text, rule.Users)
		wrong, ok := errors.AsType[*rule.Error](err)
		if !ok || wrong.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}
