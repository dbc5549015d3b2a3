package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/httpapi"
)

func TestMetricsAreGatheredOnceASecondAtMost(t *testing.T) {
	gathered := 0
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "looks"}, func() float64 {
		gathered++
		return float64(gathered)
	}))
	now := time.Now()
	page := httpapi.Metrics(registry, func() time.Time { return now })
	for _, want := range []string{"looks 1\n", "looks 1\n", "looks 2\n"} {
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		if !strings.HasSuffix(answer.Body.String(), want) || !strings.HasPrefix(answer.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Errorf("got %s %v, want %s", answer.Body, answer.Header(), want)
		}
		now = now.Add(501 * time.Millisecond)
	}
}

func TestMetricsOnAnAddressOfTheirOwnAreNotOnThePublicOne(t *testing.T) {
	e := serve(t, func(o *httpapi.Options) { o.MetricsElsewhere = true })
	e.problem(404, "no_such_path", "GET", "/metrics", "")
}
