package httpapi

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"kindred/domain/fault"
)

const (
	// limit: requests | depth of JSON | {maxDepth} | 400 `json_too_deep`
	maxDepth = 64 // how deep JSON may nest
	// limit: requests | values and names in a body | {maxValues} | 413 `too_many_values`
	maxValues = 50_000 // values and names together; bounds what validation costs
)

// checkJSON says whether body is one JSON value (RFC 8259) that means the same
// to everybody: in UTF-8, at most 64 levels deep and 50,000 values long,
// without repeated names, NUL characters or halves of surrogate pairs. The
// refusal is a fault of kind Unreadable, TooLarge or Invalid and repeats no
// value of the body. One of kind Invalid names all that is wrong, and the body
// can be read.
func checkJSON(body []byte) error {
	if !utf8.Valid(body) {
		return fault.New(fault.Unreadable, "invalid_json", "The body is not valid UTF-8.")
	}
	s := jsonScanner{body: body}
	if f := s.scan(); f != nil {
		return f
	}
	if len(s.wrong) > 0 {
		return fault.NewInvalid(s.wrong...)
	}
	return nil
}

// jsonScanner walks over JSON without recursion.
type jsonScanner struct {
	body   []byte
	at     int
	values int
	depth  int
	stack  [maxDepth]container
	wrong  []fault.Field // maxFields at most
	named  int           // the value or name, as they are counted, of the last of wrong
}

// container is an object or array that is not closed yet.
type container struct {
	object bool
	index  int                 // of the current item of an array
	names  [][]byte            // of an object so far, the current one last
	named  bool                // the current member's name is read
	known  map[string]struct{} // the same, once they are many
}

const manyNames = 16

func (s *jsonScanner) scan() *fault.Fault {
	for {
		opened, f := s.value()
		if f != nil {
			return f
		}
		if opened {
			continue // with the first item or member
		}
		// A value is complete: close what ends here, up to the next value.
		for {
			s.space()
			if s.depth == 0 {
				if s.at < len(s.body) {
					return s.broken("there is something after the value")
				}
				return nil
			}
			top := &s.stack[s.depth-1]
			switch c := s.peek(); {
			case c == ',':
				s.at++
				if top.object {
					if f := s.name(top); f != nil {
						return f
					}
				}
				top.index++
			case c == '}' && top.object, c == ']' && !top.object:
				s.at++
				s.depth--
				continue
			case top.object:
				return s.broken("a comma or the end of the object is missing")
			default:
				return s.broken("a comma or the end of the array is missing")
			}
			break
		}
	}
}

// value reads a scalar or an empty container, or opens one that has content.
func (s *jsonScanner) value() (opened bool, f *fault.Fault) {
	if f := s.count(); f != nil {
		return false, f
	}
	s.space()
	switch c := s.peek(); {
	case c == '{' || c == '[':
		return s.open(c == '{')
	case c == '"':
		_, _, f := s.text()
		return false, f
	case c == '-' || c >= '0' && c <= '9':
		return false, s.number()
	default:
		for _, word := range []string{"true", "false", "null"} {
			if bytes.HasPrefix(s.body[s.at:], []byte(word)) {
				s.at += len(word)
				return false, nil
			}
		}
		return false, s.broken("a value is missing")
	}
}

func (s *jsonScanner) open(object bool) (opened bool, f *fault.Fault) {
	if s.depth == maxDepth {
		return false, fault.New(fault.Unreadable, "json_too_deep", "The body nests deeper than %d levels.", maxDepth)
	}
	s.at++
	s.space()
	if c := s.peek(); object && c == '}' || !object && c == ']' {
		s.at++
		return false, nil
	}
	top := &s.stack[s.depth]
	*top = container{object: object, names: top.names[:0]}
	s.depth++
	if object {
		return true, s.name(top)
	}
	return true, nil
}

// name reads a member's name and its colon.
func (s *jsonScanner) name(top *container) *fault.Fault {
	top.named = false
	s.space()
	if s.peek() != '"' {
		return s.broken("a name is missing")
	}
	if f := s.count(); f != nil {
		return f
	}
	raw, escaped, f := s.text()
	if f != nil {
		return f
	}
	name := raw
	if escaped {
		var plain string
		if err := json.Unmarshal(s.body[s.at-len(raw)-2:s.at], &plain); err != nil {
			return s.broken("a name cannot be read")
		}
		name = []byte(plain)
	}
	repeated := top.has(name)
	top.names, top.named = append(top.names, name), true
	if repeated {
		s.invalid("is given more than once")
	}
	s.space()
	if s.peek() != ':' {
		return s.broken("a colon is missing")
	}
	s.at++
	return nil
}

