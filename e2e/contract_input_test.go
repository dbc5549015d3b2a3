package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kindred/app"
	"kindred/httpapi"
)

// canary stands in every value that is sent wrongly, so that the log can be
// searched for it.
const canary = "canary-4711"

// badBody is what no operation takes that takes JSON.
type badBody struct {
	name, body string
	status     int
	code       string
	options    []option
}

// badBodies are made from an object.
func badBodies(valid string) []badBody {
	open := strings.TrimSuffix(valid, "}")
	return []badBody{
		{name: "broken JSON", body: open, status: 400, code: "invalid_json"},
		{name: "two values", body: valid + valid, status: 400, code: "invalid_json"},
		{name: "a comma too many", body: open + ",}", status: 400, code: "invalid_json"},
		{name: "text", body: canary, status: 400, code: "invalid_json"},
		{name: "invalid UTF-8", body: open + ",\"x\":\"\xff\xfe\"}", status: 400, code: "invalid_json"},
		{name: "a control character", body: open + ",\"x\":\"\x01\"}", status: 400, code: "invalid_json"},
		{name: "NaN", body: open + `,"x":NaN}`, status: 400, code: "invalid_json"},
		{name: "a BOM", body: "\ufeff" + valid, status: 400, code: "invalid_json"},
		{name: "an array", body: `["` + canary + `"]`, status: 422, code: "invalid"},
		{name: "null", body: `null`, status: 422, code: "invalid"},
		{name: "a string", body: `"` + canary + `"`, status: 422, code: "invalid"},
		{name: "an unknown field", body: open + `,"nobody-knows":"` + canary + `"}`, status: 422, code: "invalid"},
		{name: "a repeated field", body: open + `,"z":1,"z":2}`, status: 422, code: "invalid"},
		{name: "NUL", body: open + `,"x":"\u0000"}`, status: 422, code: "invalid"},
		{name: "half a surrogate pair", body: open + `,"x":"\ud800"}`, status: 422, code: "invalid"},
		{name: "form", body: "a=" + canary, status: 415, code: "wrong_content_type", options: []option{header("Content-Type", "application/x-www-form-urlencoded")}},
		{name: "no content type", body: valid, status: 415, code: "wrong_content_type", options: []option{func(r *http.Request) { r.Header.Del("Content-Type") }}},
		{name: "another charset", body: valid, status: 415, code: "wrong_content_type", options: []option{header("Content-Type", "application/json; charset=utf-16")}},
		{name: "compressed", body: valid, status: 415, code: "wrong_content_type", options: []option{header("Content-Encoding", "gzip")}},
		{name: "an unknown parameter", body: valid, status: 422, code: "invalid", options: []option{func(r *http.Request) { r.URL.RawQuery = "nobody-knows=" + canary }}},
	}
}

