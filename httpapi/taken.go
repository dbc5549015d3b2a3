package httpapi

import (
	"bytes"
	"io"
	"net/http"
)

// taken is a body that is read into memory, and from there once more.
type taken struct {
	io.Closer
	from  io.Reader
	buf   bytes.Buffer
	ended bool
	err   error // that it ended with
}

// taking begins to take a body, or goes on.
func taking(r *http.Request) *taken {
	t, begun := r.Body.(*taken)
	if !begun {
		t = &taken{Closer: r.Body, from: r.Body, ended: r.ContentLength == 0}
		t.buf.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
		r.Body = t
	}
	return t
}

// takeSmall takes a body as far as it is small, which costs no more than the
// connection does: whoever sends it slowly needs no place for that.
func takeSmall(r *http.Request) {
	if r.ContentLength != 0 && r.ContentLength <= maxAuthBody {
		taking(r).take(maxAuthBody)
	}
}

// take reads until the body has ended, or is known to be larger than most bytes.
func (t *taken) take(most int64) {
	left := most + 1 - int64(t.buf.Len())
	n, err := t.buf.ReadFrom(io.LimitReader(t.from, left))
	t.ended, t.err = err != nil || n < left, err
}

// done says whether there is no need to take.
func (t *taken) done(most int64) bool { return t.ended || int64(t.buf.Len()) > most }

// Read implements [io.Reader] with what was taken, and then with the rest.
func (t *taken) Read(p []byte) (int, error) {
	switch {
	case t.buf.Len() > 0:
		return t.buf.Read(p)
	case !t.ended:
		return t.from.Read(p)
	case t.err != nil:
		return 0, t.err
	}
	return 0, io.EOF
}
