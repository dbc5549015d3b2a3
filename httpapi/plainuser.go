package httpapi

import (
	"bytes"
)

// plainUser reads the shape that nearly all users have, at a fraction of what
// the contract's schema costs: a plain external id, and traits or none behind
// it. Whatever looks otherwise is left to the schema. The text must be JSON
// without repeated names.
func plainUser(text []byte) (u NewUser, ok bool) {
	rest, ok := after(text, `{`, `"external_id"`, `:`, `"`)
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 1 || end > maxPlainID {
		return u, false
	}
	for _, c := range rest[:end] {
		if c < ' ' || c > '~' || c == '\\' {
			return u, false
		}
	}
	u.ExternalID, rest = string(rest[:end]), rest[end+1:]
	if traits, more := after(rest, `,`, `"traits"`, `:`); more {
		traits = bytes.TrimLeft(traits, blanks)
		size := objectSize(traits)
		u.Traits, rest = traits[:size:size], traits[size:]
		if size == 0 {
			return u, false
		}
	}
	rest, ok = after(rest, `}`)
	return u, ok && len(bytes.TrimLeft(rest, blanks)) == 0
}

func isPlainUser(body []byte) bool {
	_, ok := plainUser(body)
	return ok
}

const (
	// limit: edge | external id that the quick check of a user's body takes | {maxPlainID} bytes
	maxPlainID = 256 // bytes, and so characters
	blanks     = " \t\r\n"
)

// after returns what stands behind tokens, each with blanks before it or none.
func after(text []byte, tokens ...string) (rest []byte, ok bool) {
	rest = text
	for _, token := range tokens {
		if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, blanks), []byte(token)); !ok {
			return text, false
		}
	}
	return rest, true
}

// objectSize is the length of the object that JSON begins with, or 0.
func objectSize(text []byte) int {
	if len(text) == 0 || text[0] != '{' {
		return 0
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}
