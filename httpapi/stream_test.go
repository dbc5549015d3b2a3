package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"kindred/httpapi"
)

// deadlines is an answer that writes down how long its connection may be read.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

func (d *deadlines) SetWriteDeadline(time.Time) error { return nil }

// Once a body has come to its end, net/http watches the connection for a caller
// who goes away: a deadline would take one away who waits for the answer.
func TestAStreamThatHasEndedGetsNoNewDeadline(t *testing.T) {
	now := time.Now()
	e := newEdge(t, func(o *httpapi.Options) { o.Now = func() time.Time { return now } })
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	e.service.imports = func(_ context.Context, body io.Reader) error {
		piece := make([]byte, 100)
		for i := range 3 {
			n, err := body.Read(piece)
			if got := string(piece[:n]); i == 0 && got != "the last line" || i > 0 && (n != 0 || !errors.Is(err, io.EOF)) {
				t.Errorf("read %d gives %q, %v", i, got, err)
			}
			now = now.Add(time.Minute)
		}
		return nil
	}
	r := httptest.NewRequest("POST", users+"/import", iotest.DataErrReader(strings.NewReader("the last line")))
	r.Header.Set("Authorization", "Bearer full")
	r.Header.Set("Content-Type", "application/x-ndjson")
	e.handler.ServeHTTP(w, r)
	if w.Code != 200 || len(w.set) != 1 {
		t.Errorf("%d, with deadlines at %v", w.Code, w.set)
	}
}
