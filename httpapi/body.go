package httpapi

import (
	"bytes"
	"io"
	"net/http"
)

const (
	// limit: requests | body | {maxBody B}, under `/auth` {maxAuthBody B} | 413 `body_too_large`
	maxBody     = 1 << 20 // bytes
	maxAuthBody = 4 << 10 // bytes, under /auth
)

// buffered is a body that is read into memory, and from there once more.
type buffered struct {
	io.Closer
	from  io.Reader
	buf   bytes.Buffer
	ended bool
	err   error // that it ended with
}

// buffer begins to read a body, or goes on.
func buffer(r *http.Request) *buffered {
	b, begun := r.Body.(*buffered)
	if !begun {
		b = &buffered{Closer: r.Body, from: r.Body, ended: r.ContentLength == 0}
		b.buf.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
		r.Body = b
	}
	return b
}

// bufferSmall reads a body as far as it is small, which costs no more than the
// connection does: whoever sends it slowly needs no place for that.
func bufferSmall(r *http.Request) {
	if r.ContentLength != 0 && r.ContentLength <= maxAuthBody {
		buffer(r).fill(maxAuthBody)
	}
}

// fill reads until the body has ended, or is known to be larger than most bytes.
func (b *buffered) fill(most int64) {
	left := most + 1 - int64(b.buf.Len())
	n, err := b.buf.ReadFrom(io.LimitReader(b.from, left))
	b.ended, b.err = err != nil || n < left, err
}

// whole says whether there is nothing more to read.
func (b *buffered) whole(most int64) bool { return b.ended || int64(b.buf.Len()) > most }

// Read implements [io.Reader] with what is in memory, and then with the rest.
func (b *buffered) Read(p []byte) (int, error) {
	switch {
	case b.buf.Len() > 0:
		return b.buf.Read(p)
	case !b.ended:
		return b.from.Read(p)
	case b.err != nil:
		return 0, b.err
	}
	return 0, io.EOF
}
