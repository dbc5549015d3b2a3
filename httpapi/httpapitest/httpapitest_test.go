package httpapitest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"kindred/httpapi/httpapitest"
)

// judge counts the errors that it is told.
type judge struct {
	testing.TB
	errors []string
}

func (j *judge) Helper() {}

func (j *judge) Errorf(format string, args ...any) {
	j.errors = append(j.errors, fmt.Sprintf(format, args...))
}

func TestClient(t *testing.T) {
	const (
		users   = "/api/v1/users"
		list    = `{"data":[],"next_cursor":null}`
		problem = `{"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"","code":"invalid","request_id":"r"}`
	)
	tests := []struct {
		name, path, contentType, body string
		status                        int
		refused                       string
	}{
		{"a list", users, "application/json", list, 200, ""},
		{"a problem", users, "application/problem+json", problem, 422, ""},
		{"an unknown code", users, "application/problem+json", strings.Replace(problem, "invalid", "x", 1), 422, "code"},
		{"a problem of no such status here", users, "application/problem+json", problem, 410, "no answer 410"},
		{"another path", "/nowhere", "text/plain", "", 200, ""},
		{"an unknown field", users, "application/json", `{"data":[],"next_cursor":null,"more":1}`, 200, "more"},
		{"a missing field", users, "application/json", `{"data":[]}`, 200, "next_cursor"},
		{"an unknown status", users, "application/json", list, 206, "no answer 206"},
		{"a plain error", users, "text/plain", "no", 500, "a problem in text/plain"},
		{"a plain error elsewhere", "/nowhere", "text/plain", "no", 404, "a problem in text/plain"},
		{"another type", users, "text/html", list, 200, "Content-Type"},
		{"a missing header", users + "/u", "application/json", `{"id":"u","external_id":"e","traits":{},"created_at":"2026-01-31T12:00:00.123456Z","updated_at":"2026-01-31T12:00:00.123456Z"}`, 200, "ETag"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.contentType)
				w.Header().Set("X-Request-Id", "r")
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer server.Close()
			j := &judge{TB: t}
			response, err := httpapitest.Client(j, nil).Get(server.URL + tt.path)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			got := strings.Join(j.errors, "\n")
			if (tt.refused == "") != (got == "") || !strings.Contains(got, tt.refused) {
				t.Errorf("got %q, want %q", got, tt.refused)
			}
		})
	}
}
