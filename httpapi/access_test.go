package httpapi_test

import (
	"context"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/fault"
	"kindred/httpapi"
)

func TestCredentials(t *testing.T) {
	e := serve(t, nil)
	tests := []struct {
		name      string
		headers   []string
		status    int
		code      string
		challenge string
	}{
		{"no token", nil, 401, "token_missing", `Bearer realm="kindred"`},
		{"another scheme", []string{"Authorization", "Basic abc"}, 401, "invalid_token", `Bearer realm="kindred", error="invalid_token", error_description="The Authorization header is not a bearer token. Send it as Bearer, a space and the token."`},
		{"no word", []string{"Authorization", "Bearer "}, 401, "invalid_token", `Bearer realm="kindred", error="invalid_token", error_description="The Authorization header is not a bearer token. Send it as Bearer, a space and the token."`},
		{"a wrong token", token("forged"), 401, "invalid_token", `Bearer realm="kindred", error="invalid_token", error_description="The token is not valid."`},
		{"a token that cannot be judged", token("unknowable"), 503, "unverifiable", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := e.with(t)
			e.problem(tt.status, tt.code, "GET", users, "", tt.headers...)
			answer, _ := e.send("GET", users, nil, tt.headers...)
			if got := answer.Header.Get("WWW-Authenticate"); got != tt.challenge {
				t.Errorf("challenge %s", got)
			}
		})
	}
	for _, header := range []string{"bearer full", "Bearer  full"} {
		if answer, _ := e.send("GET", users, nil, "Authorization", header); answer.StatusCode != 200 {
			t.Errorf("%q is refused: %d", header, answer.StatusCode)
		}
	}
	t.Run("who is refused learns nothing of the input", func(t *testing.T) {
		e := e.with(t)
		e.problem(401, "token_missing", "POST", users, `{`)
		e.problem(403, "missing_scope", "POST", users, `{`, token("viewer")...)
	})
}

func TestScopes(t *testing.T) {
	e := serve(t, nil)
	const (
		webhooks = "/api/v1/clients/" + mine + "/webhooks"
		apiKey   = "/api/v1/clients/" + mine + "/api_keys/" + key
		oneUser  = users + "/" + user
	)
	tests := []struct {
		token, method, path, refusal string
	}{
		{"full", "GET", users, ""},
		{"full", "DELETE", oneUser, ""},
		{"full", "DELETE", apiKey, ""},
		{"viewer", "GET", webhooks, ""},
		{"viewer", "POST", users, "missing_scope"},
		{"viewer", "DELETE", apiKey, "missing_scope"},
		{"none", "GET", users, "missing_scope"},
		{"key-user", "GET", users, ""},
		{"key-user", "GET", oneUser, ""},
		{"key-user", "GET", webhooks, "missing_scope"},
		{"key-user", "POST", users, "missing_scope"},
		{"key-write", "POST", users, ""},
		{"key-write", "DELETE", oneUser, "missing_scope"},
		{"key-erase", "DELETE", oneUser, ""},
		{"key-erase", "GET", oneUser, "missing_scope"},
		{"key-admin", "GET", users, ""},
		{"key-admin", "DELETE", apiKey, "login_required"},
		{"key-write", "DELETE", apiKey, "login_required"},
	}
	for _, tt := range tests {
		t.Run(tt.token+" "+tt.method+" "+tt.path, func(t *testing.T) {
			e := e.with(t)
			body := ""
			if tt.method == "POST" {
				body = `{"external_id":"a"}`
			}
			if tt.refusal != "" {
				e.problem(403, tt.refusal, tt.method, tt.path, body, token(tt.token)...)
				return
			}
			if answer, got := e.send(tt.method, tt.path, strings.NewReader(body), token(tt.token)...); answer.StatusCode >= 300 {
				t.Errorf("%d %s", answer.StatusCode, got)
			}
		})
	}
}

func TestAnotherClientsPath(t *testing.T) {
	e := serve(t, nil)
	var answers []httpapi.Problem
	for _, client := range []string{theirs, "cli_unknown", "nonsense", "%63li_x"} {
		p := e.problem(403, "other_client", "GET", "/api/v1/clients/"+client+"/webhooks?nonsense=1", "", token("full")...)
		p.RequestID = ""
		answers = append(answers, p)
	}
	for _, p := range answers[1:] {
		if diff := cmp.Diff(answers[0], p); diff != "" {
			t.Error(diff)
		}
	}
	if answer, _ := e.send("GET", "/api/v1/clients/%63"+mine[1:]+"/webhooks", nil, token("full")...); answer.StatusCode != 200 {
		t.Errorf("a percent-encoded path: %d", answer.StatusCode)
	}
}

