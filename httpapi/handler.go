package httpapi

import (
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/fault"
)

// limit: requests | time of a request that does not stream | {requestTimeout} | 503 `timeout`
const requestTimeout = 30 * time.Second

// Handler serves the contract through api, and beside it /healthz, /readyz,
// /metrics, /openapi.json and /docs. It panics when the contract that was built
// into it is broken.
func Handler(api StrictServerInterface, o Options) http.Handler {
	doc := must(loadContract())
	if o.Timeout == 0 {
		o.Timeout = requestTimeout
	}
	o.Limits = o.Limits.orDefault()
	if o.Follows == nil {
		o.Follows = NewFollows(nil, o.Now)
	}
	o.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kindred_http_event_streams",
		Help: "Streams of events, and requests that wait for one, that are open.",
	}, func() float64 { return float64(o.Follows.count()) }))
	e := &edge{
		o:          o,
		router:     newRouter(),
		operations: must(operations(doc)),
		tokens:     must(newLimiter("token", o.Limits.TokenRate)),
		clients:    must(newLimiter("client", o.Limits.ClientRate)),
		metrics:    newMetrics(o.Metrics),
	}
	if o.Tracing != nil {
		e.tracer = o.Tracing.Tracer("kindred/httpapi")
	}
	e.ratePolicy = e.tokens.policy() + ", " + e.clients.policy()

	refuse := func(w http.ResponseWriter, r *http.Request, err error) { e.fail(w, r, unbound(err)) }
	register(e.router, NewStrictHandlerWithOptions(api, []StrictMiddlewareFunc{e.again}, StrictHTTPServerOptions{
		RequestErrorHandlerFunc:  refuse,
		ResponseErrorHandlerFunc: e.fail,
	}), refuse)
	e.registerService(doc)
	e.routes = must(newRoutes(e.router, e.guard, http.HandlerFunc(e.noRoute)))
	return e.admission(e.observe(http.HandlerFunc(e.route)))
}

// route answers HEAD as it answers GET, where that records nothing; net/http
// leaves the body out.
func (e *edge) route(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead && !e.records(r) {
		get := *r
		get.Method = http.MethodGet
		r = &get
	}
	e.routes.ServeHTTP(w, r)
}

// records says whether to GET a path records something.
func (e *edge) records(r *http.Request) bool {
	for _, op := range e.operations {
		if op.records && fits(op.path, r.URL.EscapedPath()) {
			return true
		}
	}
	return false
}

func (e *edge) notFound(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/docs/") { // people follow old links
		exchangeFrom(r.Context()).code = "no_such_path"
		page := e.site().Missing()
		answerPage(w, http.StatusNotFound, page.Type, page.Content)
		return
	}
	escaped := path.Clean(r.URL.EscapedPath())
	for _, near := range []string{escaped, "/api/v1" + escaped, "/api" + escaped} {
		if template := e.template(near); template != "" {
			e.fail(w, r, fault.New(fault.Missing, "no_such_path", "There is no such path, but there is %s.", template))
			return
		}
	}
	e.fail(w, r, fault.New(fault.Missing, "no_such_path", "There is no such path. /docs lists those there are."))
}

// template is the path in the contract that a path fits, or "". It repeats no
// value of the caller's.
func (e *edge) template(escaped string) (template string) {
	for _, op := range e.operations {
		// Of two that fit, such as /users/{user_id} and /users/import, the one that says more.
		if fits(op.path, escaped) && (template == "" || strings.Count(op.path, "{") < strings.Count(template, "{")) {
			template = op.path
		}
	}
	return template
}

// methods are those that the contract may use.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// noRoute says which methods a path has, or that there is no such path.
func (e *edge) noRoute(w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, method := range methods {
		try := *r
		try.Method = method
		if !e.routes.has(&try) {
			continue
		}
		allow = append(allow, method)
		if method == http.MethodGet && !e.records(r) {
			allow = append(allow, http.MethodHead)
		}
	}
	if len(allow) == 0 {
		e.notFound(w, r)
		return
	}
	allowed := strings.Join(append(allow, http.MethodOptions), ", ")
	w.Header().Set("Allow", allowed)
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	e.write(w, r, http.StatusMethodNotAllowed, "method_not_allowed", "The path does not have this method. It has "+allowed+".", nil)
}