func TestBadInputIsRefusedPrecisely(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	s.Logs.keepOut(canary)
	hook := a.subscribe("http://127.0.0.1:1/", "secret-"+canary)
	a.createUser("user-"+canary, map[string]string{"trait": canary})
	user := "/api/v1/users/ext:user-" + canary

	nested := func(n int) string {
		return `{"external_id":"` + canary + `","traits":{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}`
	}
	operations := []struct{ method, path, valid string }{
		{"POST", "/auth/signup", `{"email":"` + canary + `@example.com","password":"` + canary + `","company_name":"x"}`},
		{"POST", "/auth/token", `{"email":"` + canary + `@example.com","password":"` + canary + `"}`},
		{"POST", "/auth/exchange", `{"api_key":"` + canary + `"}`},
		{"PATCH", a.under(""), `{"name":"` + canary + `"}`},
		{"POST", a.under("/members"), `{"email":"` + canary + `@example.com","password":"` + canary + `","role":"viewer"}`},
		{"POST", a.under("/api_keys"), `{"name":"` + canary + `"}`},
		{"POST", a.under("/webhooks"), `{"url":"http://127.0.0.1:1/` + canary + `","event_types":["match.computed"]}`},
		{"PATCH", a.under("/webhooks/" + string(hook.ID)), `{"secret":"` + canary + `"}`},
		{"POST", "/api/v1/users", `{"external_id":"` + canary + `","traits":{"x":"` + canary + `"}}`},
		{"PATCH", user, `{"traits":{"x":"` + canary + `"}}`},
		{"POST", user + "/matches", `{"limit":1}`},
	}
	for _, op := range operations {
		for _, tt := range badBodies(op.valid) {
			got := a.send(op.method, op.path, tt.body, tt.options...)
			if strings.Contains(string(got.Body), canary) {
				t.Errorf("%s %s, %s: the answer repeats a value: %s", op.method, op.path, tt.name, got.Body)
			}
			p := wantProblem(t, tt.status, tt.code, got)
			if t.Failed() {
				t.Fatalf("%s %s, %s", op.method, op.path, tt.name)
			}
			if named := func(f httpapi.FieldError) bool { return strings.TrimPrefix(f.Pointer, "/") == "nobody-knows" }; strings.HasPrefix(tt.name, "an unknown") && !slices.ContainsFunc(p.Errors, named) {
				t.Errorf("%s %s, %s: %s", op.method, op.path, tt.name, got.Body)
			}
		}
		if op.path != user+"/matches" {
			wantProblem(t, http.StatusBadRequest, "body_missing", a.send(op.method, op.path, ""))
		}
		large := `{"x":"` + strings.Repeat(canary, 20<<20/len(canary)) + `"}`
		wantProblem(t, http.StatusRequestEntityTooLarge, "body_too_large", a.send(op.method, op.path, large))
		wantProblem(t, http.StatusRequestEntityTooLarge, "body_too_large", a.sendAllFirst(op.method, op.path, large))
	}

	for _, tt := range []struct {
		method, path, body string
		status             int
		code, pointer      string
	}{
		{"POST", "/api/v1/users", nested(64), 400, "json_too_deep", ""},
		{"POST", "/api/v1/users", nested(20_000), 400, "json_too_deep", ""},
		{"POST", "/api/v1/users", strings.Repeat(`{"a":`, 20_000), 400, "json_too_deep", ""},
		{"POST", "/api/v1/users", `{"external_id":"x","traits":{"a":[` + strings.Repeat("0,", 60_000) + `0]}}`, 413, "too_many_values", ""},
		{"POST", "/api/v1/users", `{"external_id":"x","traits":{"a":"` + strings.Repeat("x", 300<<10) + `"}}`, 413, "traits_too_large", "/traits"},
		{"POST", "/api/v1/users", `{"traits":{}}`, 422, "invalid", "/external_id"},
		{"POST", "/api/v1/users", `{"external_id":7}`, 422, "invalid", "/external_id"},
		{"POST", "/api/v1/users", `{"external_id":null}`, 422, "invalid", "/external_id"},
		{"POST", "/api/v1/users", `{"external_id":""}`, 422, "invalid", "/external_id"},
		{"POST", "/api/v1/users", `{"external_id":"` + strings.Repeat("x", 257) + `"}`, 422, "invalid", "/external_id"},
		{"POST", "/api/v1/users", `{"external_id":"line\nbreak"}`, 422, "invalid", "/external_id"},
		{"POST", "/api/v1/users", `{"external_id":"c1 \u0085 control"}`, 422, "invalid", "/external_id"},
		{"POST", "/api/v1/users", `{"external_id":"x","traits":"` + canary + `"}`, 422, "invalid", "/traits"},
		{"POST", "/api/v1/users", `{"external_id":"x","traits":null}`, 422, "invalid", "/traits"},
		{"POST", "/api/v1/users", `{"external_id":"x","Traits":{}}`, 422, "invalid", "/Traits"},
		{"POST", "/auth/signup", `{"email":"` + canary + `","password":"long enough","company_name":"x"}`, 422, "invalid", "/email"},
		{"POST", "/auth/signup", `{"email":"a@b.c, d@e.f","password":"long enough","company_name":"x"}`, 422, "invalid", "/email"},
		{"POST", "/auth/signup", `{"email":"ok@example.com","password":"short","company_name":"x"}`, 422, "invalid", "/password"},
		{"POST", "/auth/signup", `{"email":"ok@example.com","password":"` + strings.Repeat("x", 1025) + `","company_name":"x"}`, 422, "invalid", "/password"},
		{"POST", "/auth/signup", `{"email":"ok@example.com","password":"` + strings.Repeat("ö", 600) + `","company_name":"x"}`, 422, "invalid", "/password"},
		{"POST", "/auth/signup", `{"email":"ok@example.com","password":"long enough","company_name":""}`, 422, "invalid", "/company_name"},
		{"POST", "/auth/signup", `{"email":"ok@example.com","password":"long enough","company_name":" "}`, 422, "invalid", "/company_name"},
		{"POST", "/auth/exchange", `{"api_key":7}`, 422, "invalid", "/api_key"},
		{"POST", "/auth/exchange", `{}`, 422, "invalid", "/api_key"},
		{"POST", a.under("/members"), `{"email":"ok@example.com","password":"long enough","role":"god"}`, 422, "invalid", "/role"},
		{"POST", "/auth/signup", `{"email":"ok@example.com","password":"password","company_name":"x"}`, 422, "invalid", "/password"},
		{"POST", a.under("/members"), `{"email":"some.body@example.com","role":"viewer","password":"Some.Body"}`, 422, "invalid", "/password"},
		{"POST", a.under("/api_keys"), `{"name":"x","scopes":[]}`, 422, "invalid", "/scopes"},
		{"POST", a.under("/api_keys"), `{"name":"x","scopes":["read","read"]}`, 422, "invalid", "/scopes"},
		{"POST", a.under("/api_keys"), `{"name":"x","scopes":["root"]}`, 422, "invalid", "/scopes/0"},
		{"POST", a.under("/webhooks"), `{"url":"http://127.0.0.1:1/","event_types":["match.computed","internal"]}`, 422, "invalid", "/event_types/1"},
		{"POST", a.under("/webhooks"), `{"url":"http://127.0.0.1:1/","event_types":["match.computed"],"secret":""}`, 422, "invalid", "/secret"},
		{"POST", a.under("/webhooks"), `{"url":"http://127.0.0.1:1/","event_types":["match.computed"],"status":"paused"}`, 422, "invalid", "/status"},
		{"POST", "/api/v1/campaigns", `{"name":"x","budget_minor":5,"currency":"EUR","ends_at":"9999-12-31T23:59:59-01:00"}`, 422, "invalid", "/ends_at"},
		{"POST", "/api/v1/campaigns", `{"name":"x","budget_minor":5,"currency":"EUR","starts_at":"0000-01-01T00:00:00+01:00"}`, 422, "invalid", "/starts_at"},
		{"POST", user + "/matches", `{"limit":0}`, 422, "invalid", "/limit"},
		{"POST", user + "/matches", `{"limit":101}`, 422, "invalid", "/limit"},
		{"POST", user + "/matches", `{"limit":1.5}`, 422, "invalid", "/limit"},
		{"POST", user + "/matches", `{"limit":1e1}`, 422, "invalid", "/limit"},
		{"POST", user + "/matches", `{"limit":99999999999999999999}`, 422, "invalid", "/limit"},
		{"POST", user + "/matches", `{"record":"no"}`, 422, "invalid", "/record"},
		{"GET", "/api/v1/users?limit=0", "", 422, "invalid", "limit"},
		{"GET", "/api/v1/users?limit=201", "", 422, "invalid", "limit"},
		{"GET", "/api/v1/users?limit=ten", "", 422, "invalid", "limit"},
		{"GET", "/api/v1/users?limit=1&limit=2", "", 422, "invalid", "limit"},
		{"GET", "/api/v1/users?limit=", "", 422, "invalid", "limit"},
		{"GET", "/api/v1/users?updated_since=yesterday", "", 422, "invalid", "updated_since"},
		{"GET", "/api/v1/users?updated_since=2026-02-30T00:00:00Z", "", 422, "invalid", "updated_since"},
		{"GET", "/api/v1/users?external_id=", "", 422, "invalid", "external_id"},
		{"GET", "/api/v1/users?external_id=%00", "", 422, "invalid", "external_id"},
		{"GET", "/api/v1/users?external_id=%ff", "", 422, "invalid", "external_id"},
		{"GET", "/api/v1/users?%zz", "", 400, "invalid_query", ""},
		{"GET", "/api/v1/users?unknown=" + canary, "", 422, "invalid", "unknown"},
		{"GET", "/api/v1/users?cursor=" + canary, "", 400, "bad_cursor", ""},
		{"GET", "/api/v1/users?cursor=" + strings.Repeat("A", 1000), "", 400, "bad_cursor", ""},
		{"GET", a.under("/webhooks?status=deleted"), "", 422, "invalid", "status"},
		{"GET", a.under("/history/state"), "", 422, "invalid", "at"},
		{"GET", a.under("/history/state?kind=users"), "", 422, "invalid", "at"},
		{"GET", a.under("/webhooks?cursor=%2e%2e"), "", 400, "bad_cursor", ""},
		{"GET", "/api/v1/users/" + canary, "", 404, "user_unknown", ""},
		{"GET", "/api/v1/users/usr_" + strings.Repeat("0", 5000), "", 404, "user_unknown", ""},
		{"GET", "/api/v1/users/ext:", "", 404, "user_unknown", ""},
		{"GET", "/api/v1/users/ext:" + strings.Repeat("x", 5000), "", 404, "user_unknown", ""},
		{"GET", "/api/v1/users/ext:%00", "", 404, "no_such_path", ""},
		{"GET", "/api/v1/users/ext:%ff", "", 404, "no_such_path", ""},
		{"GET", "/api/v1/users/ext:%0a" + canary, "", 404, "no_such_path", ""},
		{"GET", "/api/v1/users/whk_00000000000000000000000000", "", 404, "user_unknown", ""},
		{"GET", a.under("/webhooks/usr_00000000000000000000000000"), "", 404, "webhook_unknown", ""},
		{"DELETE", a.under("/api_keys/'--"), "", 404, "api_key_unknown", ""},
		{"DELETE", a.under("/members/%F0%9F%99%82"), "", 404, "member_unknown", ""},
		{"GET", "/api/v2/users", "", 404, "no_such_path", ""},
		{"GET", "/api/v1/users/", "", 404, "", ""},
		{"GET", "//api/v1/users", "", 404, "no_such_path", ""},
		{"GET", "/api/v1/../v1/users", "", 404, "no_such_path", ""},
		{"POST", a.under("/webhooks/x/test/" + canary), "{}", 404, "no_such_path", ""},
	} {
		var body any
		if tt.body != "" {
			body = tt.body
		}
		got := a.send(tt.method, tt.path, body)
		p := want[httpapi.Problem](t, tt.status, got)
		if tt.code != "" {
			wantProblem(t, tt.status, tt.code, got)
		}
		if tt.pointer != "" && (len(p.Errors) != 1 || p.Errors[0].Pointer != tt.pointer) {
			t.Errorf("%s %.80s %.80s: %.300s, want one error at %s", tt.method, tt.path, tt.body, got.Body, tt.pointer)
		}
		if strings.Contains(string(got.Body), canary) {
			t.Errorf("%s %s: the answer repeats %s", tt.method, tt.path, got.Body)
		}
	}

	all := want[httpapi.Problem](t, http.StatusUnprocessableEntity, a.sendTo("POST", "/webhooks", `{"event_types":["a","b"],"secret":1,"c":2}`))
	var pointers []string
	for _, e := range all.Errors {
		pointers = append(pointers, e.Pointer)
	}
	slices.Sort(pointers)
	if want := []string{"/c", "/event_types/0", "/event_types/1", "/secret", "/url"}; !slices.Equal(pointers, want) {
		t.Errorf("what is wrong: %v, want all of %v", pointers, want)
	}
	for _, tt := range []struct {
		name   string
		option option
	}{
		{"X-Kindred-Consistency", header("X-Kindred-Consistency", canary)},
	} {
		p := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/users", tt.option))
		if len(p.Errors) != 1 || p.Errors[0].Pointer != tt.name {
			t.Errorf("%+v", p)
		}
	}
	if got := a.get("/api/v1/users", header("X-Request-Id", "my own-id\"")); strings.Contains(got.Header.Get("X-Request-Id"), "own-id") {
		t.Error("an unfit request id was taken over")
	}
	if got := a.get("/api/v1/users", header("X-Request-Id", "my-own.id:1")); got.Header.Get("X-Request-Id") != "my-own.id:1" {
		t.Errorf("the request's own id: %s", got.Header.Get("X-Request-Id"))
	}
}

