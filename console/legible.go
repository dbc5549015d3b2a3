package console

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// legible makes the texts of a page such that names can be seen, and turn nothing round beside them. What its fields and
// samples hold stays.
func legible(page []byte) []byte {
	if !bytes.ContainsFunc(page, func(r rune) bool { return r >= utf8.RuneSelf && !isLetter(r) }) {
		return page
	}
	out := make([]byte, 0, len(page))
	for len(page) > 0 {
		text := page[:until(page, "<")]
		out = append(out, legibleText(string(text))...)
		page = page[len(text):]
		end := ">"
		for _, whole := range []string{"textarea", "pre"} {
			if bytes.HasPrefix(page, []byte("<"+whole)) {
				end = "</" + whole + ">"
			}
		}
		tag := page[:min(until(page, end)+len(end), len(page))]
		out = append(out, tag...)
		page = page[len(tag):]
	}
	return out
}

// until is where a page has something first; its length where it has not.
func until(page []byte, what string) int {
	if at := bytes.Index(page, []byte(what)); at >= 0 {
		return at
	}
	return len(page)
}

// legibleText is a text without the signs that turn round what stands behind them: an element isolates a name only where
// the name closes what it opens, and opens what it closes (Unicode Standard Annex 9, BD9). One that shows nothing is said
// to be blank, since nobody sees a link without letters.
func legibleText(text string) string {
	switch {
	case !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }):
		return text // also what is between two tags of a page
	case !strings.ContainsFunc(text, isLetter):
		return say("layout.blank")
	}
	return strings.Map(func(r rune) rune {
		if r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' {
			return -1
		}
		return r
	}, text)
}

// isLetter tells what can be read alone from spaces, accents without a letter, and what shows nothing, such as U+200B:
// Unicode takes U+3164 for a letter, and U+2800 for a symbol.
func isLetter(r rune) bool {
	return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && r != '\u2800' && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}
