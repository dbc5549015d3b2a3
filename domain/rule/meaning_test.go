package rule_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"kindred/domain/rule"
	"kindred/domain/traits"
)

// meaning is a random rule with what it means by docs/rules.md, said once more, in the plainest way: with names
// that need quotes, null, numbers that no float64 holds, dates, and users beside viewers, of which cel-go knows
// nothing.
type meaning struct {
	text string
	of   func(w *judgedFacts) any // bool, float64, string, time.Time, []any, map[string]any; nil: unknown
}

// judgedFacts are what a rule is about.
type judgedFacts struct {
	mine, viewers    map[string]any
	facts, viewer    *rule.Facts
	element          any
	now              time.Time
	inSegment, grant map[string]bool
	acts             map[string][]time.Time
}

func (m meaning) truth(w *judgedFacts) rule.Truth {
	switch m.of(w) {
	case true:
		return rule.True
	case false:
		return rule.False
	}
	return rule.Unknown
}

var memberNames = []string{"a", "b", "o", "l", "a.b", "é", "e f", "in", "q\"\\", "", "\u2028", "A", "😀"}

func isName(name string) bool {
	return name == "a" || name == "b" || name == "o" || name == "l" || name == "A"
}

// access draws a way into something.
func (m meaning) access(t *rapid.T) meaning {
	for range rapid.IntRange(1, 2).Draw(t, "deep") {
		before := m
		// The traits themselves are no list, and a rule that takes them for one may be refused.
		if !strings.HasSuffix(before.text, "traits") && rapid.IntRange(0, 5).Draw(t, "number") == 0 {
			at := rapid.IntRange(-1, 2).Draw(t, "at")
			m = meaning{fmt.Sprintf("%s[%d]", before.text, at), func(w *judgedFacts) any {
				list, _ := before.of(w).([]any)
				if at < 0 || at >= len(list) {
					return nil
				}
				return list[at]
			}}
			continue
		}
		name := rapid.SampledFrom(memberNames).Draw(t, "name")
		if name == "" {
			name = "b"
		}
		text := before.text + "." + name
		if !isName(name) || rapid.Bool().Draw(t, "quoted") {
			text = before.text + "[" + quoted(t, name) + "]"
		}
		m = meaning{text, func(w *judgedFacts) any {
			object, _ := before.of(w).(map[string]any)
			return object[name]
		}}
	}
	return m
}

