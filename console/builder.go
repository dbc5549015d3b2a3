package console

import (
	"regexp"
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
		{"there", say("builder.is_there")},
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
	OneKey                   bool // the trait's name is one key, with its dots
}

// build is the builder of a page whose rule stands in the field back, and the rule that
// was built; "": none was.
func (p *page) build(action, back string, schema *kindred.TraitSchema) (b builder, rule string, err error) {
	asked := p.r.URL.Query()
	b = builder{Action: action, Back: back, Comparisons: comparisons(), Lines: make([]line, builtLines), Open: asked.Get("built") != ""}
	types := map[string]kindred.TraitType{}
	if schema != nil {
		for _, t := range schema.Traits {
			types[t.Path] = t.Type
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
		if l.OneKey, err = p.isOneKey(l.Trait); err != nil {
			return b, "", err
		}
		parts = append(parts, l.rule(types[l.Trait]))
	}
	return b, strings.Join(parts, " && "), nil
}

// isOneKey says whether users have a trait that is named with dots, rather than one below
// another: a path tells them apart no more.
func (p *page) isOneKey(path string) (bool, error) {
	if !strings.Contains(path, ".") {
		return false, nil
	}
	preview, err := p.api.Segments.PreviewRule(p.r.Context(), kindred.RuleToPreview{Rule: "has(traits[" + quoted(path) + "])"})
	switch {
	case err == nil:
		return preview.Members > 0, nil
	case problemOf(err).Field("rule") != "": // it may not be read: the rule itself is told so
		return false, nil
	}
	return false, err
}

// rule is a line as a rule.
func (l line) rule(kind kindred.TraitType) string {
	names := strings.Split(l.Trait, ".")
	if l.OneKey {
		names = []string{l.Trait}
	}
	for i, name := range names {
		if names[i] = "." + name; !plainName.MatchString(name) {
			names[i] = "[" + quoted(name) + "]"
		}
	}
	at := "traits" + strings.Join(names, "")
	value := quoted(l.Value)
	_, beyond := strconv.ParseFloat(l.Value, 64)
	switch {
	case (kind == kindred.TraitTypeNumber || kind == "") && plainNumber.MatchString(l.Value) && beyond == nil:
		if value = l.Value; len(strings.TrimLeft(value, "-")) > 18 && !strings.Contains(value, ".") {
			value += ".0" // as rules take whole numbers of more digits
		}
	case kind == kindred.TraitTypeBool && (l.Value == "true" || l.Value == "false"):
		value = l.Value
	}
	switch l.Comparison {
	case "not":
		return at + " != " + value
	case "over":
		return at + " > " + value
	case "under":
		return at + " < " + value
	case "has":
		return value + " in " + at
	case "within":
		return "within(" + at + ", " + value + ")"
	case "there":
		return "has(" + at + ")"
	}
	return at + " == " + value
}

// plainNumber is how numbers are written in rules.
var plainNumber = regexp.MustCompile(`^-?\d+(\.\d+)?$`)

var plainName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
