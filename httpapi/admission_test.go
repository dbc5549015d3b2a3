package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
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
	e.problem(503, "overloaded", "GET", "/.well-known/audit-jwks.json", "")
	head, _ := e.send("HEAD", users+"?limit=x", nil)
	if head.StatusCode != http.StatusServiceUnavailable || head.Header.Get("Retry-After") == "" || head.Header.Get("X-Request-Id") == "" {
		t.Errorf("HEAD: %+v", head)
	}
	if told := strings.Count(e.log.String(), "turned away"); told != 1 {
		t.Errorf("the log tells it %d times within a second: %s", told, e.log)
	}
	_, metrics := e.send("GET", "/metrics", nil)
	if want := `kindred_http_requests_shed_total{lane="reads"} 3`; !strings.Contains(metrics, want) {
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

// slowReader asks for a user and reads no more than the head of the answer.
func (e *edge) slowReader() {
	e.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\n\r\n", users+"/"+user)
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		e.t.Fatal(line, err)
	}
}

func TestWhoReadsSlowlyKeepsNobodyOut(t *testing.T) {
	e := serve(t, func(o *httpapi.Options) { o.Limits.InFlight = 1 })
	// No buffer of a connection holds this.
	e.service.traits = json.RawMessage(`{"much":"` + strings.Repeat("x", 8<<20) + `"}`)
	for range 2 { // of whom the lane holds one
		e.slowReader()
	}
	if answer, _ := e.send("GET", users, nil, token("full")...); answer.StatusCode != http.StatusOK {
		t.Errorf("a read: %d", answer.StatusCode)
	}
}

// Whoever has shown no token yet holds nobody up by being slow.
func TestSlowBodiesKeepNobodyOut(t *testing.T) {
	e := serve(t, func(o *httpapi.Options) { o.Limits.InFlight = 1 })
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const login = `{"email":"a@example.com","password":"12345678"}`
	fmt.Fprintf(conn, "POST /auth/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(login))
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatal(line, err) // it is not being read
	}
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if answer, _ := e.send("POST", users, strings.NewReader(`{"external_id":"a"}`), token("full")...); answer.StatusCode != http.StatusCreated {
		t.Errorf("a write: %d", answer.StatusCode)
	}
	if _, err := io.WriteString(conn, login); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(body), "invalid_credentials") {
		t.Errorf("%s, %v", body, err)
	}
}
