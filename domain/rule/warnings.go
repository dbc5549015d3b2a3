package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"kindred/domain/traits"
)

// compared is a path of the traits beside a value in the rule itself, or what is to be a time ([time.Time]).
type compared struct {
	read
	with any
}

// Unknown are the paths that a rule looks at and a schema has not; where nothing was learnt there are none.
func (r *Rule) Unknown(schema traits.Schema) (paths []string) {
	if len(schema.Traits) == 0 {
		return nil
	}
	for _, origin := range r.origins {
		if origin.name != "" && !isKnown(schema, origin.name) {
			paths = append(paths, origin.name)
		}
	}
	return paths
}

// Warnings are what of a rule seems not to be meant, by what was learnt of a client's traits: unknown paths,
// unless somebody was met who has them, and values of another type than theirs. A rule may be before its
// data, so it is refused for none of these. Where nothing was learnt they are of the users' own times alone.
// They are in the order of their places.
func (r *Rule) Warnings(schema traits.Schema, unknown []string) (found []*Error) {
	for _, origin := range r.origins {
		if slices.Contains(unknown, origin.name) {
			detail := "No user that was looked at has traits." + origin.name + "."
			if near := nearest(schema, origin.name); near != "" {
				detail += " Did you mean traits." + near + "?"
			}
			found = append(found, origin.wrong(detail))
		}
	}
	for _, c := range r.compared {
		if t, is := traitAt(schema, c.name); is {
			if detail := unlikely(t, c.with); detail != "" {
				found = append(found, c.wrong("traits."+c.name+" "+detail))
			}
		}
	}
	for _, t := range r.timeless {
		found = append(found, t.wrong(t.name+" is a time, and beside it is none: those are as 2026-01-31, and as 2026-01-31T12:00:00Z."))
	}
	slices.SortFunc(found, func(a, b *Error) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return found
}

func traitAt(schema traits.Schema, path string) (traits.Trait, bool) {
	at := slices.IndexFunc(schema.Traits, func(t traits.Trait) bool { return t.Path == path })
	if at < 0 {
		return traits.Trait{}, false
	}
	return schema.Traits[at], true
}

// isKnown says whether a schema has a path, something below it, or something above it that may hold
// objects. One that was cut knows of no path that it is missing.
func isKnown(schema traits.Schema, path string) bool {
	return schema.Skipped > 0 || slices.ContainsFunc(schema.Traits, func(t traits.Trait) bool {
		return t.Path == path || strings.HasPrefix(t.Path, path+".") || strings.HasPrefix(path, t.Path+".")
	})
}

// unlikely says what a trait is, where a value is of another type than it; "" where it may be of that.
func unlikely(t traits.Trait, with any) string {
	_, isText := with.(string)
	_, isNumber := with.(float64)
	_, isBool := with.(bool)
	if _, isTime := with.(time.Time); isTime {
		switch {
		case t.Type == traits.TypeDate && t.Format != "":
			return fmt.Sprintf(`holds dates as %s, which are no times to a rule: those are as 2026-01-31, and as 2026-01-31T12:00:00Z.`, t.Format)
		case t.Type == traits.TypeNumber || t.Type == traits.TypeBool || t.Type == traits.TypeSet || t.Type == traits.TypeGeo:
			return "holds no times."
		}
		return ""
	}
	switch {
	case t.Type == traits.TypeNumber && t.Format == "" && !isNumber:
		return "holds numbers, which are written without quotes."
	case t.Type == traits.TypeNumber && t.Format != "" && t.Format != traits.FormatCode && !isText:
		return fmt.Sprintf("holds texts of the form %s, which are no numbers to a rule.", t.Format)
	case t.Type == traits.TypeBool && t.Format == "" && !isBool:
		return "is true or false."
	case t.Type == traits.TypeDate && !isText && !slices.Contains([]traits.Format{traits.FormatUnix, traits.FormatUnixMS, traits.FormatDigits}, t.Format):
		return `holds dates, which are texts, such as "2026-01-31".`
	case t.Type == traits.TypeSet && t.Format == "":
		return "holds lists: what is in one is asked by in."
	}
	return ""
}

// nearest is the path of a schema that is one or two letters from another; "" where there is none.
func nearest(schema traits.Schema, path string) (near string) {
	least := min(3, (utf8.RuneCountInString(path)+2)/3)
	for _, t := range schema.Traits {
		if d := edits(t.Path, path, least); d < least {
			near, least = t.Path, d
		}
	}
	return near
}

// edits are how many letters are to be put in, taken out or replaced to make one text of another
// (Levenshtein 1966), where they are fewer than most; else most or more. Only places that so few
// letters can lead to are looked at: a rule of 4 KiB reads hundreds of paths of thousands of letters.
func edits(from, to string, most int) int {
	if longer := utf8.RuneCountInString(from) - utf8.RuneCountInString(to); longer >= most || -longer >= most {
		return most
	}
	letters, left := []rune(to), []rune(from)
	row := make([]int, len(letters)+1)
	for i := range row {
		row[i] = i
	}
	for at, letter := range left {
		first, last := max(at-most, 0), min(at+most, len(letters)-1)
		before := row[first]
		row[first] = most // from so far left it is not reached
		if first == 0 {
			row[0] = at + 1
		}
		for i := first; i <= last; i++ {
			replaced := before
			if letter != letters[i] {
				replaced++
			}
			before = row[i+1]
			row[i+1] = min(replaced, before+1, row[i]+1)
		}
	}
	return row[len(letters)]
}