// sendAllFirst looks for the answer once the whole body is sent.
func (a account) sendAllFirst(method, path, body string) answer {
	a.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
	if err != nil {
		a.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		method, path, a.Token, len(body), body); err != nil {
		a.Fatalf("%s %s: the body was not taken: %v", method, path, err)
	}
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		a.Fatalf("%s %s: %v", method, path, err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		a.Fatal(err)
	}
	return answer{Status: got.StatusCode, Header: got.Header, Body: text}
}

func TestEachPathHasItsMethods(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	allow := map[string]string{"/healthz": "GET HEAD"}
	for _, op := range contract(a) {
		allow[op.path] += " " + op.method
		if op.method == http.MethodGet && op.OperationID != "getFeed" && op.OperationID != "followEvents" { // which counts what is shown, and lasts
			allow[op.path] += " HEAD"
		}
	}
	for path, allow := range allow {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"} {
			if slices.Contains(strings.Fields(allow), method) || method == "CONNECT" {
				continue
			}
			got := a.send(method, path, nil)
			switch method {
			case "OPTIONS":
				wantDone(t, got)
			case "HEAD": // has no body
				if got.Status != http.StatusMethodNotAllowed {
					t.Errorf("HEAD %s: %d", path, got.Status)
				}
			default:
				wantProblem(t, http.StatusMethodNotAllowed, "method_not_allowed", got)
			}
			allowed := strings.Split(got.Header.Get("Allow"), ", ")
			expected := append(strings.Fields(allow), "OPTIONS")
			slices.Sort(allowed)
			slices.Sort(expected)
			if !slices.Equal(allowed, expected) {
				t.Errorf("%s %s: Allow is %v, want %v", method, path, allowed, expected)
			}
		}
	}
	head := a.send("HEAD", "/.well-known/jwks.json", nil)
	if head.Status != http.StatusOK || len(head.Body) > 0 {
		t.Errorf("HEAD: %d %s", head.Status, head.Body)
	}
}

