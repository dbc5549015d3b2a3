package httpapi_test

import (
	"bufio"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
	"kindred/testkit"
)

func TestRefusalsSayWhatIsWrongAndWhere(t *testing.T) {
	e := serve(t, nil)
	campaigns := "/api/v1/campaigns"
	for _, tt := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		want                     httpapi.FieldError
	}{
		{"a day that no calendar has", "POST", campaigns, `{"name":"x","budget_minor":5,"currency":"EUR","ends_at":"2027-02-30T00:00:00Z"}`, nil, 422, httpapi.FieldError{Pointer: "/ends_at", Detail: "must be a time as in 2026-01-31T12:00:00Z"}},
		{"an hour that no day has", "POST", campaigns, `{"name":"x","budget_minor":5,"currency":"EUR","ends_at":"2027-02-20T25:00:00Z"}`, nil, 422, httpapi.FieldError{Pointer: "/ends_at", Detail: "must be a time as in 2026-01-31T12:00:00Z"}},
		{"such a day in the query", "GET", users + "?updated_since=2027-02-30T00:00:00Z", "", nil, 422, httpapi.FieldError{Pointer: "updated_since", Detail: "must be a time as in 2026-01-31T12:00:00Z"}},
		{"an unknown type of a trait", "PATCH", "/api/v1/traits", `{"traits":{"age":{"type":"nope"}}}`, nil, 422, httpapi.FieldError{Pointer: "/traits/age/type", Detail: "must be one of bool, number, date, geo, set, category, excluded, null"}},
		{"an entity tag without quotes", "DELETE", users + "/" + user, "", []string{"If-Match", "3"}, 422, httpapi.FieldError{Pointer: "If-Match", Detail: `must be an entity tag, in its quotes, as in "3"`}},
		{"an entity tag that lacks a quote", "DELETE", users + "/" + user, "", []string{"If-Match", `"3`}, 422, httpapi.FieldError{Pointer: "If-Match", Detail: `must be an entity tag, in its quotes, as in "3"`}},
		{"an empty entity tag", "DELETE", users + "/" + user, "", []string{"If-Match", ""}, 422, httpapi.FieldError{Pointer: "If-Match", Detail: `must be an entity tag, in its quotes, as in "3"`}},
		{"an empty Idempotency-Key", "POST", users, `{"external_id":"a"}`, []string{"Idempotency-Key", ""}, 422, httpapi.FieldError{Pointer: "Idempotency-Key", Detail: "must not be empty"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := e.with(t)
			p := e.problem(tt.status, "invalid", tt.method, tt.path, tt.body, append(token("full"), tt.headers...)...)
			if diff := cmp.Diff([]httpapi.FieldError{tt.want}, p.Errors); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, tt := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		code, detail             string
	}{
		{"an API key as a token", "GET", users, "", token("kin_live_abc"), 401, "invalid_token", "This is an API key, not a token. Exchange it for one at POST /auth/exchange."},
		{"an API key without Bearer", "GET", users, "", []string{"Authorization", "kin_live_abc"}, 401, "invalid_token", "This is an API key, not a token. Exchange it for one at POST /auth/exchange."},
		{"a token without Bearer", "GET", users, "", []string{"Authorization", "full"}, 401, "invalid_token", "The Authorization header is not a bearer token. Send it as Bearer, a space and the token."},
		{"a compressed body", "POST", users, "x", append(token("full"), "Content-Encoding", "gzip"), 415, "wrong_content_type", "The body is compressed. Send it without a Content-Encoding."},
		{"a compressed import", "POST", users + "/import", "x", append(token("full"), "Content-Type", "application/x-ndjson", "Content-Encoding", "gzip"), 415, "wrong_content_type", "The body is compressed. Send it without a Content-Encoding."},
		{"a form", "POST", users, "x", append(token("full"), "Content-Type", "application/x-www-form-urlencoded"), 415, "wrong_content_type", "Send application/json, in UTF-8."},
		{"an import of a spreadsheet", "POST", users + "/import", "x", append(token("full"), "Content-Type", "application/vnd.ms-excel"), 415, "wrong_content_type", "Send application/x-ndjson or text/csv, in UTF-8."},
		{"a NUL in an id", "GET", users + "/ext:a%00b", "", token("full"), 404, "no_such_path", "There is no such path: user_id must be UTF-8 without control characters."},
		{"a slash at the end", "GET", users + "/", "", nil, 404, "no_such_path", "There is no such path, but there is /api/v1/users."},
		{"two slashes", "GET", "/api/v1//users", "", nil, 404, "no_such_path", "There is no such path, but there is /api/v1/users."},
		{"no version", "GET", "/users/ext:a", "", nil, 404, "no_such_path", "There is no such path, but there is /api/v1/users/{user_id}."},
		{"nothing like it", "GET", "/nothing", "", nil, 404, "no_such_path", "There is no such path. /docs lists those there are."},
		{"a method too many", "PUT", users, "", nil, 405, "method_not_allowed", "The path does not have this method. It has GET, HEAD, POST, OPTIONS."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := e.with(t)
			if p := e.problem(tt.status, tt.code, tt.method, tt.path, tt.body, tt.headers...); p.Detail != tt.detail {
				t.Errorf("%q, want %q", p.Detail, tt.detail)
			}
		})
	}
}

