package httpapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"kindred/domain/fault"
)

const (
	// limit: imports | between two pieces of a body | {streamIdle} | 400 `body_incomplete`
	streamIdle = 30 * time.Second // between two pieces of a streamed body
	// limit: imports | time of one | {streamTotal} | 413 `stream_too_long`
	streamTotal = time.Hour // for the whole of it, or of an export
)

// streaming serves a request while it holds the place of a stream. The context it is given ends
// with its token.
func (e *edge) streaming(ctx context.Context, x *exchange, serve func(context.Context)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s, conn := &stream{meter: meter{now: e.o.Now}, takes: x.op.streams}, http.NewResponseController(x.rec)
	s.waits.deadline = conn.SetWriteDeadline
	if s.takes {
		s.waits.deadline = conn.SetReadDeadline
	}
	defer s.waits.end()
	s.holder = s.meter.holder(s.waits.cut)
	return e.streams.during(ctx, x.client(), s.holder, func() error {
		x.rec.stream = s
		defer e.o.Follows.watch(x.principal, func(why error) {
			s.lost.Store(&why)
			end(why)
			s.waits.cut()
		})()
		serve(ctx)
		if s.holder.Ended() {
			e.streams.shed.Inc()
		}
		return nil
	})
}

// streamedBody is a request body of any length: its deadline moves on with
// every piece that arrives, up to a last one.
type streamedBody struct {
	body  io.ReadCloser
	rec   *recorder
	conn  *http.ResponseController
	now   func() time.Time
	last  time.Time // when it all ends
	moved time.Time // when the deadlines were set
	ended bool      // the connection is now watched by net/http, without a deadline
}

func (e *edge) stream(w *recorder, r *http.Request) *streamedBody {
	return &streamedBody{body: r.Body, rec: w, conn: http.NewResponseController(w), now: e.o.Now, last: e.o.Now().Add(streamTotal)}
}

func (b *streamedBody) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	s, now := b.rec.stream, b.now()
	if !now.Before(b.last) {
		return 0, fault.New(fault.TooLarge, "stream_too_long", "The body took longer than %s.", streamTotal)
	}
	if now.Sub(b.moved) >= time.Second {
		b.moved = now
		if err := b.extend(now.Add(streamIdle)); err != nil {
			return 0, err
		}
	}
	if err := s.ended(); err != nil {
		return 0, err
	}
	n, err := metered{b.body, &s.meter}.Read(p)
	b.ended = errors.Is(err, io.EOF)
	if cut := b.ended && s.waits.end(); err == nil || b.ended && !cut {
		return n, err
	}
	return n, cmp.Or(s.ended(), incomplete())
}

func incomplete() error {
	return fault.New(fault.Unreadable, "body_incomplete", "The body did not arrive whole.")
}

// extend leaves time for reading until until, and for the answer after it.
func (b *streamedBody) extend(until time.Time) error {
	err := errors.Join(b.conn.SetReadDeadline(until), b.conn.SetWriteDeadline(until.Add(writeTimeout)))
	if errors.Is(err, http.ErrNotSupported) {
		return nil // not on a connection
	}
	return err
}

func (b *streamedBody) Close() error { return b.body.Close() }
