package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// otlp is what is pushed to a collector. The zero value pushes nothing.
type otlp struct {
	tracer  *sdktrace.TracerProvider
	readers []sdkmetric.Reader
}

// openOTLP reads the standard variables of OpenTelemetry: with
// OTEL_EXPORTER_OTLP_ENDPOINT, or that of one signal, traces and metrics are
// pushed there over HTTP; the others (headers, certificates, timeouts, sampler,
// OTEL_SDK_DISABLED) count as its specification says. Nothing is pushed without.
//
// What cannot be pushed is logged and given up: a collector that is away delays
// nothing.
func openOTLP(ctx context.Context, getenv func(string) string, logger *slog.Logger) (otlp, error) {
	var o otlp
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.WarnContext(ctx, "telemetry was not pushed", "error", err) }))
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return o, nil
	}
	if p := getenv("OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/protobuf" {
		return o, &sdk.Error{Tag: sdk.TagUnsupported, Field: "OTEL_EXPORTER_OTLP_PROTOCOL", Rule: "http/protobuf"}
	}
	all := getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
	named := resource.NewSchemaless(attribute.String("service.name", "fencepost"), attribute.String("service.version", programVersion()))
	res, err := resource.Merge(named, resource.Environment()) // where both name something, the environment does
	if err != nil {
		return o, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if (all || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "") && getenv("OTEL_TRACES_EXPORTER") != "none" {
		e, err := otlptracehttp.New(ctx)
		if err != nil {
			return o, fmt.Errorf("open traces: %w", err)
		}
		o.tracer = sdktrace.NewTracerProvider(sdktrace.WithBatcher(e), sdktrace.WithResource(res))
	}
	if (all || getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") != "") && getenv("OTEL_METRICS_EXPORTER") != "none" {
		e, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return o, fmt.Errorf("open metrics: %w", err)
		}
		o.readers = append(o.readers, sdkmetric.NewPeriodicReader(e))
	}
	return o, nil
}

// provider is the tracer, or a nil interface.
func (o otlp) provider() trace.TracerProvider {
	if o.tracer == nil {
		return nil
	}
	return o.tracer
}

// close pushes what is left. Metrics were closed with the host.
func (o otlp) close(ctx context.Context, logger *slog.Logger) {
	if o.tracer == nil {
		return
	}
	if err := o.tracer.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
		logger.WarnContext(ctx, "traces were not pushed", "error", err)
	}
}
