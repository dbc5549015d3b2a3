package eventstore_test

import (
	"testing"

	"go.opentelemetry.io/otel/trace"

	"kindred/eventstore"
)

func TestATraceComesBackAsItWasWritten(t *testing.T) {
	const sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if got := eventstore.TraceOf(eventstore.WithTrace(t.Context(), sampled)); got != sampled {
		t.Errorf("%q", got)
	}
	for _, none := range []string{"", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", "no trace"} {
		if got := eventstore.TraceOf(eventstore.WithTrace(t.Context(), none)); got != "" {
			t.Errorf("%q of %q", got, none)
		}
	}
	if got := eventstore.TraceOf(trace.ContextWithSpan(t.Context(), trace.SpanFromContext(t.Context()))); got != "" {
		t.Errorf("%q without a collector", got)
	}
	for meta, want := range map[string]string{`{"actor":"a","trace":"` + sampled + `"}`: sampled, `{"actor":"a"}`: "", `no JSON`: ""} {
		if got := (eventstore.Record{Proposed: eventstore.Proposed{Meta: []byte(meta)}}).Trace(); got != want {
			t.Errorf("%q of %s", got, meta)
		}
	}
}
