package dispatcher

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"kindred/eventstore"
)

// trace makes the span of an attempt that has taken place, within the trace of the request
// that caused it. Neither an address nor a byte of what was sent or answered is in it, and
// the receiver, who is a stranger, learns nothing of the trace.
func (w *worker) trace(o outcome) {
	if w.Tracing == nil || o.claim.Trace == "" {
		return
	}
	_, span := w.Tracing.Tracer("kindred/dispatcher").Start(eventstore.WithTrace(context.Background(), o.claim.Trace), "webhook attempt",
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(o.began), trace.WithAttributes(
			attribute.String("kindred.client_id", string(o.claim.Client)),
			attribute.String("kindred.webhook_id", string(o.claim.Webhook)),
			attribute.String("kindred.delivery_id", string(o.claim.Delivery)),
			attribute.String("kindred.event_id", string(o.claim.Event)),
			attribute.String("kindred.event_type", o.claim.EventType),
			attribute.Int("kindred.attempt", o.claim.Failed+1),
			semconv.HTTPRequestMethodKey.String(http.MethodPost),
		))
	if o.status != 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(o.status))
	}
	if o.verdict == failed {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(o.began.Add(o.latency)))
}
