package httpapi

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"time"
)

// Export answers with NDJSON or CSV of any length, which Write writes as fast as the
// caller takes it. Its deadline moves on with every piece, up to a last one. Where
// Write fails after something was sent, that is logged and the connection is cut, so
// that nobody takes a part for the whole.
type Export struct {
	Now   func() time.Time
	Write func(io.Writer) error
}

// brokenOff is the panic of an answer of which a part was sent.
type brokenOff struct{ err error }

// VisitListHistoryResponse answers a request for a history.
func (e Export) VisitListHistoryResponse(w http.ResponseWriter) error { return e.visit(w, mediaLines) }

// VisitListSegmentMembersResponse answers a request for the members of a segment.
func (e Export) VisitListSegmentMembersResponse(w http.ResponseWriter) error {
	return e.visit(w, mediaCSV)
}

// VisitListUsersResponse answers a request for users.
func (e Export) VisitListUsersResponse(w http.ResponseWriter) error { return e.visit(w, mediaCSV) }

func (e Export) visit(w http.ResponseWriter, media string) error {
	w.Header().Set("Content-Type", media)
	to := &moving{to: w, conn: http.NewResponseController(w), now: e.Now, last: e.Now().Add(streamTotal)}
	buffered := bufio.NewWriterSize(to, 64<<10)
	err := e.Write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil && to.begun {
		panic(brokenOff{err})
	}
	return err
}

// moving is a connection whose write deadline moves on with what is written.
type moving struct {
	to    io.Writer
	conn  *http.ResponseController
	now   func() time.Time
	last  time.Time // when it all ends
	begun bool
	moved time.Time
}

func (m *moving) Write(p []byte) (int, error) {
	m.begun = true
	if now := m.now(); now.Sub(m.moved) >= time.Second {
		m.moved = now
		until := now.Add(writeTimeout)
		if until.After(m.last) {
			until = m.last
		}
		if err := m.conn.SetWriteDeadline(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return 0, err
		}
	}
	return m.to.Write(p)
}
