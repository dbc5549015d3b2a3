package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/id"
)

// metrics count requests by route, never by path.
type metrics struct {
	inFlight prometheus.Gauge
	duration *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) metrics {
	m := metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kindred_http_requests_in_flight",
			Help: "Requests that are being answered.",
		}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kindred_http_request_duration_seconds",
			Help:    "Time from the request's header to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "route", "status"}),
	}
	registry.MustRegister(m.inFlight, m.duration)
	return m
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int // 0 until the header is written
	bytes  int64

	place          // until the answer is written
	stream *stream // that holds a place for the whole of the answer; nil: none does
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if c, size := r.class, int64(len(p)); r.held {
		defer c.written.Add(-size)
		if c.written.Add(size) <= maxWritten {
			r.leave()
		}
	}
	n, err := r.stream.write(r.ResponseWriter, p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// observe gives a request its name, answers for a handler that panics, and
// counts, traces and logs what came of it.
func (e *edge) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := e.o.Now()
		r, span := e.beginSpan(r)
		rec := w.(*recorder)
		x := &exchange{call: Call{ID: e.requestID(r), RemoteAddr: e.remoteAddr(r), Forwarded: forwarded(r.Header)}, rec: rec, span: span}
		header := w.Header()
		header.Set(headerRequestID, string(x.call.ID))
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")

		e.metrics.inFlight.Inc()
		defer func() {
			e.metrics.inFlight.Dec()
			e.report(r, rec, x, e.o.Now().Sub(began))
		}()
		inner := r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		defer e.recover(rec, inner)
		next.ServeHTTP(rec, inner)
	})
}

func (e *edge) recover(w *recorder, r *http.Request) {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		e.o.Logger.ErrorContext(r.Context(), "request panicked", slog.String("panic", fmt.Sprint(v)),
			slog.String("stack", string(debug.Stack())), requestAttr(r.Context()))
		if w.status != 0 {
			panic(http.ErrAbortHandler) // what was sent is not the whole answer
		}
		e.write(w, r, http.StatusInternalServerError, "internal", "Something went wrong on our side.", nil)
	}
}

func (e *edge) report(r *http.Request, rec *recorder, x *exchange, took time.Duration) {
	route, level := "other", slog.LevelInfo
	status := cmp.Or(rec.status, http.StatusOK)
	switch {
	case x.op != nil:
		route = x.op.path
	case x.service != "":
		route, level = x.service, slog.LevelDebug
	}
	switch {
	case status == http.StatusInternalServerError:
		level = slog.LevelError
	case status > http.StatusInternalServerError:
		level = slog.LevelWarn
	}
	e.metrics.duration.WithLabelValues(method(r.Method), route, strconv.Itoa(status)).Observe(took.Seconds())
	if x.span != nil {
		endSpan(x.span, method(r.Method), route, status)
	}
	if !e.o.Logger.Enabled(r.Context(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 10)
	attrs = append(attrs,
		slog.String("method", method(r.Method)),
		slog.String("route", route),
		slog.Int("status", status),
		slog.Duration("duration", took),
		slog.Int64("bytes", rec.bytes),
		slog.String("request_id", string(x.call.ID)))
	if x.principal.Client != "" {
		attrs = append(attrs, slog.String("client", string(x.principal.Client)), slog.String("actor", x.principal.Actor()))
	}
	if x.code != "" {
		attrs = append(attrs, slog.String("code", x.code))
	}
	if strings.HasPrefix(route, "/auth/") || status == http.StatusUnauthorized || status == http.StatusTooManyRequests {
		attrs = append(attrs, slog.String("network", region(x.call.RemoteAddr)))
	}
	e.o.Logger.LogAttrs(r.Context(), level, "request", attrs...)
}

// method keeps invented methods out of labels.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}

// requestID takes the caller's own name for the request where it is a sane one.
func (e *edge) requestID(r *http.Request) id.Request { return e.ownID(r.Header.Get(headerRequestID)) }

func (e *edge) ownID(own string) id.Request {
	if own == "" || len(own) > 128 {
		return id.Next[id.Request](id.Random(e.o.Entropy))
	}
	for _, c := range []byte(own) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.', c == ':':
		default:
			return id.Next[id.Request](id.Random(e.o.Entropy))
		}
	}
	return id.Request(own)
}

// remoteAddr is the caller's address.
func (e *edge) remoteAddr(r *http.Request) string {
	return e.caller(r.RemoteAddr, r.Header[headerForwardedFor])
}

func (e *edge) caller(peer string, forwarded []string) string {
	peer = host(peer)
	if len(e.o.TrustedProxies) == 0 {
		return peer
	}
	return caller(peer, forwarded, e.o.TrustedProxies)
}

// host is an address without its port, and without the brackets of one that has none.
func host(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	if inner, found := strings.CutPrefix(addr, "["); found {
		return strings.TrimSuffix(inner, "]")
	}
	return addr
}
