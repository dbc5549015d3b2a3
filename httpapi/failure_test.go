package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"kindred/domain/fault"
	"kindred/httpapi"
	"kindred/testkit"
)

func TestFaults(t *testing.T) {
	e := serve(t, nil)
	e.client = new(http.Client) // no list has all these statuses in the contract
	statuses := map[fault.Kind]int{
		fault.Unreadable: 400, fault.Unauthenticated: 401, fault.Forbidden: 403, fault.Missing: 404,
		fault.Conflict: 409, fault.Gone: 410, fault.Stale: 412, fault.TooLarge: 413, fault.WrongType: 415,
		fault.Invalid: 422, fault.Limited: 429, fault.Unavailable: 503,
	}
	for kind, status := range statuses {
		e.service.listUsers = func(context.Context, httpapi.ListUsersRequestObject) error {
			return fmt.Errorf("list users: %w", fault.New(kind, "stale", "Why."))
		}
		if p := e.problem(status, "stale", "GET", users, "", token("full")...); p.Detail != "Why." || p.Title != http.StatusText(status) {
			t.Errorf("%d: %+v", status, p)
		}
	}
	e.service.listUsers = func(context.Context, httpapi.ListUsersRequestObject) error {
		return fault.New(fault.Unavailable, "stale", "Behind.").After(1500 * time.Millisecond)
	}
	if answer, _ := e.send("GET", users, nil, token("full")...); answer.Header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After %s", answer.Header.Get("Retry-After"))
	}
}

// A pull may be ended within a statement, which tells no more than that it was cancelled: its caller is there still.
func TestAPullIsToldWhyItEnds(t *testing.T) {
	for code, status := range map[string]int{"expired_token": http.StatusUnauthorized, "not_ready": http.StatusServiceUnavailable, "unavailable": http.StatusServiceUnavailable} {
		t.Run(code, func(t *testing.T) {
			away := fault.New(fault.Unavailable, "unavailable", "Try again.").After(time.Second)
			follows := httpapi.NewFollows(func(context.Context, httpapi.Principal) (bool, error) { return false, errors.New("the store is away") }, func() time.Time {
				if code == "unavailable" {
					return time.Time{}.Add(-time.Hour) // before the token expires
				}
				return time.Now()
			})
			e := serve(t, func(o *httpapi.Options) {
				o.Follows, o.Classify = follows, func(context.Context, error) *fault.Fault { return away }
			})
			e.service.events = func(ctx context.Context) error {
				if code == "not_ready" {
					follows.Stop()
				} else {
					go follows.Run(t.Context())
				}
				<-ctx.Done()
				return fmt.Errorf("read events: %w", ctx.Err())
			}
			e.problem(status, code, "GET", "/api/v1/events?wait=30", "", token("full")...)
		})
	}
}

func TestWhatTakesTooLongToReadTellsHowToAskForLess(t *testing.T) {
	e := serve(t, func(o *httpapi.Options) {
		o.Classify = func(ctx context.Context, _ error) *fault.Fault {
			return fault.New(fault.Unavailable, "read_too_slow", "Too slow.%s", httpapi.Narrower(ctx))
		}
	})
	e.service.listUsers = func(context.Context, httpapi.ListUsersRequestObject) error { return errors.New("ended") }
	answer, body := e.send("GET", users, nil, token("full")...)
	if answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" ||
		!strings.Contains(body, "Too slow. Ask for less by ") || !strings.Contains(body, "updated_since") || strings.Contains(body, "cursor") {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}

func TestOurOwnTrouble(t *testing.T) {
	lost := errors.New("the store is away")
	e := serve(t, func(o *httpapi.Options) {
		o.Timeout = 20 * time.Millisecond
		o.Classify = func(_ context.Context, err error) *fault.Fault {
			if errors.Is(err, lost) || errors.Is(err, context.DeadlineExceeded) { // as a connection that cannot be made
				return fault.New(fault.Unavailable, "unavailable", "Try again.")
			}
			return nil
		}
	})
	var trouble func(context.Context) error
	e.service.listUsers = func(ctx context.Context, _ httpapi.ListUsersRequestObject) error { return trouble(ctx) }

	tests := []struct {
		name    string
		trouble func(context.Context) error
		status  int
		code    string
		logged  int // lines with the words of the trouble
	}{
		{"an error", func(context.Context) error { return errors.New("private words") }, 500, "internal", 1},
		{"a panic", func(context.Context) error { panic("private words") }, 500, "internal", 1},
		{"a classified error", func(context.Context) error { return fmt.Errorf("private words: %w", lost) }, 503, "unavailable", 1},
		{"a slow handler", func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("private words: %w", ctx.Err())
		}, 503, "timeout", 1},
		{"a slow part of a handler", func(context.Context) error {
			return fmt.Errorf("private words: %w", context.DeadlineExceeded)
		}, 503, "unavailable", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := e.with(t)
			trouble = tt.trouble
			before := e.log.String()
			answer, body := e.send("GET", users+"?external_id=somebody", nil, append(token("full"), "X-Request-Id", "mine-"+tt.code)...)
			if answer.StatusCode != tt.status || !strings.Contains(body, `"code":"`+tt.code+`"`) || strings.Contains(body, "private words") {
				t.Errorf("%d %s", answer.StatusCode, body)
			}
			log := strings.TrimPrefix(e.log.String(), before)
			logged := 0
			for line := range strings.Lines(log) {
				if strings.Contains(line, "private words") {
					logged++
					if !strings.Contains(line, `"request_id":"mine-`+tt.code) {
						t.Errorf("no request id: %s", line)
					}
				}
			}
			if logged != tt.logged {
				t.Errorf("logged %d times, want %d: %s", logged, tt.logged, log)
			}
			level := map[int]string{500: "ERROR", 503: "INFO"}[tt.status]
			if !strings.Contains(log, `"level":"`+level+`","msg":"request",`) {
				t.Errorf("no %s tells of the request: %s", level, log)
			}
		})
	}
}