// has says whether the object has the name already, and remembers it where the
// names are many.
func (c *container) has(name []byte) bool {
	if len(c.names) < manyNames {
		for _, n := range c.names {
			if bytes.Equal(n, name) {
				return true
			}
		}
		return false
	}
	if c.known == nil {
		c.known = make(map[string]struct{}, 4*manyNames)
		for _, n := range c.names {
			c.known[string(n)] = struct{}{}
		}
	}
	_, repeated := c.known[string(name)]
	c.known[string(name)] = struct{}{}
	return repeated
}

// text reads a string and returns what stands between its quotes.
func (s *jsonScanner) text() (raw []byte, escaped bool, f *fault.Fault) {
	s.at++
	for start := s.at; s.at < len(s.body); s.at++ {
		switch c := s.body[s.at]; {
		case c == '"':
			s.at++
			return s.body[start : s.at-1], escaped, nil
		case c < 0x20:
			return nil, false, s.broken("a control character stands in a string")
		case c == '\\':
			escaped = true
			if f := s.escape(); f != nil {
				return nil, false, f
			}
		}
	}
	return nil, false, s.broken("a string has no end")
}

// escape reads an escape sequence up to its last byte.
func (s *jsonScanner) escape() *fault.Fault {
	s.at++
	switch c := s.peek(); c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		first, ok := s.hex(s.at + 1)
		switch {
		case !ok:
			return s.broken("an escape in a string is not valid")
		case first == 0:
			s.invalid("holds a NUL character")
		}
		s.at += 4
		if !utf16.IsSurrogate(first) {
			return nil
		}
		if bytes.HasPrefix(s.body[s.at+1:], []byte(`\u`)) {
			if second, ok := s.hex(s.at + 3); ok && utf16.DecodeRune(first, second) != utf8.RuneError {
				s.at += 6
				return nil
			}
		}
		s.invalid("holds half of a surrogate pair")
		return nil
	default:
		return s.broken("an escape in a string is not valid")
	}
}

func (s *jsonScanner) hex(at int) (rune, bool) {
	if at+4 > len(s.body) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s.body[at:at+4]), 16, 16)
	return rune(n), err == nil
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (s *jsonScanner) number() *fault.Fault {
	if s.peek() == '-' {
		s.at++
	}
	whole := s.digits()
	ok := whole == 1 || whole > 1 && s.body[s.at-whole] != '0'
	if s.peek() == '.' {
		s.at++
		ok = s.digits() > 0 && ok
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		ok = s.digits() > 0 && ok
	}
	if !ok {
		return s.broken("a number is not valid")
	}
	return nil
}

func (s *jsonScanner) digits() (n int) {
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.at++
		n++
	}
	return n
}

func (s *jsonScanner) space() {
	for s.at < len(s.body) {
		switch s.body[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek returns the next byte; 0, which JSON never has, at the end.
func (s *jsonScanner) peek() byte {
	if s.at < len(s.body) {
		return s.body[s.at]
	}
	return 0
}

func (s *jsonScanner) count() *fault.Fault {
	if s.values++; s.values > maxValues {
		return fault.New(fault.TooLarge, "too_many_values", "The body holds more than %d values and names.", maxValues)
	}
	return nil
}

func (s *jsonScanner) broken(why string) *fault.Fault {
	return fault.New(fault.Unreadable, "invalid_json", "The body is not valid JSON: %s, at byte %d.", why, s.at)
}

// invalid notes what is wrong with what stands here. A text is named once: it may be wrong at each character, and where it
// stands takes long to say.
func (s *jsonScanner) invalid(detail string) {
	last := len(s.wrong) - 1
	if len(s.wrong) == maxFields || last >= 0 && s.named == s.values && s.wrong[last].Detail == detail {
		return
	}
	s.named = s.values
	var path []string
	for _, c := range s.stack[:s.depth] {
		if !c.object {
			path = append(path, strconv.Itoa(c.index))
		} else if c.named {
			path = append(path, clip(c.names[len(c.names)-1]))
		}
	}
	wrong := fault.Field{Pointer: pointer(path), Detail: detail}
	if last < 0 || s.wrong[last] != wrong {
		s.wrong = append(s.wrong, wrong)
	}
}

// pointer writes a JSON Pointer (RFC 6901). What a caller made long is cut.
func pointer(path []string) string {
	var b strings.Builder
	for _, step := range path {
		if b.Len() > 512 {
			return b.String() + "/…"
		}
		b.WriteByte('/')
		b.WriteString(escapes.Replace(clip(step)))
	}
	return b.String()
}

// escapes are those of a step of a JSON Pointer.
var escapes = strings.NewReplacer("~", "~0", "/", "~1")

// clip keeps a caller's word short enough to be said back.
func clip[T string | []byte](s T) string {
	const most = 64
	if len(s) <= most {
		return string(s)
	}
	return strings.ToValidUTF8(string(s[:most]), "") + "…"
}
