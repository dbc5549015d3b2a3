package httpapi_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/httpapi"
)

// What the edge itself costs, from the router to the encoded answer.
func BenchmarkHandler(b *testing.B) {
	handler := httpapi.Handler(&service{}, httpapi.Options{
		Authenticator: tokens{"full": {"admin"}},
		Secret:        bytes.Repeat([]byte{1}, 32),
		Limits:        httpapi.Limits{TokenRate: 1 << 30, ClientRate: 1 << 30},
		Logger:        slog.New(slog.NewJSONHandler(io.Discard, nil)), //nolint:sloglint // writing a line is part of the cost
		Metrics:       prometheus.NewRegistry(),
		Now:           time.Now,
		Entropy:       rand.Reader,
	})
	const body = `{"external_id":"customer-4711","traits":{"plan":"pro","age":42,"city":"Wien","interests":["climbing","jazz"],"active":true}}`
	for _, bench := range []struct{ name, method, path, body string }{
		{"get", "GET", users + "/" + user, ""},
		{"list", "GET", users + "?limit=10", ""},
		{"post", "POST", users, body},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(bench.method, bench.path, strings.NewReader(bench.body))
				r.Header.Set("Authorization", "Bearer full")
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if w.Code >= http.StatusBadRequest {
					b.Fatal(w.Body)
				}
			}
		})
	}
}

func BenchmarkNewHandler(b *testing.B) {
	for b.Loop() {
		httpapi.Handler(&service{}, httpapi.Options{Metrics: prometheus.NewRegistry()})
	}
}
