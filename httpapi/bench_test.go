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
	"kindred/httpapi/requestlog"
)

// What the edge itself costs, from the router to the encoded answer, and beside it what it
// costs to list the request in the log of requests.
func BenchmarkHandler(b *testing.B) {
	log := &requestlog.Log{}
	options := httpapi.Options{
		Authenticator: tokens{"full": {"admin"}},
		Secret:        bytes.Repeat([]byte{1}, 32),
		Limits:        httpapi.Limits{TokenRate: 1 << 30, ClientRate: 1 << 30},
		Logger:        slog.New(slog.NewJSONHandler(io.Discard, nil)), //nolint:sloglint // writing a line is part of the cost
		Metrics:       prometheus.NewRegistry(),
		Now:           time.Now,
		Entropy:       rand.Reader,
	}
	handler := httpapi.Handler(&service{}, options)
	options.Metrics, options.Answered = prometheus.NewRegistry(), log.Note
	listing := httpapi.Handler(&service{}, options)
	const body = `{"external_id":"customer-4711","traits":{"plan":"pro","age":42,"city":"Wien","interests":["climbing","jazz"],"active":true}}`
	for _, bench := range []struct {
		name, method, path, body string
		handler                  http.Handler
	}{
		{"get", "GET", users + "/" + user, "", handler},
		{"list", "GET", users + "?limit=10", "", handler},
		{"post", "POST", users, body, handler},
		{"post/listed", "POST", users, body, listing},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(bench.method, bench.path, strings.NewReader(bench.body))
				r.Header.Set("Authorization", "Bearer full")
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				bench.handler.ServeHTTP(w, r)
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
