package telemetry

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// maxLinks bounds the links of one span: the SDK keeps 128 by default.
const maxLinks = 100

// Tracing makes spans of calls and of items. Each subject (an event, a
// correction, a window) has a trace of its own, whose id follows from its key:
// the span of the call that recorded it links there, and each attempt to deliver
// it is a span in it. No attribute carries a tenant, a customer or a quantity.
type Tracing struct {
	provider trace.TracerProvider
	tracer   trace.Tracer
}

// NewTracing makes spans with p.
func NewTracing(p trace.TracerProvider) *Tracing {
	return &Tracing{provider: p, tracer: p.Tracer("github.com/fencepost/fencepost")}
}

// Handler makes a span of each request to the API, within the trace that its
// traceparent header names. Other headers, baggage among them, are not read.
func (t *Tracing) Handler(next http.Handler) http.Handler {
	return otelhttp.NewHandler(next, "fencepost.http",
		otelhttp.WithTracerProvider(t.provider), otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithFilter(func(r *http.Request) bool {
			switch r.URL.Path {
			case "/livez", "/readyz", "/metrics":
				return false
			}
			return true
		}))
}

// StartRecord is [engine.Tracer].
func (t *Tracing) StartRecord(ctx context.Context, inputs int) (context.Context, func([]storage.EventKey, error)) {
	ctx, span := t.tracer.Start(ctx, "fencepost.record", trace.WithAttributes(attribute.Int("fencepost.inputs", inputs)))
	return ctx, func(events []storage.EventKey, err error) {
		for _, key := range events[:min(len(events), maxLinks)] {
			span.AddLink(trace.Link{SpanContext: subject(key.Tenant, key.EventID)})
		}
		span.SetAttributes(attribute.Int("fencepost.recorded", len(events)))
		failed(span, err)
		span.End()
	}
}

// failed notes the tag of an error; its text may hold input.
func failed(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, string(sdk.TagOf(err)))
	}
}

// StartSend begins a span for the batch and one for each item in the item's own
// trace, each linked to the other.
func (t *Tracing) StartSend(ctx context.Context, exporterName string, items []storage.ClaimedItem) (context.Context, func(map[int64]storage.ItemState)) {
	ctx, batch := t.tracer.Start(ctx, "fencepost.deliver", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String("fencepost.exporter", exporterName), attribute.Int("fencepost.items", len(items))))
	toBatch := trace.WithLinks(trace.Link{SpanContext: batch.SpanContext()})
	spans := make([]trace.Span, len(items))
	for i, it := range items {
		of := subject(it.Identity.Tenant, it.Identity.SubjectRef)
		_, spans[i] = t.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), of), "fencepost.deliver.item",
			toBatch, trace.WithAttributes(
				attribute.String("fencepost.exporter", exporterName), attribute.Int64("fencepost.item", it.ItemID),
				attribute.String("fencepost.subject_kind", string(it.Identity.SubjectKind)), attribute.Int("fencepost.attempt", it.Attempts)))
		if i < maxLinks {
			batch.AddLink(trace.Link{SpanContext: spans[i].SpanContext()})
		}
	}
	return ctx, func(landed map[int64]storage.ItemState) {
		for i, span := range spans {
			state := landed[items[i].ItemID]
			span.SetAttributes(attribute.String("fencepost.state", string(state)))
			switch state {
			case storage.Accepted, storage.Pending:
			default:
				span.SetStatus(codes.Error, string(state))
			}
			span.End()
		}
		batch.End()
	}
}

// StartReconcile begins the span of a comparison with a provider. It is
// [engine.ReconcileTracer].
func (t *Tracing) StartReconcile(ctx context.Context, exporterName string) (context.Context, func(storage.Reconciliation, error)) {
	ctx, span := t.tracer.Start(ctx, "fencepost.reconcile", trace.WithAttributes(attribute.String("fencepost.exporter", exporterName)))
	return ctx, func(done storage.Reconciliation, err error) {
		span.SetAttributes(attribute.String("fencepost.reconciliation", done.ID), attribute.Int64("fencepost.lines", done.Lines),
			attribute.Int64("fencepost.differing", done.Differing), attribute.Int64("fencepost.confirmed", done.Confirmed))
		failed(span, err)
		span.End()
	}
}

// ConfirmedSum makes a span of the confirmation of a sum, in the comparison's
// trace. The items are those of the feature and stretch that were accepted; the
// store does not name them, so no link leads to their traces.
func (t *Tracing) ConfirmedSum(ctx context.Context, sum storage.SumConfirm, items int64) {
	_, span := t.tracer.Start(ctx, "fencepost.confirm", trace.WithAttributes(
		attribute.String("fencepost.exporter", sum.Query.Exporter), attribute.String("fencepost.feature", sum.Key.Feature),
		attribute.String("fencepost.from", sum.Query.From.UTC().Format(time.RFC3339)), attribute.String("fencepost.to", sum.Query.To.UTC().Format(time.RFC3339)),
		attribute.Int64("fencepost.items", items), attribute.String("fencepost.state", string(storage.Confirmed))))
	span.End()
}

// subject is where the trace of a subject begins.
func subject(tenant, ref string) trace.SpanContext {
	h := outbox.TraceOf(tenant, ref)
	var c trace.SpanContextConfig
	copy(c.TraceID[:], h[:16])
	copy(c.SpanID[:], h[16:24])
	c.TraceFlags, c.Remote = trace.FlagsSampled, true
	return trace.NewSpanContext(c)
}
