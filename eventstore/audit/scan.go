package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
)

// scan reads a line. What Writer writes takes a quick way; anything else that
// is JSON of a line is read as such.
func scan(text []byte) (line, error) {
	var l line
	if scanFlat(text, &l) {
		return l, nil
	}
	l = line{}
	if err := checkNames(text); err != nil {
		return l, err
	}
	return l, json.Unmarshal(text, &l)
}

// names are those of the fields of a line.
var names = func() map[string]bool {
	all := map[string]bool{"head": true}
	for field := range reflect.TypeFor[Event]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all[name] = true
	}
	return all
}()

// checkNames fails where a field of a line is unknown or there twice: readers
// differ in which of two they show, and the decoder takes "Data" for "data".
func checkNames(text []byte) error {
	fields := json.NewDecoder(bytes.NewReader(text))
	if first, err := fields.Token(); err != nil || first != json.Delim('{') {
		return cmp.Or(err, errors.New("it is no JSON object"))
	}
	seen := map[string]bool{}
	for fields.More() {
		token, err := fields.Token()
		if err != nil {
			return err
		}
		name := token.(string) // where an object goes on, the decoder gives nothing else
		switch {
		case !names[name]:
			return fmt.Errorf("it has a field %.40q, which is not of an event", name)
		case seen[name]:
			return fmt.Errorf("its field %q is there twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := fields.Decode(&value); err != nil {
			return err
		}
	}
	if seen["head"] && len(seen) > 1 {
		return errors.New("it is a signed head and an event")
	}
	return nil
}

// scanFlat reads an object of strings and integers, each named once and known;
// it says no to anything else.
func scanFlat(text []byte, l *line) bool {
	if len(text) < 2 || text[0] != '{' || text[len(text)-1] != '}' {
		return false
	}
	rest, seen := text[1:len(text)-1], uint32(0)
	for {
		key, after, ok := scanString(rest)
		if !ok || len(after) == 0 || after[0] != ':' {
			return false
		}
		rest = after[1:]
		var value string
		isText := len(rest) > 0 && rest[0] == '"'
		if isText {
			value, rest, ok = scanString(rest)
		} else {
			value, rest, ok = scanInteger(rest)
		}
		if !ok || !l.set(key, value, isText, &seen) {
			return false
		}
		if len(rest) == 0 {
			return seen&headSeen == 0 || seen == headSeen // a head stands alone, an empty one too
		}
		if rest[0] != ',' {
			return false
		}
		rest = rest[1:]
	}
}

func scanString(text []byte) (value string, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return "", nil, false
	}
	escaped := false
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			escaped = true
			i++
		case c < ' ' || c >= 0x80: // left to the decoder, which knows UTF-8
			return "", nil, false
		case c == '"':
			if escaped {
				value, ok = unescape(text[1:i])
				return value, text[i+1:], ok
			}
			return string(text[1:i]), text[i+1:], true
		}
	}
	return "", nil, false
}

// unescape undoes the escapes of a quote and of a backslash.
func unescape(text []byte) (string, bool) {
	out := make([]byte, 0, len(text))
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return string(append(out, text...)), true
		}
		if text[i+1] != '"' && text[i+1] != '\\' {
			return "", false
		}
		out = append(append(out, text[:i]...), text[i+1])
		text = text[i+2:]
	}
}

func scanInteger(text []byte) (value string, rest []byte, ok bool) {
	n := 0
	for n < len(text) && (text[n] >= '0' && text[n] <= '9') {
		n++
	}
	if n == 0 || n > 18 || n > 1 && text[0] == '0' {
		return "", nil, false
	}
	return string(text[:n]), text[n:], true
}

// headSeen is the bit of a head among the fields that were seen.
const headSeen = 1 << 14