func TestAProblemEndsItsLine(t *testing.T) {
	if _, body := serve(t, nil).send("GET", "/nothing", nil); !strings.HasSuffix(body, "}\n") {
		t.Errorf("%q", body)
	}
}

func TestACompressedBodyIsToldWhatIsTaken(t *testing.T) {
	answer, _ := serve(t, nil).send("POST", users, strings.NewReader("x"), append(token("full"), "Content-Encoding", "gzip")...)
	if got := answer.Header.Get("Accept-Encoding"); got != "identity" {
		t.Errorf("Accept-Encoding: %q", got)
	}
}

func TestAMergePatchMayBeCalledThat(t *testing.T) {
	e := serve(t, nil)
	merge := append(token("full"), "Content-Type", "application/merge-patch+json")
	if p := e.problem(422, "invalid", "PATCH", users+"/"+user, `{}`, merge...); len(p.Errors) != 1 || p.Errors[0].Pointer != "/traits" {
		t.Errorf("%+v", p)
	}
	e.problem(415, "wrong_content_type", "POST", users, `{"external_id":"a"}`, merge...)
}

func TestWhatTheServerCannotReadIsAProblemToo(t *testing.T) {
	e := serve(t, nil)
	for _, unread := range []struct {
		request string
		status  int
	}{
		{"GET /api/v1/users/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /api/v1/users HTTP/1.1\r\n\r\n", 400},
		{"NONSENSE\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 40<<10) + "\r\n\r\n", 431},
		{"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 20<<10-33) + "\r\n\r\n", 431},
		{"POST /auth/token HTTP/1.1\r\nHost: x\r\nExpect: more\r\nContent-Length: 2\r\n\r\n{}", 417},
		{"POST /auth/token HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
		{"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n", 505},
	} {
		request, status := unread.request, unread.status
		listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		server := httpapi.NewServer("", e.handler)
		go func() { _ = server.Serve(httpapi.Problems(listener, rand.Reader)) }()
		t.Cleanup(func() { _ = server.Close() })
		e := e.with(t)
		e.url = "http://" + listener.Addr().String()
		answer, body := e.said(request)
		if got := answer.Header.Get("Content-Type"); answer.StatusCode != status || got != "application/problem+json" ||
			!strings.Contains(body, `"code":"unreadable_request","detail":`) || !strings.HasSuffix(body, "}\n") {
			t.Errorf("%.40q: %d %s %s", request, answer.StatusCode, got, body)
		}
	}
}

// said sends what may be no request, and returns the first answer with its body.
func (e *edge) said(request string) (answer, string) {
	e.t.Helper()
	c := testkit.Must(net.Dial("tcp", strings.TrimPrefix(e.url, "http://")))(e.t)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // net/http waits 15 s for a body
	if _, err := io.WriteString(c, request); err != nil {
		e.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		e.t.Fatalf("%.40q: %v", request, err)
	}
	defer response.Body.Close()
	body := testkit.Must(io.ReadAll(response.Body))(e.t)
	return answer{response.StatusCode, response.Header, response.ContentLength, response.Close}, string(body)
}

// Who sends an import line by line need not send more to be told that it is refused.
func TestAnImportIsRefusedBeforeItHasCome(t *testing.T) {
	answer, _ := serve(t, nil).said("POST " + users + "/import HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n{")
	if answer.StatusCode != http.StatusUnauthorized || !answer.Close {
		t.Errorf("%d, the connection goes on: %t", answer.StatusCode, !answer.Close)
	}
}

// net/http gives up a trailer that does not fit into its buffer, and has then read none of it.
func TestNothingBehindABodyThatBrokeOffIsARequest(t *testing.T) {
	answer, body := serve(t, nil).said("POST /auth/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" +
		"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 8<<10) + "\r\n\r\n")
	if !strings.Contains(body, `"code":"body_incomplete"`) || !answer.Close {
		t.Errorf("%d, the connection goes on: %t; %s", answer.StatusCode, !answer.Close, body)
	}
}

func TestNothingFollowsABodyWhoseEndAProxyMightSeeElsewhere(t *testing.T) {
	e := serve(t, nil)
	for head, closes := range map[string]bool{
		"1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}":                                                      false,
		"1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n":                           true,
		"1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n":      true,
		"1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n": true,
	} {
		if answer, body := e.said("POST /nothing HTTP/" + head); answer.StatusCode != http.StatusNotFound || answer.Close != closes {
			t.Errorf("%q: %d %s, the connection goes on: %t", head, answer.StatusCode, body, !answer.Close)
		}
	}
}
