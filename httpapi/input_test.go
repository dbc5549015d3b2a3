package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
)

const users = "/api/v1/users"

func TestBodies(t *testing.T) {
	e := serve(t, nil)
	e.service.createUser = func(context.Context, *httpapi.NewUser) error {
		t.Error("reached the handler")
		return nil
	}
	tests := []struct {
		name, body string
		status     int
		code       string
		fields     []httpapi.FieldError
	}{
		{"20 MB", `{"external_id":"` + strings.Repeat("a", 20<<20) + `"}`, 413, "body_too_large", nil},
		{"20,000 levels", `{"external_id":"a","traits":` + strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_001), 400, "json_too_deep", nil},
		{"nothing", "", 400, "body_missing", nil},
		{"broken", `{"external_id":`, 400, "invalid_json", nil},
		{"trailing garbage", `{"external_id":"a"}}`, 400, "invalid_json", nil},
		{"not UTF-8", "{\"external_id\":\"\xff\"}", 400, "invalid_json", nil},
		{"NUL", `{"external_id":"a\u0000"}`, 422, "invalid", []httpapi.FieldError{{Pointer: "/external_id", Detail: "holds a NUL character"}}},
		{"a name twice", `{"external_id":"a","traits":{"x":1,"x":2}}`, 422, "invalid", []httpapi.FieldError{{Pointer: "/traits/x", Detail: "is given more than once"}}},
		{"not an object", `[]`, 422, "invalid", []httpapi.FieldError{{Pointer: "", Detail: "must be an object"}}},
		{"null", `null`, 422, "invalid", []httpapi.FieldError{{Pointer: "", Detail: "must not be null"}}},
		{"too short", `{"external_id":""}`, 422, "invalid", []httpapi.FieldError{{Pointer: "/external_id", Detail: "must not be empty"}}},
		{"too long", `{"external_id":"` + strings.Repeat("a", 257) + `"}`, 422, "invalid", []httpapi.FieldError{{Pointer: "/external_id", Detail: "must have at most 256 characters"}}},
		{"control characters", `{"external_id":"a\u0007"}`, 422, "invalid", []httpapi.FieldError{
			{Pointer: "/external_id", Detail: "holds control characters"},
		}},
		{"a control character beyond ASCII", `{"external_id":"a\u0085"}`, 422, "invalid", []httpapi.FieldError{
			{Pointer: "/external_id", Detail: "holds control characters"},
		}},
		{"null traits", `{"external_id":"a","traits":null}`, 422, "invalid", []httpapi.FieldError{{Pointer: "/traits", Detail: "must not be null"}}},
		{"all at once", `{"traits":"secret-value","ex/ternal":"secret-value","Traits":{}}`, 422, "invalid", []httpapi.FieldError{
			{Pointer: "/Traits", Detail: "is not a known field"},
			{Pointer: "/ex~1ternal", Detail: "is not a known field"},
			{Pointer: "/traits", Detail: "must be an object"},
			{Pointer: "/external_id", Detail: "is required"},
		}},
		{"what is no text among them", `{"external_id":"a\u0000\u0000","external_id":"\ud800b","traits":[1],"a":1}`, 422, "invalid", []httpapi.FieldError{
			{Pointer: "/external_id", Detail: "holds a NUL character"},
			{Pointer: "/external_id", Detail: "is given more than once"},
			{Pointer: "/external_id", Detail: "holds half of a surrogate pair"},
			{Pointer: "/a", Detail: "is not a known field"},
			{Pointer: "/traits", Detail: "must be an object"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := e.with(t)
			p := e.problem(tt.status, tt.code, "POST", users, tt.body, append(token("full"), "Content-Type", "application/json")...)
			if diff := cmp.Diff(tt.fields, p.Errors); diff != "" {
				t.Error(diff)
			}
		})
	}
	if log := e.log.String(); strings.Contains(log, "secret-value") {
		t.Error("the log repeats a body")
	}
}

func TestABodyOfUnknownLength(t *testing.T) {
	e := serve(t, nil)
	answer, got := e.send("POST", users, io.LimitReader(repeating(" "), 2<<20), token("full")...)
	if answer.StatusCode != 413 || !strings.Contains(got, `"code":"body_too_large"`) {
		t.Errorf("%d %s", answer.StatusCode, got)
	}
	answer, got = e.send("POST", users, io.MultiReader(strings.NewReader(`{"external_id"`), strings.NewReader(`:"a"}`)), token("full")...)
	if answer.StatusCode != 201 {
		t.Errorf("%d %s", answer.StatusCode, got)
	}
}

