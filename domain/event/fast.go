package event

import (
	"bytes"
	"encoding/base64"
	"strconv"

	"kindred/domain/id"
)

// The events of users are by far the most that there are. They are written and
// read here as encoding/json would, byte by byte, at a fraction of its cost;
// whatever does not look just as it is written here is left to encoding/json.

// quick is an event that writes itself, and reads itself where it can.
type quick interface {
	appendTo(b []byte) ([]byte, bool)
}

func (e EndUserCreated) appendTo(b []byte) ([]byte, bool) {
	w := writer{append(b, `{"user_id":`...), true}
	w.text(string(e.User))
	w.raw(`,"generation":`)
	w.out = strconv.AppendInt(w.out, int64(e.Generation), 10)
	w.raw(`,"external_id":`)
	w.personal(e.ExternalID)
	w.raw(`,"traits":`)
	w.personal(e.Traits)
	w.raw(`}`)
	return w.out, w.ok
}

func (e *EndUserCreated) readFrom(data []byte) bool {
	r := reader{data, true}
	r.raw(`{"user_id":`)
	e.User = id.User(r.text())
	r.raw(`,"generation":`)
	e.Generation = r.number()
	r.raw(`,"external_id":`)
	e.ExternalID = r.personal()
	r.raw(`,"traits":`)
	e.Traits = r.personal()
	r.raw(`}`)
	return r.end()
}

func (e EndUserTraitsChanged) appendTo(b []byte) ([]byte, bool) {
	w := writer{append(b, `{"user_id":`...), true}
	w.text(string(e.User))
	w.raw(`,"traits":`)
	w.personal(e.Traits)
	w.raw(`}`)
	return w.out, w.ok
}

func (e *EndUserTraitsChanged) readFrom(data []byte) bool {
	r := reader{data, true}
	r.raw(`{"user_id":`)
	e.User = id.User(r.text())
	r.raw(`,"traits":`)
	e.Traits = r.personal()
	r.raw(`}`)
	return r.end()
}

// writer writes JSON; ok is false once it met what it cannot write.
type writer struct {
	out []byte
	ok  bool
}

func (w *writer) raw(s string) { w.out = append(w.out, s...) }

func (w *writer) text(s string) {
	for i := range len(s) {
		w.ok = w.ok && plain(s[i])
	}
	w.out = append(append(append(w.out, '"'), s...), '"')
}

func (w *writer) bytes(b []byte) {
	if b == nil {
		w.raw(`null`)
		return
	}
	w.out = append(base64.StdEncoding.AppendEncode(append(w.out, '"'), b), '"')
}

func (w *writer) personal(p *Personal) {
	if p == nil || p.Box == nil {
		w.ok = false
		return
	}
	w.raw(`{"key":`)
	w.text(p.Box.Key)
	w.raw(`,"commitment":`)
	w.bytes(p.Box.Commitment)
	w.raw(`,"cipher":`)
	w.bytes(p.Box.Cipher)
	w.raw(`}`)
}

// plain bytes stand for themselves in a JSON string, however it is escaped.
func plain(c byte) bool {
	return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

// reader reads what writer wrote; ok is false once it met anything else.
type reader struct {
	rest []byte
	ok   bool
}

func (r *reader) end() bool { return r.ok && len(r.rest) == 0 }

func (r *reader) raw(s string) {
	if r.ok = r.ok && len(r.rest) >= len(s) && string(r.rest[:len(s)]) == s; r.ok {
		r.rest = r.rest[len(s):]
	}
}

// quoted is what stands between two quotes.
func (r *reader) quoted() []byte {
	r.raw(`"`)
	for i := 0; r.ok && i < len(r.rest); i++ {
		if c := r.rest[i]; c == '"' {
			text := r.rest[:i]
			r.rest = r.rest[i+1:]
			return text
		} else if !plain(c) {
			break
		}
	}
	r.ok = false
	return nil
}

func (r *reader) text() string { return string(r.quoted()) }

func (r *reader) number() int {
	n := 0
	for n < len(r.rest) && r.rest[n] >= '0' && r.rest[n] <= '9' {
		n++
	}
	const quickDigits = 9
	if r.ok = r.ok && n > 0 && n <= quickDigits && (n == 1 || r.rest[0] != '0'); !r.ok {
		return 0
	}
	value := 0
	for _, c := range r.rest[:n] {
		value = 10*value + int(c-'0')
	}
	r.rest = r.rest[n:]
	return value
}

// bytes does not look at each byte of a text: the decoder does.
func (r *reader) bytes() []byte {
	r.raw(`"`)
	end := bytes.IndexByte(r.rest, '"')
	if r.ok = r.ok && end >= 0; !r.ok {
		return nil
	}
	text := r.rest[:end]
	r.rest = r.rest[end+1:]
	b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(b, text)
	r.ok = err == nil && base64.StdEncoding.EncodedLen(n) == len(text) // it skips line breaks
	return b[:n]
}

func (r *reader) personal() *Personal {
	return &Personal{Box: r.box()}
}

func (r *reader) box() *Box {
	var b Box
	r.raw(`{"key":`)
	b.Key = r.text()
	r.raw(`,"commitment":`)
	b.Commitment = r.bytes()
	r.raw(`,"cipher":`)
	b.Cipher = r.bytes()
	r.raw(`}`)
	return &b
}
