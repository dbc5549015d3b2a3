package httpapi

import (
	"io"
	"net/http"

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
// up to another client where its caller is slow.
type stream struct {
	meter  meter
	holder *semaphore.Holder
}

// write writes a part of an answer, which is an export's where there is a stream.
func (s *stream) write(w io.Writer, p []byte) (n int, err error) {
	if s == nil {
		return w.Write(p)
	}
	if s.holder.Ended() {
		return 0, overloaded()
	}
	s.meter.begin()
	defer func() { s.meter.end(n) }()
	return w.Write(p)
}