func TestOtherSchemas(t *testing.T) {
	e := serve(t, nil)
	webhooks, grants := "/api/v1/clients/"+mine+"/webhooks", "/api/v1/consent_layers/lay_0123456789abcdefghijklmnoo/grants"
	noType := "must be one of " + strings.Join(eventTypes(t), ", ")
	tests := []struct {
		name, path, body string
		fields           []httpapi.FieldError
	}{
		{"enum, type, pattern", webhooks, `{"url":"ftp://x","event_types":["match.computed","nope",1],"secret":7}`, []httpapi.FieldError{
			{Pointer: "/event_types/1", Detail: noType},
			{Pointer: "/event_types/2", Detail: noType},
			{Pointer: "/secret", Detail: "must be a string"},
			{Pointer: "/url", Detail: "must be an http or https URL"},
		}},
		{"a scheme in capitals", webhooks, `{"url":"HTTPS://x","event_types":[]}`, []httpapi.FieldError{{Pointer: "/event_types", Detail: "must not be empty"}}},
		{"items", webhooks, `{"url":"https://x","event_types":[]}`, []httpapi.FieldError{{Pointer: "/event_types", Detail: "must not be empty"}}},
		{"too many fields", webhooks, `{"url":"https://x","event_types":["match.computed"],"headers":{"A":"1","B":"1","C":"1","D":"1","E":"1","F":"1","G":"1","H":"1","I":"1","J":"1","K":"1"}}`, []httpapi.FieldError{{Pointer: "/headers", Detail: "must have at most 10 fields"}}},
		{"an item twice", webhooks, `{"url":"https://x","event_types":["match.computed","match.computed"]}`, []httpapi.FieldError{{Pointer: "/event_types", Detail: "must not hold an item twice"}}},
		{"numbers", users + "/" + user + "/matches", `{"limit":101,"record":"yes"}`, []httpapi.FieldError{
			{Pointer: "/limit", Detail: "must be at most 100"}, {Pointer: "/record", Detail: "must be a boolean"},
		}},
		{"no whole number", users + "/" + user + "/matches", `{"limit":1.5}`, []httpapi.FieldError{{Pointer: "/limit", Detail: "must be an integer from 1 to 100"}}},
		{"a huge number", users + "/" + user + "/matches", `{"limit":1e999}`, []httpapi.FieldError{{Pointer: "/limit", Detail: "must be an integer from 1 to 100"}}},
		{"a whole number that is not written as one", users + "/" + user + "/matches", `{"limit":1e1}`, []httpapi.FieldError{{Pointer: "/limit", Detail: "must be an integer, in digits"}}},
		{"a short password", "/auth/signup", `{"email":"a","password":"1234567","company_name":"A"}`, []httpapi.FieldError{
			{Pointer: "/email", Detail: "must have at least 3 characters"},
			{Pointer: "/email", Detail: "must be an e-mail address"},
			{Pointer: "/password", Detail: "must have at least 8 characters"},
		}},
		{"api_key of another type", "/auth/exchange", `{"api_key":1}`, []httpapi.FieldError{{Pointer: "/api_key", Detail: "must be a string"}}},
		{"two ways to log in", "/auth/token", `{"email":"a@b","client_id":"c","user_id":"u","password":"p"}`, oneWay},
		{"half of two ways", "/auth/token", `{"email":"a@b","client_id":"c","password":"p"}`, oneWay},
		{"no way to log in", "/auth/token", `{"password":"p"}`, oneWay},
		{"half a way", "/auth/token", `{"user_id":"u","password":"p"}`, oneWay},
		{"no way, and fields that are wrong", "/auth/token", `{"EMAIL":"a@b","user_id":5}`, append([]httpapi.FieldError{
			{Pointer: "/EMAIL", Detail: "is not a known field"}, {Pointer: "/user_id", Detail: "must be a string"}, {Pointer: "/password", Detail: "is required"},
		}, oneWay...)},
		{"one way, whose fields are wrong", "/auth/token", `{"client_id":1,"user_id":"u","password":[]}`, []httpapi.FieldError{
			{Pointer: "/client_id", Detail: "must be a string"}, {Pointer: "/password", Detail: "must be a string"},
		}},
		{"users, one of whom is no text", grants, `{"user_ids":["ext:a",1]}`, []httpapi.FieldError{{Pointer: "/user_ids/1", Detail: "must be a string"}}},
		{"users and all", grants, `{"user_ids":["ext:a"],"all":true}`, []httpapi.FieldError{{Pointer: "", Detail: "give either user_ids or all"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := e.with(t)
			p := e.problem(422, "invalid", "POST", tt.path, tt.body, token("full")...)
			if diff := cmp.Diff(tt.fields, p.Errors); diff != "" {
				t.Error(diff)
			}
		})
	}
	for name, body := range map[string]string{
		"email": `{"email":"a@b","password":"p"}`, "ids": `{"client_id":"c","user_id":"u","password":"p"}`,
	} {
		t.Run("logs in by "+name, func(t *testing.T) {
			e := e.with(t)
			e.problem(401, "invalid_credentials", "POST", "/auth/token", body)
		})
	}
}

var oneWay = []httpapi.FieldError{{Pointer: "", Detail: "give either email and password, or client_id, user_id and password"}}

func TestManyErrorsMakeAShortAnswer(t *testing.T) {
	e := serve(t, nil)
	body := `{"url":"https://x","event_types":[` + strings.Repeat(`"x",`, 40_000) + `"x"]}`
	p := e.problem(422, "invalid", "POST", "/api/v1/clients/"+mine+"/webhooks", body, token("full")...)
	if len(p.Errors) != 50 {
		t.Errorf("%d errors, want 50", len(p.Errors))
	}
	var unknown strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&unknown, `,"%s%d":1`, strings.Repeat("x", 900), i)
	}
	_, got := e.send("POST", users, strings.NewReader(`{"external_id":"a"`+unknown.String()+`}`), token("full")...)
	if len(got) > 10_000 {
		t.Errorf("the answer has %d bytes", len(got))
	}
}

