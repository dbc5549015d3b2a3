package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"kindred/domain/fault"
)

// registerService adds the pages of the service's own. A route's name is its
// path.
func (e *edge) registerService(doc *openapi3.T) {
	get := func(path string, h http.Handler) {
		e.router.Handle(path, h).Methods(http.MethodGet).Name(path)
	}
	get("/healthz", http.HandlerFunc(healthy))
	get("/readyz", http.HandlerFunc(e.ready))
	if !e.o.MetricsElsewhere {
		get("/metrics", Metrics(e.o.Metrics, e.o.Now))
	}
	get("/openapi.json", fixed("application/json", func() ([]byte, error) { return publicContract(doc) }))
	get("/docs", fixed("text/html; charset=utf-8", func() ([]byte, error) { return renderDocs(doc) }))
	get("/", http.RedirectHandler("/docs", http.StatusFound))
}

// healthy says that the process answers.
func healthy(w http.ResponseWriter, _ *http.Request) { answerState(w, "ok") }

// ready says whether requests should be sent here.
func (e *edge) ready(w http.ResponseWriter, r *http.Request) {
	if e.o.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if err := e.o.Ready(ctx); err != nil {
			e.o.Logger.WarnContext(ctx, "not ready", slog.Any("error", err))
			e.fail(w, r, fault.New(fault.Unavailable, "not_ready", "The service is not ready."))
			return
		}
	}
	answerState(w, "ready")
}

func answerState(w http.ResponseWriter, state string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"status":"` + state + `"}` + "\n"))
}

// fixed serves what never changes while the process lives; it is made when it
// is first asked for. Pages may load nothing from anywhere.
func fixed(contentType string, page func() ([]byte, error)) http.Handler {
	body := sync.OnceValue(func() []byte { return must(page()) })
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header.Set("Content-Type", contentType)
		header.Set("Cache-Control", "public, max-age=300")
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'")
		_, _ = w.Write(body())
	})
}
