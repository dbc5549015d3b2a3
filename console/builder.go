package console

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	kindred "kindred/sdk/go"
)

// builtLines is how many comparisons a rule is built of; with text it has any.
const builtLines = 3

// comparison is one that a rule can be built of.
type comparison struct{ Name, Label string }

func comparisons() []comparison {
	return []comparison{
		{"is", say("builder.is")},
		{"not", say("builder.is_not")},
		{"over", say("builder.is_over")},
		{"under", say("builder.is_under")},
		{"has", say("builder.holds")},
		{"within", say("builder.is_within_the_last")},
		{"older", say("builder.is_longer_ago_than")},
		{"there", say("builder.is_there")},
		{"missing", say("builder.is_missing")},
	}
}

// builder shows what a rule was built of.
type builder struct {
	Action, Back string
	Traits       []kindred.Trait
	Comparisons  []comparison
	Lines        []line
	Open         bool
}

type line struct {
	Trait, Comparison, Value string
	Keys                     []string // of the trait, where some of them hold dots
	Wrong                    string   // what it compares the trait with that the trait is not
}

// build is the builder of a page whose rule stands in the field back, and the rule that
// was built; "": none was, or a line of it is refused.
func (p *page) build(action, back string, schema *kindred.TraitSchema) (b builder, rule string, err error) {
	asked := p.r.URL.Query()
	b = builder{Action: action, Back: back, Comparisons: comparisons(), Lines: make([]line, builtLines), Open: asked.Get("built") != ""}
	known := map[string]kindred.Trait{}
	if schema != nil {
		for _, t := range schema.Traits {
			known[t.Path] = t
			if len(b.Traits) < allOf && t.Reason == nil {
				b.Traits = append(b.Traits, t)
			}
		}
	}
	var parts []string
	for i := range b.Lines {
		l := &b.Lines[i]
		for field, to := range map[string]*string{"trait": &l.Trait, "comparison": &l.Comparison, "value": &l.Value} {
			if all := asked[field]; b.Open && i < len(all) {
				*to = strings.TrimSpace(all[i])
			}
		}
		if l.Trait == "" {
			continue
		}
		if l.Wrong = l.unlike(known[l.Trait]); l.Wrong != "" {
			p.refused = problemOf(invalid("built", l.Wrong))
			continue
		}
		if l.Keys, err = p.dotted(l.Trait); err != nil {
			return b, "", err
		}
		parts = append(parts, l.rule(known[l.Trait]))
	}
	if p.refused.Field("built") != "" {
		return b, "", nil
	}
	return b, strings.Join(parts, " && "), nil
}

// spans are how a time that goes back from now is written.
var spans = regexp.MustCompile(`^\d+[mhdw]$`)

// unlike says why a line compares a trait with what it is not, as far as that was learnt; "" where it does not. A rule that is
// written as text is warned of the same, in words of rules.
func (l line) unlike(t kindred.Trait) string {
	kind := t.Type
	if t.Format != nil { // its values are texts that spell it
		kind = ""
	}
	ordered, back := l.Comparison == "over" || l.Comparison == "under", l.Comparison == "within" || l.Comparison == "older"
	switch {
	case l.Comparison == "there" || l.Comparison == "missing":
	case t.Type == kindred.TraitTypeGeo:
		return say("builder.is_a_place", l.Trait, reference(strings.Split(l.Trait, ".")))
	case t.Format != nil && t.Type == kindred.TraitTypeNumber && ordered:
		return say("builder.spells_numbers", l.Trait, *t.Format)
	case t.Format != nil && t.Type == kindred.TraitTypeDate && back:
		return say("builder.spells_dates", l.Trait, *t.Format)
	case back:
		if kind == kindred.TraitTypeNumber || kind == kindred.TraitTypeBool || kind == kindred.TraitTypeSet {
			return say("builder.holds_no_times", l.Trait)
		}
		if !spans.MatchString(l.Value) {
			return say("builder.write_a_span")
		}
	case kind == kindred.TraitTypeNumber && (l.Comparison == "has" || !isNumber(l.Value)):
		return say("builder.is_a_number", l.Trait)
	case kind == kindred.TraitTypeBool && (ordered || l.Comparison == "has" || l.Value != "true" && l.Value != "false"):
		return say("builder.is_true_or_false", l.Trait)
	case kind == kindred.TraitTypeSet && l.Comparison != "has":
		return say("builder.is_a_list", l.Trait)
	}
	return ""
}