func TestAnyAPIKeyIsJudgedByTheHandler(t *testing.T) {
	e := serve(t, nil)
	for _, key := range []string{"", "x", "kin_live_ü", strings.Repeat("k", 3000)} {
		body, _ := json.Marshal(map[string]string{"api_key": key})
		e.problem(401, "invalid_api_key", "POST", "/auth/exchange", string(body))
		if e.service.apiKey != key {
			t.Errorf("the handler got %.20q", e.service.apiKey)
		}
	}
	e.problem(413, "body_too_large", "POST", "/auth/exchange", `{"api_key":"`+strings.Repeat("k", 5000)+`"}`)
}

func TestMediaTypes(t *testing.T) {
	e := serve(t, nil)
	const body = `{"external_id":"a"}`
	for _, contentType := range []string{"", "text/plain", "application/xml", "application/json; charset=iso-8859-1", "application/json; profile=x; charset=iso-8859-1", "application/x-www-form-urlencoded"} {
		e.problem(415, "wrong_content_type", "POST", users, body, append(token("full"), "Content-Type", contentType)...)
	}
	for _, coding := range []string{"gzip", "identity, br"} {
		e.problem(415, "wrong_content_type", "POST", users, body, append(token("full"), "Content-Encoding", coding)...)
	}
	for _, coding := range []string{"", "Identity", " , identity"} {
		if answer, got := e.send("POST", users, strings.NewReader(body), append(token("full"), "Content-Encoding", coding)...); answer.StatusCode != 201 {
			t.Errorf("%q: %d %s", coding, answer.StatusCode, got)
		}
	}
	e.problem(415, "wrong_content_type", "POST", users+"/import", body, token("full")...)
	for _, contentType := range []string{"application/json", "Application/JSON; Charset=\"UTF-8\"", "application/json; charset=utf-8; profile=x", "application/json; charset"} {
		if answer, got := e.send("POST", users, strings.NewReader(body), append(token("full"), "Content-Type", contentType)...); answer.StatusCode != 201 {
			t.Errorf("%s: %d %s", contentType, answer.StatusCode, got)
		}
	}
}