// hungUp is a connection that its caller has left.
type hungUp struct{ http.ResponseWriter }

func (hungUp) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestWhoHangsUpIsNoTroubleOfOurs(t *testing.T) {
	e := newEdge(t, func(o *httpapi.Options) {
		o.Classify = func(context.Context, error) *fault.Fault {
			return fault.New(fault.Unavailable, "unavailable", "Try again.")
		}
		o.Ready = func(ctx context.Context) error { return ctx.Err() }
	})
	e.service.listUsers = func(ctx context.Context, _ httpapi.ListUsersRequestObject) error {
		return errors.Join(errors.New("read the users"), ctx.Err())
	}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	early := httptest.NewRequest("GET", users, nil).WithContext(gone)
	middle := httptest.NewRequest("GET", users+"/"+user, nil)
	asked := httptest.NewRequest("GET", "/readyz", nil).WithContext(gone)
	for _, r := range []*http.Request{early, middle, asked} {
		r.Header.Set("Authorization", "Bearer full")
		e.handler.ServeHTTP(hungUp{httptest.NewRecorder()}, r)
	}
	if log := e.log.String(); strings.Contains(log, "WARN") || strings.Contains(log, "unavailable") || strings.Count(log, `"code":"cancelled"`) != 3 {
		t.Error(log)
	}
	answer := httptest.NewRecorder()
	e.handler.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{`route="/api/v1/users",status="499"} 1`, `route="/api/v1/users/{user_id}",status="200"} 1`} {
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	e := serve(t, nil)
	for sent, kept := range map[string]bool{
		"abc-123_x.y:z": true, "": false, "with space": false, "ü": false, `"quoted"`: false, strings.Repeat("a", 129): false,
	} {
		answer, _ := e.send("GET", users, nil, append(token("full"), "X-Request-Id", sent)...)
		got := answer.Header.Get("X-Request-Id")
		if (got == sent) != kept || !kept && !strings.HasPrefix(got, "req_") {
			t.Errorf("sent %q, got %q", sent, got)
		}
		if string(e.service.call.ID) != got {
			t.Errorf("the handler got %q", e.service.call.ID)
		}
	}
}

func TestLogAndMetrics(t *testing.T) {
	e := serve(t, nil)
	e.send("GET", users+"/ext:zyx%40example.com", nil, token("key-write")...)
	e.send("GET", users+"?external_id=zyx%40example.com", nil, token("full")...)
	e.send("BREW", "/pot/zyx", nil)
	_, metrics := e.send("GET", "/metrics", nil)
	log := e.log.String()
	for _, want := range []string{
		`"method":"GET","route":"/api/v1/users/{user_id}","status":200,`,
		`"client":"` + mine + `","actor":"` + key + `"`,
		`"client":"` + mine + `","actor":"` + member + `"`,
		`"method":"other","route":"other","status":404,`,
		`"code":"no_such_path"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	for _, want := range []string{
		`kindred_http_request_duration_seconds_count{method="GET",route="/api/v1/users/{user_id}",status="200"} 1`,
		`kindred_http_request_duration_seconds_count{method="other",route="other",status="404"} 1`,
		`kindred_http_requests_in_flight 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	for _, private := range []string{"zyx", "Bearer", "key-write"} { // no id has a z: one may have "ada" in it
		if strings.Contains(log, private) || strings.Contains(metrics, private) {
			t.Errorf("%s stands in the log or the metrics", private)
		}
	}
}

func TestNotReady(t *testing.T) {
	e := serve(t, func(o *httpapi.Options) {
		o.Ready = func(context.Context) error { return errors.New("private words") }
	})
	if p := e.problem(503, "not_ready", "GET", "/readyz", ""); strings.Contains(p.Detail, "private") {
		t.Error(p.Detail)
	}
}

// A body that stops in the middle is the caller's trouble, not ours.
func TestBrokenBodies(t *testing.T) {
	e := serve(t, nil)
	e.service.imports = func(_ context.Context, body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	}
	for path, contentType := range map[string]string{users: "application/json", "/auth/token": "application/json", users + "/import": "application/x-ndjson"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\n{", path, contentType)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer := testkit.Must(io.ReadAll(conn))(t)
		conn.Close()
		if !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || !strings.Contains(string(answer), "body_incomplete") {
			t.Errorf("%s: %s", path, answer)
		}
	}
}
