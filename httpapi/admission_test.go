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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kindred/domain/fault"
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

// slowBody begins to send a body, which the server waits for when it returns.
func (e *edge) slowBody(path, headers string, size int) (net.Conn, *bufio.Reader) {
	e.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%sExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, headers, size)
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		e.t.Fatal(line, err)
	}
	if _, err := in.ReadString('\n'); err != nil {
		e.t.Fatal(err)
	}
	return conn, in
}

// end sends the rest of a slow body, and returns the answer.
func (e *edge) end(conn net.Conn, in *bufio.Reader, rest string) (status int, body string) {
	e.t.Helper()
	if _, err := io.WriteString(conn, rest); err != nil {
		e.t.Fatal(err)
	}
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	defer answer.Body.Close()
	whole, err := io.ReadAll(answer.Body)
	if err != nil {
		e.t.Error(err)
	}
	return answer.StatusCode, string(whole)
}

const withToken, withLines = "Authorization: Bearer full\r\nContent-Type: application/json\r\n", "Authorization: Bearer full\r\nContent-Type: application/x-ndjson\r\n"

// Whoever has shown no token yet holds nobody up by being slow.
func TestSlowBodiesKeepNobodyOut(t *testing.T) {
	e := serve(t, func(o *httpapi.Options) { o.Limits.InFlight = 1 })
	const login = `{"email":"a@example.com","password":"12345678"}`
	conn, in := e.slowBody("/auth/token", "Content-Type: application/json\r\n", len(login))
	if answer, _ := e.send("POST", users, strings.NewReader(`{"external_id":"a"}`), token("full")...); answer.StatusCode != http.StatusCreated {
		t.Errorf("a write: %d", answer.StatusCode)
	}
	if _, body := e.end(conn, in, login); !strings.Contains(body, "invalid_credentials") {
		t.Error(body)
	}
}

func TestSlowBodiesOfAClientKeepNobodyOut(t *testing.T) {
	e := serve(t, func(o *httpapi.Options) { o.Limits.InFlight = 1 })
	for range 2 {
		e.slowBody(users, withToken, 60)
	}
	large := `{"external_id":"a","traits":{"much":"` + strings.Repeat("x", 8<<10) + `"}}`
	conn, in := e.slowBody(users, withToken, len(large))
	if answer, _ := e.send("POST", users, strings.NewReader(`{"external_id":"b"}`), token("full")...); answer.StatusCode != http.StatusCreated {
		t.Errorf("a write: %d", answer.StatusCode)
	}
	e.problem(503, "overloaded", "POST", users, large, token("full")...) // the client has its share of large ones
	if status, body := e.end(conn, in, large); status != http.StatusCreated || !strings.Contains(body, "xxx") {
		t.Errorf("the slow one: %d %s", status, body)
	}
	if answer, _ := e.send("POST", users, strings.NewReader(large), token("full")...); answer.StatusCode != http.StatusCreated {
		t.Errorf("afterwards: %d", answer.StatusCode)
	}
}

// A long answer waits for the body that nobody has read.
func TestSlowBodiesOfWhatIsRefusedKeepNobodyOut(t *testing.T) {
	unknown := "?a&b"
	for i := range 50 {
		unknown += fmt.Sprint("&p", i)
	}
	for path, more := range map[string]string{users: withToken, "/auth/token": "", users + "/import": withLines} {
		synctest.Test(t, func(t *testing.T) {
			e := newEdge(t, func(o *httpapi.Options) { o.Limits.InFlight = 1 })
			refused := func(length int) net.Conn {
				conn := serveOne(t, e)
				fmt.Fprintf(conn, "POST %s%s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n", path, unknown, more, length)
				return conn
			}
			refused(10_000)
			synctest.Wait()
			if line, err := bufio.NewReader(refused(0)).ReadString('\n'); err != nil || !strings.Contains(line, " 422 ") {
				t.Errorf("beside %s: %q, %v", path, line, err)
			}
		})
	}
}

// Who sends no more, having seen that it is too much, need not wait either.
func TestARefusalIsWholeBeforeTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, began := serveOne(t, newEdge(t, nil)), time.Now()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: 2000000\r\n\r\n", users, withToken)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusRequestEntityTooLarge || !strings.HasSuffix(string(body), "}\n") {
			t.Errorf("%d %s, %v", answer.StatusCode, body, err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		_, _ = io.Copy(io.Discard, conn) // until it is closed
	})
}

func TestStreamsOfAClientLeavePlacesToOthers(t *testing.T) {
	now := time.Now()
	e := serve(t, func(o *httpapi.Options) {
		o.Limits.InFlight = 8 // two streams
		o.Now = func() time.Time { return now }
	})
	e.service.imports = func(_ context.Context, body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	}
	conn, in := e.slowBody(users+"/import", withLines, 1)
	lines := append(token("full"), "Content-Type", "application/x-ndjson")
	for range 2 {
		e.problem(503, "overloaded", "POST", users+"/import", "{}", lines...)
	}
	if log := e.log.String(); strings.Count(log, `"level":"WARN"`) != 1 || strings.Count(log, "turned away") != 1 {
		t.Errorf("within a second a client's refusals are told of once, not: %s", log)
	}
	if status, body := e.end(conn, in, "\n"); status != http.StatusOK {
		t.Errorf("the first: %d %s", status, body)
	}
	if again, _ := e.send("POST", users+"/import", strings.NewReader("{}"), lines...); again.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", again.StatusCode)
	}
}

// soon is a fault that can be waited for.
func soon(wait func(context.Context) error) error {
	f := fault.New(fault.Unavailable, "stale", "It is behind.")
	f.Soon = func(ctx context.Context) (context.Context, error) { return ctx, wait(ctx) }
	return f
}

func TestWhatIsBehindIsWaitedForWithoutAPlaceAndAskedAgain(t *testing.T) {
	e := serve(t, func(o *httpapi.Options) { o.Limits.InFlight = 1 })
	var asked atomic.Int32
	waiting, waited := make(chan struct{}), make(chan error)
	wait := func(context.Context) error {
		close(waiting)
		return <-waited
	}
	e.service.listUsers = func(ctx context.Context, r httpapi.ListUsersRequestObject) error {
		if r.Params.Limit == nil {
			return nil
		}
		if asked.Add(1) == 1 {
			return soon(wait)
		}
		return nil
	}
	done := make(chan int)
	go func() {
		answer, _ := e.send("GET", users+"?limit=1", nil, token("full")...)
		done <- answer.StatusCode
	}()
	<-waiting
	if answer, _ := e.send("GET", users, nil, token("full")...); answer.StatusCode != http.StatusOK {
		t.Errorf("a read: %d", answer.StatusCode)
	}
	asked.Store(0)
	e.problem(503, "overloaded", "GET", users+"?limit=1", "", token("full")...) // so many may wait
	waited <- nil
	if got := <-done; got != http.StatusOK || asked.Load() != 2 {
		t.Errorf("what waited: %d, asked %d times", got, asked.Load())
	}
}