func quoted(t *rapid.T, s string) string {
	switch rapid.IntRange(0, 3).Draw(t, "quotes") {
	case 0:
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\u2028", `\u2028`).Replace(s) + "'"
	case 1:
		if !strings.ContainsAny(s, "\"\\\n") {
			return `r"` + s + `"`
		}
	case 2:
		var b strings.Builder
		for _, r := range s {
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		return `"` + b.String() + `"`
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

type meanings struct{ element, pairs bool }

func (g meanings) root(t *rapid.T) meaning {
	traits := meaning{"traits", func(w *judgedFacts) any { return w.mine }}
	switch pick := rapid.IntRange(0, 7).Draw(t, "root"); {
	case pick < 3 && g.element:
		p := meaning{"p", func(w *judgedFacts) any { return w.element }}
		if pick == 0 {
			return p
		}
		return p.access(t)
	case pick == 3 && g.pairs:
		return meaning{"viewer.traits", func(w *judgedFacts) any { return w.viewers }}.access(t)
	}
	return traits.access(t)
}

var numberTexts = []string{"0", "1", "2", "3", "-1", "0.5", "-0.0", "1e3", "9007199254740993", "1e308", "0.1", "0x10", "1u", "5e-324"}

var someTexts = []string{"", "x", "X", "xy", "é", "e\u0301", "ß", "ẞ", "😀", "a\"b\\", "2026-02-28", "2026-03-01T12:00:00+02:00", "2026-02-28T12:00:00Z", "2026-02-29", "NaN", "null", "1", "\u2028", "\n"}

func parsedNumber(text string) float64 {
	if strings.HasPrefix(text, "0x") {
		n, _ := strconv.ParseInt(text[2:], 16, 64)
		return float64(n)
	}
	x, err := strconv.ParseFloat(strings.TrimSuffix(text, "u"), 64)
	if err != nil {
		panic(err)
	}
	return x
}

func (g meanings) value(t *rapid.T, depth int) meaning {
	pick := rapid.IntRange(0, 15).Draw(t, "value")
	if depth <= 0 && pick >= 3 && pick <= 6 {
		pick = 15
	}
	switch pick {
	case 0:
		text := rapid.SampledFrom(numberTexts).Draw(t, "number")
		return meaning{text, func(*judgedFacts) any { return parsedNumber(text) }}
	case 1:
		s := rapid.SampledFrom(someTexts).Draw(t, "text")
		return meaning{quoted(t, s), func(*judgedFacts) any { return s }}
	case 2:
		b := rapid.Bool().Draw(t, "bool")
		return meaning{strconv.FormatBool(b), func(*judgedFacts) any { return b }}
	case 3:
		operator := rapid.SampledFrom([]string{"+", "-", "*", "/"}).Draw(t, "operator")
		x, y := g.value(t, depth-1), g.value(t, depth-1)
		return meaning{"(" + dyn(x) + " " + operator + " " + dyn(y) + ")", func(w *judgedFacts) any {
			x, y := x.of(w), y.of(w)
			if x, is := x.(float64); is {
				y, is := y.(float64)
				if !is {
					return nil
				}
				r := map[string]float64{"+": x + y, "-": x - y, "*": x * y, "/": x / y}[operator]
				if math.IsNaN(r) || math.IsInf(r, 0) {
					return nil
				}
				return r
			}
			if operator != "+" {
				return nil
			}
			if x, is := x.(string); is {
				if y, is := y.(string); is {
					return x + y
				}
			}
			if x, is := x.([]any); is {
				if y, is := y.([]any); is {
					return append(append([]any{}, x...), y...)
				}
			}
			return nil
		}}
	case 4:
		c, x, y := g.logic(t, depth-1), g.value(t, depth-1), g.value(t, depth-1)
		return meaning{"(" + c.text + " ? " + dyn(x) + " : " + dyn(y) + ")", func(w *judgedFacts) any {
			switch c.truth(w) {
			case rule.True:
				return x.of(w)
			case rule.False:
				return y.of(w)
			}
			return nil
		}}
	case 5:
		var elements []meaning
		var texts []string
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			e := g.value(t, depth-1)
			elements, texts = append(elements, e), append(texts, dyn(e))
		}
		return meaning{"[" + strings.Join(texts, ", ") + "]", func(w *judgedFacts) any {
			list := []any{}
			for _, e := range elements {
				v := e.of(w)
				if v == nil {
					return nil
				}
				list = append(list, v)
			}
			return list
		}}
	case 6:
		x := g.value(t, depth-1)
		return meaning{"size(" + dyn(x) + ")", func(w *judgedFacts) any {
			switch v := x.of(w).(type) {
			case string:
				return float64(utf8.RuneCountInString(v))
			case []any:
				return float64(len(v))
			case map[string]any:
				there := 0.0
				for name := range v {
					if v[name] != nil {
						there++
					}
				}
				return there
			}
			return nil
		}}
	case 7:
		x := g.value(t, 0)
		return meaning{"-" + dyn(x), func(w *judgedFacts) any {
			if x, is := x.of(w).(float64); is {
				return -x
			}
			return nil
		}}
	case 8:
		switch which := rapid.IntRange(0, 4).Draw(t, "of user"); {
		case which == 0:
			return meaning{"user.external_id", func(w *judgedFacts) any {
				if w.facts.ExternalID == "" {
					return nil
				}
				return w.facts.ExternalID
			}}
		case which == 1:
			return meaning{"user.created_at", func(w *judgedFacts) any { return w.facts.CreatedAt }}
		case which == 2 && g.pairs:
			return meaning{"viewer.updated_at", func(w *judgedFacts) any { return w.viewer.UpdatedAt }}
		}
		return meaning{"user.updated_at", func(w *judgedFacts) any { return w.facts.UpdatedAt }}
	case 9:
		at := rapid.SampledFrom([]string{"2026-02-28T12:00:00Z", "2026-03-01T10:00:00+00:00", "2026-03-01"}).Draw(t, "timestamp")
		return meaning{fmt.Sprintf("timestamp(%q)", at), func(*judgedFacts) any { return plainMoment(at) }}
	default:
		return g.root(t)
	}
}

func dyn(m meaning) string { return "dyn(" + m.text + ")" }

// plainMoment reads a time; nil: it is none.
func plainMoment(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v
	case string:
		for _, layout := range []string{"2006-01-02", "2006-01-02T15:04:05Z07:00"} {
			if at, err := time.Parse(layout, v); err == nil {
				return at
			}
		}
	}
	return nil
}

// plainOrder is -1, 0 or 1; ok is false of two types.
func plainOrder(x, y any) (order int, ok bool) {
	_, isX := x.(time.Time)
	_, isY := y.(time.Time)
	if isX || isY {
		x, y := plainMoment(x), plainMoment(y)
		if x == nil || y == nil {
			return 0, false
		}
		return x.(time.Time).Compare(y.(time.Time)), true
	}
	switch x := x.(type) {
	case float64:
		if y, is := y.(float64); is {
			switch {
			case x < y:
				return -1, true
			case x > y:
				return 1, true
			}
			return 0, true
		}
	case string:
		if y, is := y.(string); is {
			return bytes.Compare([]byte(x), []byte(y)), true
		}
	case bool:
		if y, is := y.(bool); is {
			return map[bool]int{true: 1}[x] - map[bool]int{true: 1}[y], true
		}
	}
	return 0, false
}

// plainEqual is true, false or nil: what is missing of a list may be anything, and of an object is not there.
func plainEqual(x, y any) any {
	if x == nil || y == nil {
		return nil
	}
	if order, ok := plainOrder(x, y); ok {
		return order == 0
	}
	var pairs []any
	switch x := x.(type) {
	case []any:
		y, is := y.([]any)
		if !is || len(x) != len(y) {
			return false
		}
		for i := range x {
			pairs = append(pairs, plainEqual(x[i], y[i]))
		}
	case map[string]any:
		y, is := y.(map[string]any)
		if !is {
			return false
		}
		gone := func(_ string, v any) bool { return v == nil }
		x, y = maps.Clone(x), maps.Clone(y)
		maps.DeleteFunc(x, gone)
		maps.DeleteFunc(y, gone)
		if !slices.Equal(slices.Sorted(maps.Keys(x)), slices.Sorted(maps.Keys(y))) {
			return false
		}
		for k := range x {
			pairs = append(pairs, plainEqual(x[k], y[k]))
		}
	default:
		return false
	}
	switch {
	case slices.Contains(pairs, any(false)):
		return false
	case slices.Contains(pairs, nil):
		return nil
	}
	return true
}

func (g meanings) logic(t *rapid.T, depth int) meaning {
	pick := rapid.IntRange(0, 19).Draw(t, "logic")
	if depth <= 0 && pick < 6 {
		pick += 7
	}
	switch pick {
	case 0, 1, 2:
		operator, decides := " && ", false
		if rapid.Bool().Draw(t, "or") {
			operator, decides = " || ", true
		}
		x, y := g.logic(t, depth-1), g.logic(t, depth-1)
		return meaning{"(" + x.text + operator + y.text + ")", func(w *judgedFacts) any {
			a, b := x.of(w), y.of(w)
			_, aIs := a.(bool)
			_, bIs := b.(bool)
			switch {
			case a == decides || b == decides:
				return decides
			case aIs && bIs:
				return !decides
			}
			return nil
		}}
	case 3:
		x := g.logic(t, depth-1)
		return meaning{"!(" + x.text + ")", func(w *judgedFacts) any {
			if b, is := x.of(w).(bool); is {
				return !b
			}
			return nil
		}}
	case 4:
		c, x, y := g.logic(t, depth-1), g.logic(t, depth-1), g.logic(t, depth-1)
		return meaning{"(" + c.text + " ? " + x.text + " : " + y.text + ")", func(w *judgedFacts) any {
			switch c.of(w) {
			case true:
				return x.of(w)
			case false:
				return y.of(w)
			}
			return nil
		}}
	case 5:
		if g.element {
			return g.logic(t, depth-1)
		}
		all := rapid.Bool().Draw(t, "all")
		list, inner := g.root(t), meanings{element: true, pairs: g.pairs}.logic(t, depth-1)
		return meaning{fmt.Sprintf("%s.%s(p, %s)", list.text, map[bool]string{true: "all", false: "exists"}[all], inner.text), func(w *judgedFacts) any {
			elements, is := list.of(w).([]any)
			if !is {
				return nil
			}
			known := true
			for _, w.element = range elements {
				if w.element == nil {
					continue
				}
				switch inner.of(w) {
				case !all:
					return !all
				case all:
				default:
					known = false
				}
			}
			if !known {
				return nil
			}
			return all
		}}
	case 6, 7, 8, 9:
		operator := rapid.SampledFrom([]string{"==", "!=", "<", "<=", ">", ">="}).Draw(t, "comparison")
		x, y := g.value(t, depth-1), g.value(t, depth-1)
		text := dyn(x) + " " + operator + " " + dyn(y)
		if rapid.Bool().Draw(t, "bare") {
			text = x.text + " " + operator + " " + y.text
		}
		return meaning{text, func(w *judgedFacts) any {
			x, y := x.of(w), y.of(w)
			if x == nil || y == nil {
				return nil
			}
			switch operator {
			case "==":
				return plainEqual(x, y)
			case "!=":
				if same, known := plainEqual(x, y).(bool); known {
					return !same
				}
				return nil
			}
			order, ok := plainOrder(x, y)
			if !ok {
				return nil
			}
			return map[string]bool{"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[operator]
		}}
	case 10, 11:
		x := g.root(t)
		if x.text == "p" {
			x = meaning{"p.a", func(w *judgedFacts) any { o, _ := w.element.(map[string]any); return o["a"] }}
		}
		if strings.HasSuffix(x.text, "1]") || strings.HasSuffix(x.text, "2]") || strings.HasSuffix(x.text, "0]") {
			return g.logic(t, depth-1)
		}
		return meaning{"has(" + x.text + ")", func(w *judgedFacts) any { return x.of(w) != nil }}
	case 12, 13:
		x, in := g.value(t, depth-1), g.value(t, depth-1)
		text := dyn(x) + " in " + dyn(in)
		if rapid.Bool().Draw(t, "bare") {
			text = x.text + " in " + in.text
		}
		return meaning{text, func(w *judgedFacts) any {
			x, in := x.of(w), in.of(w)
			if x == nil || in == nil {
				return nil
			}
			switch in := in.(type) {
			case []any:
				if slices.ContainsFunc(in, func(e any) bool { return plainEqual(x, e) == true }) {
					return true
				}
				if slices.ContainsFunc(in, func(e any) bool { return e != nil && plainEqual(x, e) == nil }) {
					return nil
				}
				return false
			case map[string]any:
				name, is := x.(string)
				return is && in[name] != nil
			}
			return false
		}}
	case 14:
		x := g.root(t)
		f := rapid.SampledFrom([]string{"contains", "startsWith", "endsWith"}).Draw(t, "function")
		s := rapid.SampledFrom(someTexts).Draw(t, "part")
		return meaning{fmt.Sprintf("%s.%s(%s)", x.text, f, quoted(t, s)), func(w *judgedFacts) any {
			v, is := x.of(w).(string)
			if !is {
				return nil
			}
			return map[string]bool{"contains": strings.Contains(v, s), "startsWith": strings.HasPrefix(v, s), "endsWith": strings.HasSuffix(v, s)}[f]
		}}
	case 15, 16:
		x := g.value(t, 0)
		hours := map[string]int{"1h": 1, "2d": 48, "1w": 168, "60m": 1, "70w": 70 * 168}
		window := rapid.SampledFrom(slices.Sorted(maps.Keys(hours))).Draw(t, "window")
		older := rapid.Bool().Draw(t, "older")
		return meaning{fmt.Sprintf("%s(%s, %q)", map[bool]string{true: "older", false: "within"}[older], dyn(x), window), func(w *judgedFacts) any {
			at, is := plainMoment(x.of(w)).(time.Time)
			if !is {
				return nil
			}
			begins := w.now.Add(-time.Duration(hours[window]) * time.Hour)
			if older {
				return !at.After(begins)
			}
			return at.After(begins) && !at.After(w.now)
		}}
	case 17:
		switch rapid.IntRange(0, 3).Draw(t, "asked") {
		case 0:
			return meaning{fmt.Sprintf("in_segment(%q)", aSegment), func(w *judgedFacts) any { return w.inSegment[aSegment] }}
		case 1:
			return meaning{fmt.Sprintf("granted(%q)", aLayer), func(w *judgedFacts) any { return w.grant[aLayer] }}
		case 2:
			n := rapid.IntRange(0, 3).Draw(t, "count")
			return meaning{fmt.Sprintf(`interactions("click", "2d") < %d`, n), func(w *judgedFacts) any {
				is := 0
				for _, at := range w.acts["click"] {
					if at.After(w.now.Add(-48*time.Hour)) && !at.After(w.now) {
						is++
					}
				}
				return is < n
			}}
		}
		return meaning{fmt.Sprintf("seen(%q, \"1d\")", aCampaign), func(w *judgedFacts) any {
			times := w.acts[aCampaign]
			return len(times) > 0 && times[len(times)-1].After(w.now.Add(-24*time.Hour))
		}}
	default:
		return g.root(t)
	}
}

const (
	aSegment  = "seg_04hk8ls48pkqs04hk8ls48pkqs"
	aLayer    = "lay_04hk8ls48pkqs04hk8ls48pkqs"
	aCampaign = "cam_04hk8ls48pkqs04hk8ls48pkqs"
)

var jsonNumbers = []string{"0", "-0", "1", "2", "3", "1.0", "1E0", "10e-1", "0.1", "0.5", "-1", "1e400", "-1e999", "9007199254740993", "1e308", "5e-324", "1e-400", "123456789012345678901234567890"}

func drawJSON(t *rapid.T, depth int) string {
	switch pick := rapid.IntRange(0, 10).Draw(t, "json"); {
	case pick == 0:
		return "null"
	case pick == 1:
		return strconv.FormatBool(rapid.Bool().Draw(t, "bool"))
	case pick < 5:
		return rapid.SampledFrom(jsonNumbers).Draw(t, "number")
	case pick < 7:
		return jsonText(t, rapid.SampledFrom(someTexts).Draw(t, "text"))
	case pick < 9 && depth > 0:
		var elements []string
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			elements = append(elements, drawJSON(t, depth-1))
		}
		return "[" + strings.Join(elements, " ,") + "]"
	case pick < 11 && depth > 0:
		return drawJSONObject(t, depth-1)
	}
	return rapid.SampledFrom(jsonNumbers).Draw(t, "number")
}

func drawJSONObject(t *rapid.T, depth int) string {
	var members []string
	for _, name := range memberNames {
		if rapid.IntRange(0, 2).Draw(t, "there") > 0 {
			members = append(members, jsonText(t, name)+" : "+drawJSON(t, depth))
		}
	}
	return "{" + strings.Join(members, ",\n") + "}"
}

func jsonText(t *rapid.T, s string) string {
	if rapid.Bool().Draw(t, "escaped") {
		var b strings.Builder
		for _, r := range s {
			if r > 0xffff {
				fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
			} else {
				fmt.Fprintf(&b, `\u%04X`, r)
			}
		}
		return `"` + b.String() + `"`
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// plainJSON decodes, once more.
func plainJSON(t *rapid.T, doc string) map[string]any {
	decoder := json.NewDecoder(strings.NewReader(doc))
	decoder.UseNumber()
	var all map[string]any
	if err := decoder.Decode(&all); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	var plain func(v any) any
	plain = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			x, err := strconv.ParseFloat(string(v), 64)
			if err != nil {
				return nil
			}
			return x
		case []any:
			for i := range v {
				v[i] = plain(v[i])
			}
			return v
		case map[string]any:
			for k := range v {
				v[k] = plain(v[k])
			}
			return v
		}
		return v
	}
	return plain(all).(map[string]any)
}

// A rule means what the page about rules says, whatever stands in the traits and however it is judged: alone, in a
// set, of the members that it reads, part by part as each is shown, and until it is said to change by itself.
func TestARuleMeansWhatItIsSaidTo(t *testing.T) {
	judged := map[rule.Truth]int{}
	parts, excluded, flipped, alike := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		scope, g := rule.Users, meanings{}
		if rapid.Bool().Draw(t, "pairs") {
			scope, g.pairs = rule.Pairs, true
		}
		m := g.logic(t, 4)
		if rapid.Bool().Draw(t, "joined") {
			x, y := m, g.logic(t, 1)
			m = meaning{x.text + " && " + y.text, func(w *judgedFacts) any {
				a, b := x.of(w), y.of(w)
				switch {
				case a == false || b == false:
					return false
				case a == true && b == true:
					return true
				}
				return nil
			}}
		}
		r, err := rule.Parse(m.text, scope)
		if err != nil {
			for _, fine := range []string{"one another", "sensitive: name", "never is", "There is no"} {
				if strings.Contains(err.Error(), fine) {
					t.Skip(err.Error())
				}
			}
			t.Fatalf("%s: %v", m.text, err)
		}
		set := rule.NewSet()
		set.Add(parsedOf(t, "traits.a == 1 && traits.l == traits.b", scope))
		in := set.Add(r)
		filter := &rule.Filter{Rule: r}
		var trait []*rule.Rule
		for _, text := range filter.TraitParts() {
			trait = append(trait, parsedOf(t, text, rule.Users))
		}
		shown := map[string]*rule.Rule{}
		var before *rule.Facts
		var said rule.Truth
		var document string
		for range 6 {
			doc, viewers := drawJSONObject(t, 2), drawJSONObject(t, 1)
			hours := func(label string) time.Time {
				return now.Add(-time.Duration(rapid.IntRange(-3, 72).Draw(t, label)) * time.Hour)
			}
			facts := &rule.Facts{
				Client: "cli_1", ID: "usr_1", ExternalID: rapid.SampledFrom([]string{"", "x", "é"}).Draw(t, "external"),
				CreatedAt: hours("created"), UpdatedAt: hours("updated"), Now: now,
			}
			if wanted := rule.Members(r.Touched()); wanted == nil {
				facts.Traits, err = traits.All([]byte(doc))
			} else {
				facts.Traits, err = traits.Members([]byte(doc), wanted)
			}
			if err != nil {
				t.Fatal(err)
			}
			whole := *facts
			if whole.Traits, err = traits.All([]byte(doc)); err != nil {
				t.Fatal(err)
			}
			w := &judgedFacts{
				mine: plainJSON(t, doc), viewers: plainJSON(t, viewers), facts: facts, now: now,
				inSegment: map[string]bool{aSegment: rapid.Bool().Draw(t, "in segment")}, grant: map[string]bool{aLayer: rapid.Bool().Draw(t, "granted")},
				acts: map[string][]time.Time{},
			}
			for range rapid.IntRange(0, 3).Draw(t, "clicks") {
				w.acts["click"] = append(w.acts["click"], now.Add(-time.Duration(rapid.IntRange(0, 72).Draw(t, "click"))*time.Hour))
			}
			slices.SortFunc(w.acts["click"], time.Time.Compare)
			if rapid.Bool().Draw(t, "seen") {
				w.acts[aCampaign] = []time.Time{now.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "seen at")) * time.Hour)}
			}
			for _, f := range []*rule.Facts{facts, &whole} {
				f.InSegment = func(segment string) bool { return w.inSegment[segment] }
				f.Granted = func(layer string) bool { return w.grant[layer] }
				f.Acts = func(what string) []time.Time { return w.acts[what] }
			}
			if scope == rule.Pairs {
				w.viewer = &rule.Facts{UpdatedAt: now.Add(-30 * time.Hour)}
				if w.viewer.Traits, err = traits.All([]byte(viewers)); err != nil {
					t.Fatal(err)
				}
				facts.Viewer, whole.Viewer = w.viewer, w.viewer
			}
			want := m.truth(w)
			got, until, _ := r.JudgeUntil(facts)
			judged[got]++
			if got != want {
				t.Fatalf("%s\nof %s\nviewer %s\nis %d, and means %d", m.text, doc, viewers, got, want)
			}
			if all := r.Judge(&whole); all != want {
				t.Fatalf("%s\nof all of %s\nis %d, and means %d", m.text, doc, all, want)
			}
			comparisons, _ := r.Explain(facts)
			for _, c := range comparisons {
				if shown[c.Text] == nil {
					shown[c.Text] = parsedOf(t, c.Text, scope)
				}
				if is, flips, _ := shown[c.Text].JudgeUntil(facts); is != c.Truth || !flips.Equal(c.FlipsAt) {
					t.Fatalf("%s\nshows %s as %d until %v, which is %d until %v", m.text, c.Text, c.Truth, c.FlipsAt, is, flips)
				}
			}
			set.Next(facts)
			if in.Excluded() {
				excluded++
			}
			if one, at, _ := in.JudgeUntil(facts); one != want || !at.Equal(until) || in.Excluded() && want == rule.True {
				t.Fatalf("%s\nof %s\nis %d in a set until %v, and means %d until %v", m.text, doc, one, at, want, until)
			}
			decided := rule.True
			for _, part := range trait {
				if part.Judge(&rule.Facts{Client: "cli_1", ID: "usr_1", Traits: whole.Traits}) != rule.True {
					decided = rule.Unknown
				}
			}
			if parts += len(trait); want == rule.True && decided != rule.True || filter.OnlyTraitParts() && decided == rule.True && want != rule.True {
				t.Fatalf("%s\nof %s\nmeans %d, and its parts %q say %d", m.text, doc, want, filter.TraitParts(), decided)
			}
			for _, later := range []time.Duration{time.Minute, time.Hour, 5 * time.Hour, 25 * time.Hour, 50 * time.Hour, 200 * time.Hour, 80 * 168 * time.Hour} {
				w.now = now.Add(later)
				if !until.IsZero() && !w.now.Before(until) {
					flipped++
					w.now = until.Add(-time.Nanosecond)
				}
				if then := m.truth(w); then != want {
					t.Fatalf("%s\nof %s\nis %d until %v, and means %d at %v", m.text, doc, want, until, then, w.now)
				}
				facts.Now = w.now
				if then := r.Judge(facts); then != want {
					t.Fatalf("%s\nof %s\nis %d until %v, and %d at %v", m.text, doc, want, until, then, w.now)
				}
				facts.Now = now
			}
			if before != nil {
				differing, err := traits.Differing([]byte(document), []byte(doc))
				if err != nil {
					t.Fatal(err)
				}
				reads := r.Touched()
				if !slices.ContainsFunc(differing, func(name string) bool {
					return slices.Contains(reads, rule.Trait(name)) || slices.Contains(reads, rule.AllTraits)
				}) {
					alike++
					other := *before
					other.Traits = whole.Traits
					if got := r.Judge(&other); got != said {
						t.Fatalf("%s reads %q\n of %s is %d, of %s %d", m.text, reads, document, said, doc, got)
					}
				}
			}
			before, said, document = facts, want, doc
		}
	})
	if !t.Failed() && min(judged[rule.True], judged[rule.False], judged[rule.Unknown], parts, excluded, flipped, alike) < 5 {
		t.Errorf("judged %v, %d parts, %d excluded, %d flipped, %d alike", judged, parts, excluded, flipped, alike)
	}
}

func parsedOf(t *rapid.T, text string, scope rule.Scope) *rule.Rule {
	r, err := rule.Parse(text, scope)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}
