package eventstore

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const traceparent = "traceparent" // as W3C Trace Context names it

// TraceOf is the traceparent of the span that a context carries; it is empty where
// no collector gets that.
func TraceOf(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

// WithTrace returns a context in which a span is a child of the one that a
// traceparent names.
func WithTrace(ctx context.Context, of string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: of})
}

// Trace is the traceparent of the request that caused the event, or empty.
func (r Record) Trace() string {
	meta, err := DecodeMeta(r.Meta)
	if err != nil {
		return ""
	}
	return meta.Trace
}
