package httpapi

import (
	"errors"
	"io"
	"net/http"
	"time"

	"kindred/domain/fault"
)

const (
	streamIdle  = 30 * time.Second // between two pieces of a streamed body
	streamTotal = time.Hour        // for the whole of it, or of an export
)

// streamedBody is a request body of any length: its deadline moves on with
// every piece that arrives, up to a last one.
type streamedBody struct {
	body  io.ReadCloser
	conn  *http.ResponseController
	now   func() time.Time
	last  time.Time // when it all ends
	moved time.Time // when the deadlines were set
	ended bool      // the connection is now watched by net/http, without a deadline
}

func (e *edge) stream(w http.ResponseWriter, r *http.Request) *streamedBody {
	now := e.o.Now()
	return &streamedBody{body: r.Body, conn: http.NewResponseController(w), now: e.o.Now, last: now.Add(streamTotal)}
}

func (s *streamedBody) Read(p []byte) (int, error) {
	if s.ended {
		return 0, io.EOF
	}
	now := s.now()
	if !now.Before(s.last) {
		return 0, fault.New(fault.TooLarge, "stream_too_long", "The body took longer than %s.", streamTotal)
	}
	if now.Sub(s.moved) >= time.Second {
		s.moved = now
		if err := s.extend(now.Add(streamIdle)); err != nil {
			return 0, err
		}
	}
	n, err := s.body.Read(p)
	s.ended = errors.Is(err, io.EOF)
	if err != nil && !s.ended {
		err = fault.New(fault.Unreadable, "body_incomplete", "The body did not arrive whole.")
	}
	return n, err
}

// extend leaves time for reading until until, and for the answer after it.
func (s *streamedBody) extend(until time.Time) error {
	err := errors.Join(s.conn.SetReadDeadline(until), s.conn.SetWriteDeadline(until.Add(writeTimeout)))
	if errors.Is(err, http.ErrNotSupported) {
		return nil // not on a connection
	}
	return err
}

func (s *streamedBody) Close() error { return s.body.Close() }
