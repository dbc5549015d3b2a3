package app

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"kindred/backoff"
)

const (
	// lastSpans is how long the last spans may take to be sent in a stop.
	lastSpans = 2 * time.Second
	// limit: edge | what the log says of trouble with a collector | {maxTraceTrouble} characters
	maxTraceTrouble = 500 // characters of it; it may quote all that a collector answered
)

// openTracing opens what sends spans to the collector, where one is configured. They
// wait in a bounded queue, away from the requests; those that find it full are dropped.
// The SDK reads the other standard variables (OTEL_…).
func (a *App) openTracing(ctx context.Context) error {
	if a.Config.TracesURL == "" {
		return nil
	}
	otel.SetLogger(logr.Discard()) // it quotes variables, and headers for the collector hold its keys
	var seldom backoff.Seldom
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		seldom.Do(func() {
			a.logger.WarnContext(ctx, "trouble with traces", "error", fmt.Sprintf("%.*s", maxTraceTrouble, err))
		})
	}))
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(a.Config.TracesURL))
	if err != nil {
		return fmt.Errorf("export traces: %w", err)
	}
	of, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("kindred"), semconv.ServiceVersion(Version())), resource.WithFromEnv())
	if err != nil {
		return fmt.Errorf("name the service in traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(of))
	a.closers = append(a.closers, func() {
		ctx := context.WithoutCancel(ctx)
		late := time.AfterFunc(lastSpans, func() { _ = exporter.Shutdown(ctx) }) // what is being sent fails, and tells
		defer late.Stop()
		if err := provider.Shutdown(ctx); err != nil {
			otel.Handle(err)
		}
	})
	a.tracing = provider
	return nil
}