func TestRequestsThatAreHardlyHTTPAreRefused(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	a := s.signUp()
	s.Logs.keepOut(canary)
	post := "POST /api/v1/users HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + a.Token + "\r\nContent-Type: application/json\r\nConnection: close\r\n"
	for name, tt := range map[string]struct {
		request string
		status  []int
	}{
		"a header of 2 MiB":          {"GET /api/v1/users HTTP/1.1\r\nHost: x\r\nX-Large: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", []int{431}},
		"100,000 headers":            {"GET /api/v1/users HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-A: b\r\n", 100_000) + "\r\n", []int{431}},
		"a path of 64 KiB":           {"GET /api/v1/users/" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{401, 404, 414, 431}},
		"two lengths":                {post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", []int{400}},
		"a length and chunks":        {post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{400}},
		"broken chunks":              {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", []int{400}},
		"an unknown coding":          {post + "Transfer-Encoding: gzip\r\n\r\n{}", []int{400, 501}},
		"a huge length":              {post + "Content-Length: 999999999999\r\n\r\n{}", []int{413}},
		"a negative length":          {post + "Content-Length: -1\r\n\r\n{}", []int{400}},
		"no host":                    {"GET /api/v1/users HTTP/1.1\r\n\r\n", []int{400}},
		"nonsense":                   {canary + "\r\n\r\n", []int{400}},
		"two tokens":                 {"GET /api/v1/users HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + a.Token + "\r\nAuthorization: Bearer " + a.Token + "\r\n\r\n", []int{401}},
		"chunks beyond the limit":    {post + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + strings.Repeat("x", 2<<20) + "\r\n0\r\n\r\n", []int{413}},
		"an expectation and no body": {post + "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", []int{400}},
	} {
		got := raw(t, s, tt.request)
		for end := time.Now().Add(patience); got == http.StatusServiceUnavailable && time.Now().Before(end); {
			got = raw(t, s, tt.request) // see send
		}
		if !slices.Contains(tt.status, got) {
			t.Errorf("%s: %d, want one of %v", name, got, tt.status)
		}
	}
	if got := a.get("/api/v1/users"); got.Status != http.StatusOK {
		t.Errorf("after all that: %d %s", got.Status, got.Body)
	}
}

// raw sends bytes on a connection of their own, and returns the status of the
// first final answer.
func raw(t *testing.T, s *service, request string) int {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(conn, strings.NewReader(request)) }() // the server may stop reading
	in := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Errorf("%v", err)
			return 0
		}
		_ = resp.Body.Close()
		if resp.StatusCode >= 200 {
			return resp.StatusCode
		}
	}
}

