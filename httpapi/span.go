package httpapi

import (
	"net/http"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

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