func TestHeadersThatSayTwoThingsOrNoneAreRefused(t *testing.T) {
	e := serve(t, nil)
	const notOne, noTag = "must be one entity tag", `must be an entity tag, in its quotes, as in "3"`
	for _, c := range []struct {
		header string
		given  []string
		detail string
	}{
		{"Idempotency-Key", []string{"a", "b"}, "is given more than once"},
		{"Idempotency-Key", []string{""}, "must not be empty"},
		{"Idempotency-Key", []string{"a\tb"}, "must be printable ASCII"},
		{"Idempotency-Key", []string{"ä"}, "must be printable ASCII"},
		{"If-Match", []string{`"1"`, `"2"`}, notOne},
		{"If-Match", []string{"*", `"2"`}, notOne},
		{"If-Match", []string{`"1", "2"`}, notOne},
		{"If-Match", []string{`1`}, noTag},
		{"If-Match", []string{`12"`}, noTag},
		{"If-Match", []string{`"12`}, noTag},
		{"If-None-Match", []string{"*", "*"}, "must be *"},
		{"If-None-Match", []string{`"0"`}, "must be *"},
		{"X-Kindred-Consistency", []string{"strong"}, "must be one of eventual"},
		{"X-Kindred-Consistency", []string{""}, "must be one of eventual"},
		{"X-Kindred-Consistency", []string{"eventual", "eventual"}, "must be one of eventual"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "PUT", e.url+users+"/ext:a", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		switch c.header {
		case "Idempotency-Key":
			r.Method, r.URL.Path = "POST", users
		case "X-Kindred-Consistency":
			r.Method = "GET"
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {token("full")[1]}, c.header: c.given}
		response, err := e.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var p httpapi.Problem
		err = json.NewDecoder(response.Body).Decode(&p)
		_ = response.Body.Close()
		want := []httpapi.FieldError{{Pointer: c.header, Detail: c.detail}}
		if diff := cmp.Diff(want, p.Errors); err != nil || response.StatusCode != http.StatusUnprocessableEntity || diff != "" {
			t.Errorf("%s %q: %d, %v %s", c.header, c.given, response.StatusCode, err, diff)
		}
	}
}

func TestQueries(t *testing.T) {
	e := serve(t, nil)
	tests := map[string]httpapi.FieldError{
		"limit=0":                                   {Pointer: "limit", Detail: "must be at least 1"},
		"limit=201":                                 {Pointer: "limit", Detail: "must be at most 200"},
		"limit=many":                                {Pointer: "limit", Detail: "must be an integer from 1 to 200"},
		"limit=":                                    {Pointer: "limit", Detail: "must not be empty"},
		"limit=1&limit=2":                           {Pointer: "limit", Detail: "is given more than once"},
		"limit=99999999999999999999":                {Pointer: "limit", Detail: "must be an integer from 1 to 200"},
		"colour=red":                                {Pointer: "colour", Detail: "is not a known parameter"},
		"external_id=a%00":                          {Pointer: "external_id", Detail: "holds control characters or is not valid UTF-8"},
		"external_id=%ff":                           {Pointer: "external_id", Detail: "holds control characters or is not valid UTF-8"},
		"external_id=a%0A":                          {Pointer: "external_id", Detail: "holds control characters or is not valid UTF-8"},
		"filter=" + strings.Repeat("a", 4097):       {Pointer: "filter", Detail: "must have at most 4096 bytes"},
		"filter=true%0A%00":                         {Pointer: "filter", Detail: "holds control characters or is not valid UTF-8"},
		"updated_since=tomorrow":                    {Pointer: "updated_since", Detail: "must be a time as in 2026-01-31T12:00:00Z"},
		"updated_since=2026-02-31T00:00:00Z":        {Pointer: "updated_since", Detail: "must be a time as in 2026-01-31T12:00:00Z"},
		"updated_since=9999-12-31T23:59:59-01:00":   {Pointer: "updated_since", Detail: "must be a time as in 2026-01-31T12:00:00Z"},
		"updated_since=2026-01-31T12:00:00%2B24:00": {Pointer: "updated_since", Detail: "must be a time as in 2026-01-31T12:00:00Z"},
		"updated_since=2026-01-31T12:00:00-24:00":   {Pointer: "updated_since", Detail: "must be a time as in 2026-01-31T12:00:00Z"},
		"updated_since=2026-01-31T12:00:00%2B01:60": {Pointer: "updated_since", Detail: "must be a time as in 2026-01-31T12:00:00Z"},
		"updated_since=0000-01-01T00:00:00%2B01:00": {Pointer: "updated_since", Detail: "must be a time as in 2026-01-31T12:00:00Z"},
	}
	for query, want := range tests {
		t.Run(query, func(t *testing.T) {
			e := e.with(t)
			p := e.problem(422, "invalid", "GET", users+"?"+query, "", token("full")...)
			if diff := cmp.Diff([]httpapi.FieldError{want}, p.Errors); diff != "" {
				t.Error(diff)
			}
		})
	}
	e.problem(400, "invalid_query", "GET", users+"?a=%zz", "", token("full")...)

	var got httpapi.ListUsersParams
	e.service.listUsers = func(_ context.Context, r httpapi.ListUsersRequestObject) error {
		got = r.Params
		return nil
	}
	e.send("GET", users+"?limit=7&ids=a,b&external_id=x%2Cy&updated_since=2026-01-31T12:00:00%2B01:00&filter=traits.a%0D%0A%09%26%26%20traits.b", nil, token("full")...)
	if got.Limit == nil || *got.Limit != 7 || !cmp.Equal(got.Ids, []string{"a", "b"}) || *got.ExternalID != "x,y" || got.UpdatedSince.UTC().Hour() != 11 ||
		httpapi.Or(got.Filter, "") != "traits.a\r\n\t&& traits.b" {
		t.Errorf("the handler got %+v", got)
	}
}

func TestUserIDsInPaths(t *testing.T) {
	e := serve(t, nil)
	for path, want := range map[string]string{
		user:                  user,
		"ext:a":               "ext:a",
		"ext:a%2Fb%3Fc%20%25": "ext:a/b?c %",
		"ext%3Aü":             "ext:ü",
		"ext:..":              "ext:..",
		"ext:%EF%BF%BD":       "ext:\ufffd",
		"ext:a+b":             "ext:a+b",
	} {
		e.service.userID = ""
		if answer, body := e.send("GET", users+"/"+path, nil, token("full")...); answer.StatusCode != 200 || e.service.userID != want {
			t.Errorf("%s: %d, the handler got %q: %s", path, answer.StatusCode, e.service.userID, body)
		}
	}
	e.problem(404, "no_such_path", "GET", users+"/ext:%00", "", token("full")...)
	e.problem(404, "no_such_path", "GET", users+"/ext:%ff", "", token("full")...)
}

func TestTraitsStayAsTheyAre(t *testing.T) {
	e := serve(t, nil)
	const traits = `{"big":12345678901234567890.123456789,"e":1E400,"nested":{"b":[null,"\u00e9"],"a":-0.0}}`
	var got json.RawMessage
	e.service.createUser = func(_ context.Context, u *httpapi.NewUser) error {
		got = u.Traits
		return nil
	}
	_, body := e.send("POST", users, strings.NewReader(`{"external_id":"a","traits":`+traits+`}`), token("full")...)
	if string(got) != traits {
		t.Errorf("the handler got %s", got)
	}
	if !strings.Contains(body, `"big":12345678901234567890.123456789,"e":1E400`) {
		t.Errorf("the answer is %s", body)
	}
	if !strings.Contains(body, `"created_at":"2026-01-31T11:00:00.000001Z"`) {
		t.Errorf("times in %s", body)
	}
}

func TestImportsStream(t *testing.T) {
	e := serve(t, nil)
	const size = 20 << 20
	var n int64
	e.service.imports = func(_ context.Context, body io.Reader) (err error) {
		n, err = io.Copy(io.Discard, body)
		return err
	}
	line := `{"external_id":"a","traits":{}}` + "\n"
	answer, got := e.send("POST", users+"/import?mode=replace", io.LimitReader(repeating(line), size),
		append(token("full"), "Content-Type", "application/x-ndjson")...)
	if answer.StatusCode != http.StatusOK || n != size {
		t.Errorf("%d after %d bytes: %s", answer.StatusCode, n, got)
	}
	e.problem(422, "invalid", "POST", users+"/import?mode=upsert", line, append(token("full"), "Content-Type", "application/x-ndjson")...)
}

type repeating string

func (r repeating) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], r)
	}
	return n, nil
}