// set fills in a field, once.
func (l *line) set(key, value string, isText bool, seen *uint32) bool {
	var (
		into   *string
		number int64
		err    error
		bit    uint32
	)
	switch key {
	case "ordinal":
		bit = 1 << 0
	case "version":
		bit = 1 << 1
	case "revision":
		bit = 1 << 2
	case "recorded_at":
		bit = 1 << 3
	case "hash":
		bit = 1 << 4
	case "position":
		bit, into = 1<<5, (*string)(&l.Position)
	case "id":
		bit, into = 1<<6, (*string)(&l.ID)
	case "type":
		bit, into = 1<<7, &l.Type
	case "stream":
		bit, into = 1<<8, (*string)(&l.Stream)
	case "actor":
		bit, into = 1<<9, &l.Actor
	case "causation_id":
		bit, into = 1<<10, (*string)(&l.Causation)
	case "correlation_id":
		bit, into = 1<<11, &l.Correlation
	case "data":
		bit, into = 1<<12, &l.Data
	case "meta":
		bit, into = 1<<13, &l.Meta
	case "head":
		bit, into = headSeen, &l.Head
	default:
		return false
	}
	integer := bit <= 1<<2
	if *seen&bit != 0 || integer == isText {
		return false
	}
	*seen |= bit
	if into != nil {
		*into = value
		return true
	}
	if integer {
		if number, err = strconv.ParseInt(value, 10, 64); err != nil {
			return false
		}
	}
	switch key {
	case "ordinal":
		l.Ordinal = &number
	case "version":
		l.Version = int(number)
	case "revision":
		l.Revision = eventstore.Revision(number)
	case "recorded_at":
		l.RecordedAt, err = time.Parse(time.RFC3339, value)
	case "hash":
		err = l.Hash.UnmarshalText([]byte(value))
	}
	return err == nil
}

// said is what an envelope says, beyond what a line shows of it.
type said struct {
	eventstore.Meta
	shown bool // it says what the line shows
}

// envelope reads the envelope of an event. Where it is as kindred writes one
// that says what is shown, it need not be decoded.
func envelope(e *Event, client id.Client) (said, error) {
	if previous, ok := plainEnvelope(e, client); ok {
		return said{eventstore.Meta{Client: client, Previous: previous}, true}, nil
	}
	meta, err := eventstore.DecodeMeta([]byte(e.Meta))
	return said{meta, meta.Client == client && meta.Version == e.Version && meta.RecordedAt.Equal(e.RecordedAt) &&
		meta.Actor == e.Actor && meta.Causation == e.Causation && meta.Correlation == e.Correlation}, err
}

func plainEnvelope(e *Event, client id.Client) (previous string, ok bool) {
	for _, shown := range []string{string(client), e.Actor, e.Correlation, string(e.Causation)} {
		for i := range len(shown) {
			if c := shown[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
				return "", false
			}
		}
	}
	want := make([]byte, 0, 512)
	want = append(append(append(want, `{"client":"`...), client...), `","version":`...)
	want = append(strconv.AppendInt(want, int64(e.Version), 10), `,"recorded_at":"`...)
	want = append(append(e.RecordedAt.AppendFormat(want, time.RFC3339Nano), `","actor":"`...), e.Actor...)
	want = append(want, '"')
	if e.Correlation != "" {
		want = append(append(append(want, `,"correlation":"`...), e.Correlation...), '"')
	}
	if e.Causation != "" {
		want = append(append(append(want, `,"causation":"`...), e.Causation...), '"')
	}
	if len(e.Meta) < len(want) || e.Meta[:len(want)] != string(want) {
		return "", false
	}
	switch rest := e.Meta[len(want):]; {
	case rest == "}":
		return "", true
	case len(rest) == len(`,"previous":""}`)+64 && rest[:len(`,"previous":"`)] == `,"previous":"` && rest[len(rest)-2:] == `"}`:
		previous = rest[len(`,"previous":"`) : len(rest)-2]
		var hash Hash
		return previous, hash.UnmarshalText([]byte(previous)) == nil
	}
	return "", false
}