func TestMethodsAndPaths(t *testing.T) {
	e := serve(t, nil)
	e.problem(404, "no_such_path", "GET", "/nowhere", "")
	e.problem(404, "no_such_path", "GET", users+"/", "")
	e.problem(404, "no_such_path", "GET", "//api/v1/users", "")

	e.problem(405, "method_not_allowed", "PUT", users, "{}")
	for path, allow := range map[string]string{
		users:              "GET, HEAD, POST, OPTIONS",
		users + "/" + user: "GET, HEAD, PUT, PATCH, DELETE, OPTIONS",
		users + "/import":  "POST, OPTIONS",
		"/auth/exchange":   "POST, OPTIONS",
		"/healthz":         "GET, HEAD, OPTIONS",
	} {
		answer, _ := e.send("TRACE", path, nil)
		if answer.StatusCode != 405 || answer.Header.Get("Allow") != allow {
			t.Errorf("TRACE %s: %d, Allow %s", path, answer.StatusCode, answer.Header.Get("Allow"))
		}
		answer, _ = e.send("OPTIONS", path, nil)
		if answer.StatusCode != 204 || answer.Header.Get("Allow") != allow {
			t.Errorf("OPTIONS %s: %d, Allow %s", path, answer.StatusCode, answer.Header.Get("Allow"))
		}
	}
	answer, body := e.send("HEAD", users+"/"+user, nil, token("full")...)
	if answer.StatusCode != 200 || body != "" || answer.Header.Get("ETag") != `"3.`+user+`"` || answer.ContentLength <= 0 {
		t.Errorf("HEAD: %d, %q, ETag %s, length %d", answer.StatusCode, body, answer.Header.Get("ETag"), answer.ContentLength)
	}
}

func TestPreconditions(t *testing.T) {
	e := serve(t, nil)
	three, before, never := int64(3), int64(-1), int64(math.MinInt64)
	const segment = "/api/v1/segments/seg_00000000000000000000000001"
	for path, tags := range map[string]map[string]*int64{
		segment: {
			"": nil, "*": nil, `"3"`: &three, ` "3" `: &three, `"-1"`: &before, // of traits that nothing was learnt of
			`W/"3"`: &never, `W/"-1"`: &never, `"03"`: &never, `"abc"`: &never, `""`: &never, `"3.` + user + `"`: &never, `"3."`: &never,
		},
		users + "/ext:u1": {
			"": nil, `"3.` + user + `"`: &three, `"3"`: &never, `"3."`: &never, `"03.` + user + `"`: &never, `W/"3.` + user + `"`: &never,
		},
	} {
		for tag, want := range tags {
			headers := token("full")
			if tag != "" {
				headers = append(headers, "If-Match", tag)
			}
			answer, _ := e.send("DELETE", path, nil, headers...)
			if diff := cmp.Diff(want, e.service.call.IfMatch); answer.StatusCode != 204 || diff != "" {
				t.Errorf("%s, If-Match %s: %d %s", path, tag, answer.StatusCode, diff)
			}
			if of := e.service.call.IfMatchUser; (of == user) != (path != segment && want == &three) || of != user && of != "" {
				t.Errorf("%s, If-Match %s: a tag of the user %q", path, tag, of)
			}
		}
	}
	e.problem(422, "invalid", "DELETE", users+"/"+user, "", append(token("full"), "If-Match", `"1", "2"`)...)
}

func TestConsistency(t *testing.T) {
	e := serve(t, nil)
	for _, header := range [][]string{nil, {"X-Kindred-Consistency", "eventual"}} {
		e.send("GET", users, nil, append(token("full"), header...)...)
		if e.service.call.Eventual != (header != nil) {
			t.Errorf("%q: eventual %t", header, e.service.call.Eventual)
		}
	}
}

func TestRateLimits(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := serve(t, func(o *httpapi.Options) {
		o.Limits = httpapi.Limits{TokenRate: 2, ClientRate: 3}
		o.Now = func() time.Time { return now }
	})
	answer, _ := e.send("GET", users, nil, token("full")...)
	if got, want := answer.Header.Get("RateLimit-Policy"), `"token";q=4;w=2, "client";q=6;w=2`; got != want {
		t.Errorf("policy %s, want %s", got, want)
	}
	if got, want := answer.Header.Get("RateLimit"), `"token";r=3;t=1, "client";r=5;t=1`; got != want {
		t.Errorf("state %s, want %s", got, want)
	}
	for range 3 {
		e.send("GET", users, nil, token("full")...)
	}
	e.problem(429, "rate_limited", "GET", users, "", token("full")...) // the token's
	for range 2 {                                                      // the refusal costs the client nothing
		if answer, _ := e.send("GET", users, nil, token("viewer")...); answer.StatusCode != 200 {
			t.Errorf("another token: %d", answer.StatusCode)
		}
	}
	e.problem(429, "rate_limited", "GET", users, "", token("viewer")...) // the client's
	now = now.Add(time.Second)
	if answer, _ := e.send("GET", users, nil, token("full")...); answer.StatusCode != 200 {
		t.Errorf("a second later: %d", answer.StatusCode)
	}
}

