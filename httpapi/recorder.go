package httpapi

import (
	"io"
	"net/http"
	"sync/atomic"

	"kindred/semaphore"
)

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int // 0 until the header is written
	bytes  int64

	place          // until the answer is written
	stream *stream // that holds a place for the whole of the answer; nil: none does
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if c, size := r.class, int64(len(p)); r.held {
		defer c.written.Add(-size)
		if c.written.Add(size) <= maxWritten {
			r.leave()
		}
	}
	n, err := r.stream.write(r.ResponseWriter, p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// stream is an import or an export. It holds a place that it may have to give
// up to another client where its caller is slow, and ends with its token.
type stream struct {
	meter  meter
	holder *semaphore.Holder
	waits  cutter                // of what waits for the caller; an import's ends with its body
	takes  bool                  // an import: its answer says why it ended
	lost   atomic.Pointer[error] // why nothing is done with its token any more; nil: it holds
}

// ended says why it has to end; nil: it goes on.
func (s *stream) ended() error {
	if why := s.lost.Load(); why != nil {
		return *why
	}
	if s.holder.Ended() {
		return overloaded()
	}
	return nil
}

// write writes a part of an answer, which is an export's where there is a stream.
func (s *stream) write(w io.Writer, p []byte) (n int, err error) {
	if s == nil {
		return w.Write(p)
	}
	if err := s.ended(); err != nil && !s.takes {
		return 0, err
	}
	s.meter.begin()
	defer func() { s.meter.end(n) }()
	return w.Write(p)
}