func TestPagesOfTheService(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	a := s.signUp()
	if got := a.get("/api/v1/users"); got.Status != http.StatusOK { // whoever can be verified finds it ready
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	for path, part := range map[string]string{
		"/healthz": `"ok"`, "/readyz": `"ready"`, "/metrics": "kindred_http_request_duration_seconds", "/openapi.json": `"openapi"`, "/docs": "<html",
	} {
		if got := s.send("GET", path, nil); got.Status != http.StatusOK || !bytes.Contains(got.Body, []byte(part)) {
			t.Errorf("%s: %d %.200s", path, got.Status, got.Body)
		}
	}
	if got := s.send("GET", "/metrics", nil); bytes.Contains(got.Body, []byte(a.Client.ID)) {
		t.Error("the metrics name clients")
	}
	limited := keepContract(t, func(c *app.Config) { c.RateLimit = true })
	b := limited.signUp()
	got := b.get("/api/v1/users")
	for name, form := range map[string]string{
		"RateLimit-Policy": `^"token";q=\d+;w=\d+, "client";q=\d+;w=\d+$`,
		"RateLimit":        `^"token";r=\d+;t=\d+, "client";r=\d+;t=\d+$`,
	} {
		if value := got.Header.Get(name); !regexp.MustCompile(form).MatchString(value) {
			t.Errorf("%s: %s", name, value)
		}
	}
}