// mostDots bounds the dots of a path whose keys are asked for, by a preview for each way to read it.
// limit: edge | dots of a trait's path of which the console's builder finds those in keys | {mostDots}
const mostDots = 3

// dotted are the keys of a trait of which some are named with dots, as users have it; nil where each dot stands between
// two keys: a path tells them apart no more.
func (p *page) dotted(path string) ([]string, error) {
	names := strings.Split(path, ".")
	ways := 1<<min(len(names)-1, mostDots) - 1
	if len(names)-1 > mostDots {
		ways = 1 // all of it is one key, or none is
	}
	for between := range ways { // a bit for each dot that stands between two keys: none, then others, but not all
		keys := []string{names[0]}
		for i, name := range names[1:] {
			if between>>i&1 == 1 {
				keys = append(keys, name)
			} else {
				keys[len(keys)-1] += "." + name
			}
		}
		preview, err := p.api.Segments.PreviewRule(p.r.Context(), kindred.RuleToPreview{Rule: "has(" + reference(keys) + ")"})
		switch {
		case err == nil && preview.Members > 0:
			return keys, nil
		case err != nil && problemOf(err).Field("rule") != "": // it may not be read: the rule itself is told so
			return nil, nil
		case err != nil:
			return nil, err
		}
	}
	return nil, nil
}

// reference is a trait in a rule, by its keys.
func reference(keys []string) string {
	parts := []string{"traits"}
	for _, key := range keys {
		if plainName.MatchString(key) && !slices.Contains(ruleWords, key) {
			parts = append(parts, "."+key)
		} else {
			parts = append(parts, "["+quoted(key)+"]")
		}
	}
	return strings.Join(parts, "")
}

// rule is a line as a rule.
func (l line) rule(t kindred.Trait) string {
	keys, kind := l.Keys, t.Type
	if keys == nil {
		keys = strings.Split(l.Trait, ".")
	}
	at := reference(keys)
	text, number := quoted(l.Value), withoutCommas(l.Value)
	if len(strings.TrimLeft(number, "-")) > 18 && !strings.ContainsAny(number, ".eE") {
		number += ".0" // as rules take whole numbers of more digits
	}
	value := text
	switch {
	case (kind == kindred.TraitTypeNumber && t.Format == nil || kind == "") && isNumber(l.Value):
		value = number
	case kind == kindred.TraitTypeBool && (l.Value == "true" || l.Value == "false"):
		value = l.Value
	}
	either := (kind == kindred.TraitTypeCategory || kind == kindred.TraitTypeSet) && spells(l.Value)
	switch l.Comparison {
	case "not":
		if either {
			return "!(" + at + " in [" + text + ", " + number + "])"
		}
		return at + " != " + value
	case "over":
		return at + " > " + value
	case "under":
		return at + " < " + value
	case "has":
		if kind == kindred.TraitTypeCategory || kind == kindred.TraitTypeSet && t.Format != nil {
			return at + ".contains(" + text + ")" // nothing is in what is one text
		}
		if either {
			return "(" + text + " in " + at + " || " + number + " in " + at + ")"
		}
		return value + " in " + at
	case "within":
		return "within(" + at + ", " + text + ")" // a span, such as 30d
	case "older":
		return "older(" + at + ", " + text + ")"
	case "there":
		return "has(" + at + ")"
	case "missing":
		return "!has(" + at + ")"
	}
	if either {
		return at + " in [" + text + ", " + number + "]"
	}
	return at + " == " + value
}

// spells says whether a text is what a number is shown as: a code, or an element of a list, may be the one or the other.
func spells(text string) bool {
	x, err := strconv.ParseFloat(text, 64)
	return err == nil && isNumber(text) && strconv.FormatFloat(x, 'f', -1, 64) == text
}

// withoutCommas is a number without those of its thousands.
func withoutCommas(number string) string {
	if amounts.MatchString(number) {
		return strings.ReplaceAll(number, ",", "")
	}
	return number
}

// isNumber says whether a text is a number of rules.
func isNumber(text string) bool {
	_, beyond := strconv.ParseFloat(withoutCommas(text), 64)
	return beyond == nil && plainNumber.MatchString(withoutCommas(text))
}

// plainNumber is how numbers are written in rules; large ones are shown as 1e+21.
var plainNumber = regexp.MustCompile(`^-?\d+(\.\d+)?([eE][+-]?\d+)?$`)

var plainName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// ruleWords mean something in rules: none stands behind a point.
var ruleWords = []string{"in", "true", "false", "null"}
