package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"kindred/domain/fault"
	"kindred/domain/id"
)

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
			took := e.o.Now().Sub(began)
			e.tell(r, rec, x, began, took)
			e.report(r, rec, x, took)
		}()
		inner := r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		defer e.recover(rec, inner)
		next.ServeHTTP(rec, inner)
	})
}

func (e *edge) recover(w *recorder, r *http.Request) {
	v := recover()
	if cut, ok := v.(brokenOff); ok {
		if r.Context().Err() == nil { // else the caller has gone
			level := slog.LevelError
			if w.stream != nil {
				cut.err = cmp.Or(w.stream.ended(), cut.err)
			}
			if f := fault.As(cut.err); f != nil && f.Kind == fault.Unauthenticated { // its client has revoked the token
				level = slog.LevelInfo
			}
			e.o.Logger.Log(r.Context(), level, "answer broken off", slog.Any("error", cut.err), requestAttr(r.Context()))
		}
		v = http.ErrAbortHandler
	}
	switch v {
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

// tell passes on what is kept of a request of a client.
func (e *edge) tell(r *http.Request, rec *recorder, x *exchange, began time.Time, took time.Duration) {
	if e.o.Answered == nil || x.op == nil || x.principal.Client == "" || r.Context().Value(unlistedKey{}) != nil {
		return
	}
	e.o.Answered(Answered{
		Client: x.principal.Client, Key: x.principal.Key, ID: x.call.ID, Method: method(r.Method), Route: x.op.path,
		Status: cmp.Or(rec.status, http.StatusOK), At: began, Duration: took,
	})
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
	// A 503 is a refusal, of which a client may have as many as it asks for: fail tells of the trouble behind it.
	if status == http.StatusInternalServerError {
		level = slog.LevelError
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

// beginSpan starts the span of a request for the API, within the caller's trace
// where there is one; nil: it is not traced. Paths, queries, addresses and user
// agents may be personal: none of them is in it.
func (e *edge) beginSpan(r *http.Request) (*http.Request, trace.Span) {
	if e.tracer == nil || !ofAPI(r.URL.Path) {
		return r, nil
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := e.tracer.Start(ctx, method(r.Method), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method(r.Method))))
	return r.WithContext(ctx), span
}

// endSpan says what became of a request.
func endSpan(span trace.Span, method, route string, status int) {
	span.SetName(method + " " + route)
	span.SetAttributes(semconv.HTTPRoute(route), semconv.HTTPResponseStatusCode(status))
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
