package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"kindred/httpapi"
)

// oneAtATime is an edge with one slot, whose lists are held up once the first
// has begun: until release, which must come, the lane
// of reads is taken.
func oneAtATime(t *testing.T) (e *edge, release func()) {
	t.Helper()
	now := time.Now()
	e = serve(t, func(o *httpapi.Options) {
		o.Limits.InFlight = 1
		o.Now = func() time.Time { return now }
	})
	entered, leave := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() {
		close(entered)
		<-leave
	})
	e.service.listUsers = func(context.Context, httpapi.ListUsersRequestObject) error {
		first()
		return nil
	}
	var held sync.WaitGroup
	held.Go(func() {
		if answer, _ := e.send("GET", users, nil, token("full")...); answer.StatusCode != http.StatusOK {
			t.Errorf("the first request: %d", answer.StatusCode)
		}
	})
	<-entered
	release = sync.OnceFunc(func() {
		close(leave)
		held.Wait()
	})
	return e, release
}

func TestWhoeverIsTooManyIsTurnedAwayUncheckedWithTheWholeProblem(t *testing.T) {
	e, release := oneAtATime(t)
	defer release()
	p := e.problem(503, "overloaded", "GET", users, "", "X-Request-Id", "mine") // no token, yet not 401
	if p.RequestID != "mine" || p.Type == "" || p.Title == "" || p.Detail == "" {
		t.Errorf("%+v", p)
	}
	head, _ := e.send("HEAD", users+"?limit=x", nil)
	if head.StatusCode != http.StatusServiceUnavailable || head.Header.Get("Retry-After") == "" || head.Header.Get("X-Request-Id") == "" {
		t.Errorf("HEAD: %+v", head)
	}
	if told := strings.Count(e.log.String(), "turned away"); told != 1 {
		t.Errorf("the log tells it %d times within a second: %s", told, e.log)
	}
	_, metrics := e.send("GET", "/metrics", nil)
	if want := `kindred_http_requests_shed_total{lane="reads"} 2`; !strings.Contains(metrics, want) {
		t.Errorf("no %s", want)
	}
	release()
	if answer, _ := e.send("GET", users, nil, token("full")...); answer.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", answer.StatusCode)
	}
}

func TestReadsKeepNobodyElseOut(t *testing.T) {
	e, release := oneAtATime(t)
	defer release()
	if answer, _ := e.send("POST", users, strings.NewReader(`{"external_id":"a"}`), token("full")...); answer.StatusCode != http.StatusCreated {
		t.Errorf("a write: %d", answer.StatusCode)
	}
	entered, lines := make(chan struct{}), append(token("full"), "Content-Type", "application/x-ndjson")
	e.service.imports = func(_ context.Context, body io.Reader) error {
		close(entered)
		_, err := io.Copy(io.Discard, body)
		return err
	}
	body, more := io.Pipe()
	done := make(chan int)
	go func() {
		answer, _ := e.send("POST", users+"/import", body, lines...)
		done <- answer.StatusCode
	}()
	<-entered
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/docs"} {
		if answer, _ := e.send("GET", path, nil); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
	e.problem(503, "overloaded", "POST", users+"/import", "{}", lines...)
	more.Close()
	if got := <-done; got != http.StatusOK {
		t.Errorf("the first import: %d", got)
	}
}
