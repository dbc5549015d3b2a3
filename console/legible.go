package console

import (
	"bytes"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pieces are the fields and samples of a page, whole, its other tags, and the texts between them.
var pieces = regexp.MustCompile(`(?s)<textarea.*?</textarea>|<pre.*?</pre>|<[^>]*>|[^<]+`)

// legible makes the texts of a page such that names can be seen, and turn nothing round beside them. What its fields and
// samples hold stays.
func legible(page []byte) []byte {
	if !bytes.ContainsFunc(page, func(r rune) bool { return r >= utf8.RuneSelf && !isLetter(r) }) {
		return page
	}
	return pieces.ReplaceAllFunc(page, func(piece []byte) []byte {
		if piece[0] == '<' {
			return piece
		}
		return []byte(legibleText(string(piece)))
	})
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
