package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	jose "github.com/go-jose/go-jose/v4"
)

// Reader reads an export line by line, and judges nothing.
type Reader struct {
	lines *bufio.Scanner
	at    int64
}

// NewReader reads an export.
func NewReader(export io.Reader) *Reader {
	r := &Reader{lines: bufio.NewScanner(export)}
	r.lines.Buffer(make([]byte, 1<<16), maxLine)
	return r
}

// Next returns the event of a line, or the head, or io.EOF after the last.
func (r *Reader) Next() (e Event, head string, err error) {
	for r.lines.Scan() {
		r.at++
		text := bytes.TrimSpace(r.lines.Bytes())
		if len(text) == 0 {
			continue
		}
		l, err := scan(text)
		if err != nil {
			return e, "", fmt.Errorf("line %d is no line of an export: %w", r.at, err)
		}
		return l.Event, l.Head, nil
	}
	err = r.lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = errTooLong
	}
	if err != nil {
		return e, "", fmt.Errorf("line %d: %w", r.at+1, err)
	}
	return e, "", io.EOF
}

// ReadHead reads what a head says, whoever signed it.
func ReadHead(signed string) (h Head, err error) {
	jws, err := jose.ParseSignedCompact(signed, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return h, errors.New("the head is no JWS")
	}
	if err := json.Unmarshal(jws.UnsafePayloadWithoutVerification(), &h); err != nil {
		return h, fmt.Errorf("the head is none: %w", err)
	}
	return h, nil
}
