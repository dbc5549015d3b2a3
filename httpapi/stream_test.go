package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"kindred/httpapi"
	"kindred/testkit"
)

// deadlines is an answer that writes down how long its connection may be read, and written.
type deadlines struct {
	*httptest.ResponseRecorder
	set, written []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.written = append(d.written, at)
	return nil
}

// A caller's connection serves the next request as soon as this one is answered.
func TestAStreamOfEventsThatEndsLeavesItsConnectionWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for cut, meanwhile := range []func(){func() {}, synctest.Wait} {
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			ctx, end := context.WithCancel(t.Context())
			stream := httpapi.EventStream{Context: ctx, Write: func(io.Writer) error {
				end()
				meanwhile()
				return nil
			}}
			if err := stream.VisitFollowEventsResponse(w); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := len(w.written); n < 2*cut || n > 0 && w.written[n-1].Before(time.Now()) {
				t.Errorf("deadlines of writing: %v", w.written)
			}
		}
	})
}

func TestNoConnectionIsCutForARequestThatIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answered := make(chan struct{}), make(chan struct{})
		follows := httpapi.NewFollows(func(context.Context, httpapi.Principal) (bool, error) {
			close(asked)
			<-answered
			return true, nil
		}, time.Now)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go follows.Run(ctx)
		e := newEdge(t, func(o *httpapi.Options) { o.Follows = follows })
		e.service.imports = func(context.Context, io.Reader) error { <-asked; return nil }
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("POST", users+"/import", strings.NewReader("{}\n"))
		r.Header.Set("Authorization", "Bearer full")
		r.Header.Set("Content-Type", "application/x-ndjson")
		e.handler.ServeHTTP(w, r)
		before := len(w.set)
		close(answered)
		synctest.Wait()
		if w.Code != 200 || len(w.set) != before {
			t.Errorf("%d, with deadlines at %v", w.Code, w.set)
		}
	})
}

func TestAnImportIsAnsweredBeforeTheProcessStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		follows := httpapi.NewFollows(nil, time.Now)
		e := newEdge(t, func(o *httpapi.Options) { o.Follows = follows })
		var read []error
		e.service.imports = func(_ context.Context, body io.Reader) error {
			piece := make([]byte, 1)
			follows.Stop()
			for _, wait := range []time.Duration{httpapi.StreamGrace - time.Second, 2 * time.Second} {
				time.Sleep(wait)
				_, err := body.Read(piece)
				read = append(read, err)
			}
			return read[1]
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", users+"/import", strings.NewReader("{}\n{}\n"))
		r.Header.Set("Authorization", "Bearer full")
		r.Header.Set("Content-Type", "application/x-ndjson")
		e.handler.ServeHTTP(w, r)
		if read[0] != nil || w.Code != 503 || !strings.Contains(w.Body.String(), `"not_ready"`) || w.Header().Get("Retry-After") == "" {
			t.Errorf("%v; %d %s %v", read[0], w.Code, w.Body, w.Header())
		}
	})
}

func TestAnExportThatLosesItsTokenIsNoErrorOfOurs(t *testing.T) {
	for level, lost := range map[string]error{"INFO": nil, "ERROR": errors.New("nobody can say")} {
		follows := httpapi.NewFollows(func(context.Context, httpapi.Principal) (bool, error) { return true, lost }, time.Now)
		e := serve(t, func(o *httpapi.Options) { o.Follows = follows })
		e.service.export = func(w io.Writer) error {
			for range time.Tick(time.Millisecond) {
				if _, err := io.WriteString(w, strings.Repeat("x", 8<<10)); err != nil {
					return err
				}
			}
			return nil
		}
		r := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+"/api/v1/clients/"+mine+"/history", nil))(t)
		r.Header.Set("Authorization", "Bearer full")
		r.Header.Set("Accept", asLines)
		go follows.Run(t.Context())
		if got, err := e.client.Do(r); err == nil {
			got.Body.Close()
			t.Error("a part is taken for the whole")
		}
		testkit.Eventually(t, "it is told as "+level, func() bool {
			for line := range strings.Lines(e.log.String()) {
				if strings.Contains(line, `"answer broken off"`) {
					return strings.Contains(line, `"level":"`+level+`"`)
				}
			}
			return false
		})
	}
}

// To cut the connection once the body has come to its end would end all requests that come after this one.
func TestAStreamThatLosesItsTokenOnceItIsReadLeavesItsConnectionWhole(t *testing.T) {
	const looks = 3 // as the second begins, all are ended that the first has found
	looked := make(chan struct{}, looks)
	follows := httpapi.NewFollows(func(context.Context, httpapi.Principal) (bool, error) {
		select {
		case looked <- struct{}{}:
		default:
		}
		return true, nil
	}, time.Now)
	e := serve(t, func(o *httpapi.Options) { o.Follows = follows })
	e.service.imports = func(_ context.Context, body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		go follows.Run(t.Context())
		for range looks {
			<-looked
		}
		return err
	}
	send := func() (answer, string) {
		return e.send("POST", users+"/import", strings.NewReader("{}\n"), "Authorization", "Bearer full", "Content-Type", "application/x-ndjson")
	}
	if got, body := send(); got.StatusCode != 200 {
		t.Fatalf("%d %s", got.StatusCode, body)
	}
	e.service.imports = func(ctx context.Context, _ io.Reader) error { return ctx.Err() }
	if got, body := send(); got.StatusCode != 200 {
		t.Errorf("the request after it: %d %s", got.StatusCode, body)
	}
}

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
