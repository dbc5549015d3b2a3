package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"kindred"
	"kindred/domain/fault"
	"kindred/httpapi/docsite"
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
	get("/openapi.json", fixedJSON(func() ([]byte, error) { return publicContract(doc) }))
	get("/asyncapi.json", fixedJSON(func() ([]byte, error) { return asyncContract(doc) }))
	e.site = sync.OnceValue(func() *docsite.Site { return must(docsite.New(kindred.Documentation, doc)) })
	for _, path := range must(docsite.Paths(kindred.Documentation)) {
		get(path, documentation(e.site, path))
		get(path+"/", http.RedirectHandler(path, http.StatusMovedPermanently))
	}
	get(docsite.SearchPath, search(e.site))
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
			if gone := r.Context().Err(); gone != nil { // who asked has hung up, which says nothing of the service
				e.fail(w, r, gone)
				return
			}
			level := slog.LevelWarn
			if errors.Is(err, ErrStopping) { // as it was told to
				level = slog.LevelInfo
			}
			e.o.Logger.Log(ctx, level, "not ready", slog.Any("error", err))
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

// fixedJSON serves JSON that never changes while the process lives; it is made when
// it is first asked for.
func fixedJSON(page func() ([]byte, error)) http.Handler {
	body := sync.OnceValue(func() []byte { return must(page()) })
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answerPage(w, http.StatusOK, "application/json", body())
	})
}

// documentation serves one file of the site, which is drawn when its first one
// is asked for.
func documentation(site func() *docsite.Site, path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		file, _ := site().File(path)
		answerPage(w, http.StatusOK, file.Type, file.Content)
	})
}

func search(site func() *docsite.Site) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerPage(w, http.StatusOK, "text/html; charset=utf-8", must(site().Search(r.URL.Query().Get("q"))))
	})
}

// answerPage answers with what may be kept for five minutes. Pages may load
// nothing from anywhere else.
func answerPage(w http.ResponseWriter, status int, contentType string, content []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "public, max-age=300")
	header.Set("Content-Security-Policy", docsite.Policy)
	w.WriteHeader(status)
	_, _ = w.Write(content) //nolint:gosec // html/template made it; a caller that has gone away is not our trouble
}