func TestTheRateOfACallerIsKeptBesideThatOfOthers(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := serve(t, func(o *httpapi.Options) {
		o.Limits = httpapi.Limits{TokenRate: 2, ClientRate: 100}
		o.Now = func() time.Time { return now }
	})
	for range 4 {
		for _, caller := range []string{"full", "viewer"} {
			if answer, _ := e.send("GET", users, nil, token(caller)...); answer.StatusCode != 200 {
				t.Errorf("%s: %d", caller, answer.StatusCode)
			}
		}
	}
	for _, caller := range []string{"full", "viewer"} {
		e.problem(429, "rate_limited", "GET", users, "", token(caller)...)
	}
}

func TestRateLimitsCanBeOff(t *testing.T) {
	e := serve(t, func(o *httpapi.Options) { o.Limits = httpapi.Limits{Off: true, TokenRate: 1, ClientRate: 1} })
	for range 10 {
		if answer, _ := e.send("GET", users, nil, token("full")...); answer.StatusCode != 200 || answer.Header.Get("RateLimit") != "" {
			t.Fatalf("%d, RateLimit %s", answer.StatusCode, answer.Header.Get("RateLimit"))
		}
	}
}

func TestIdempotencyKeys(t *testing.T) {
	const body = `{"external_id":"a"}`
	var (
		reserved  []httpapi.Repeat
		completed []bool
		refusal   error
	)
	e := serve(t, func(o *httpapi.Options) {
		o.Reserve = func(_ context.Context, r httpapi.Repeat) (httpapi.Complete, error) {
			reserved = append(reserved, r)
			return func(_ context.Context, succeeded bool) error {
				completed = append(completed, succeeded)
				return nil
			}, refusal
		}
	})
	post := func(key, body string) {
		t.Helper()
		e.send("POST", users, strings.NewReader(body), append(token("full"), "Idempotency-Key", key)...)
	}

	post("k1", body)
	first := e.service.call
	if diff := cmp.Diff([]string{mine, "POST /api/v1/users", "k1"}, first.Seed); diff != "" || first.IdempotencyKey != "k1" || len(first.BodyMAC) != 64 {
		t.Errorf("call %+v: %s", first, diff)
	}
	post("k1", body)
	if diff := cmp.Diff(first.BodyMAC, e.service.call.BodyMAC); diff != "" {
		t.Errorf("the same body: %s", diff)
	}
	post("k2", `{"external_id":"b"}`)
	if e.service.call.BodyMAC == first.BodyMAC || cmp.Equal(reserved[0].Key, reserved[2].Key) || strings.Contains(string(reserved[0].Key), "k1") {
		t.Error("another key and body look the same")
	}

	e.service.createUser = func(context.Context, *httpapi.NewUser) error { return fault.New(fault.Conflict, "user_exists", "") }
	post("k3", body)
	// The log keeps it for ever: it tells nothing to who guesses the body alone.
	if last := e.service.call; last.BodyMAC == first.BodyMAC {
		t.Errorf("the same body under another key: %+v", last)
	}
	e.service.createUser = func(context.Context, *httpapi.NewUser) error { panic("broken") }
	post("k4", body)
	if diff := cmp.Diff([]bool{true, true, true, false, false}, completed); diff != "" {
		t.Errorf("completed: %s", diff)
	}

	e.service.createUser = func(context.Context, *httpapi.NewUser) error {
		t.Error("reached the handler")
		return nil
	}
	refusal = fault.New(fault.Conflict, "in_flight", "").After(time.Second)
	e.problem(409, "in_flight", "POST", users, body, append(token("full"), "Idempotency-Key", "k5")...)
	answer, _ := e.send("POST", users, strings.NewReader(body), append(token("full"), "Idempotency-Key", "k5")...)
	if answer.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %s", answer.Header.Get("Retry-After"))
	}

	before := len(reserved)
	e.problem(422, "invalid", "POST", users, body, append(token("full"), "Idempotency-Key", strings.Repeat("k", 256))...)
	e.problem(422, "invalid", "POST", users, body, append(token("full"), "Idempotency-Key", "ü")...)
	e.problem(422, "invalid", "POST", users, `{}`, append(token("full"), "Idempotency-Key", "k6")...)
	if len(reserved) != before {
		t.Error("a request that was not valid reserved its key")
	}
}

func TestOnlyTrustedProxiesSayWhoCalls(t *testing.T) {
	for want, trusted := range map[string][]netip.Prefix{
		"127.0.0.1":   nil,
		"203.0.113.9": {netip.MustParsePrefix("127.0.0.0/8")},
	} {
		e := serve(t, func(o *httpapi.Options) { o.TrustedProxies = trusted })
		e.send("GET", "/api/v1/users", nil, append(token("full"), "X-Forwarded-For", "198.51.100.1, 203.0.113.9")...)
		if got := e.service.call.RemoteAddr; got != want {
			t.Errorf("%s is trusted: called from %s; want %s", trusted, got, want)
		}
	}
}
