package host_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/telemetry"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// O28, O29: what recorded an event links to the trace in which it is
// delivered, and that one is in the caller's own trace. No span tells a tenant.
func TestTraceFromRecordToDelivery(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	tracing := telemetry.NewTracing(provider)
	key := storage.EventKey{Tenant: "tenant-of-secrets", EventID: "event-of-secrets"}

	record := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, end := tracing.StartRecord(r.Context(), 2)
		end([]storage.EventKey{key}, sdk.Invalid("events[1].quantity", "at most 12 decimals"))
	})
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/events", nil)
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	tracing.Handler(record).ServeHTTP(httptest.NewRecorder(), req)
	probe := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
	tracing.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), probe)

	_, end := tracing.StartSend(context.Background(), "stripe", []storage.ClaimedItem{{
		ItemID: 7, Attempts: 1, Identity: storage.Identity{Tenant: key.Tenant, SubjectKind: storage.SubjectEvent, SubjectRef: outbox.EventRef(key)},
	}})
	end(map[int64]storage.ItemState{7: storage.Accepted})

	by := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		by[s.Name()] = s
		for _, a := range s.Attributes() {
			if strings.Contains(a.Value.String(), "secrets") {
				t.Errorf("%s tells %s", s.Name(), a.Key)
			}
		}
		if strings.Contains(s.Status().Description, "decimals") {
			t.Errorf("%s tells what was wrong with the input", s.Name())
		}
	}
	if len(by) != 4 {
		t.Fatalf("spans %v", by)
	}
	asked, item := by["fencepost.record"], by["fencepost.deliver.item"]
	if got := asked.SpanContext().TraceID().String(); got != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("recorded in trace %s, not in the caller's", got)
	}
	if len(asked.Links()) != 1 || asked.Links()[0].SpanContext.TraceID() != item.SpanContext().TraceID() {
		t.Errorf("links %v do not lead to %v", asked.Links(), item.SpanContext().TraceID())
	}
	if asked.Status().Description != string(sdk.TagInvalid) {
		t.Errorf("status %+v", asked.Status())
	}
	if item.EndTime().Before(item.StartTime()) || item.StartTime().Before(time.Now().Add(-time.Minute)) {
		t.Errorf("from %v to %v", item.StartTime(), item.EndTime())
	}
	if links := item.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != by["fencepost.deliver"].SpanContext().SpanID() {
		t.Errorf("an item's span links to %v", links)
	}
	var none trace.TraceID
	if item.SpanContext().TraceID() == none {
		t.Error("no trace")
	}
}
