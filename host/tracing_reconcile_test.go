package host_test

import (
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// O29: a comparison that confirms a sum makes a span of itself and one of the
// confirmation within it, which says of what and how many. No span tells a
// customer.
func TestTraceOfAConfirmation(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	double, a := newDouble(t), agingSQLite(t)
	cfg := hostConfig(a.store, settings(double))
	cfg.Settings.Exporters[0].Secrets["webhook_secret"] = "env:HOOK"
	cfg.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	h := openHookedHost(t, cfg, double)
	h.record("cus_of_secrets", "a", "b")
	a.age(2 * time.Hour)
	run, _ := h.compare()
	if run.Confirmed != 2 {
		t.Fatalf("run %+v", run)
	}
	by := map[string]sdktrace.ReadOnlySpan{}
	said := map[string]string{}
	for _, s := range spans.Ended() {
		by[s.Name()] = s
		for _, attr := range s.Attributes() {
			said[s.Name()+" "+string(attr.Key)] = attr.Value.String()
			if strings.Contains(attr.Value.String(), "secrets") {
				t.Errorf("%s tells %s", s.Name(), attr.Key)
			}
		}
	}
	whole, confirm := by["fencepost.reconcile"], by["fencepost.confirm"]
	if whole == nil || confirm == nil {
		t.Fatalf("spans %v", by)
	}
	if confirm.Parent().SpanID() != whole.SpanContext().SpanID() || confirm.SpanContext().TraceID() != whole.SpanContext().TraceID() {
		t.Error("the confirmation is not within its comparison")
	}
	for key, want := range map[string]string{
		"fencepost.reconcile fencepost.reconciliation": run.ID,
		"fencepost.reconcile fencepost.confirmed":      "2",
		"fencepost.confirm fencepost.exporter":         "stripe",
		"fencepost.confirm fencepost.feature":          "tokens",
		"fencepost.confirm fencepost.items":            "2",
		"fencepost.confirm fencepost.from":             run.From.Format(time.RFC3339),
		"fencepost.confirm fencepost.to":               run.To.Format(time.RFC3339),
	} {
		if said[key] != want {
			t.Errorf("%s is %q, want %q", key, said[key], want)
		}
	}
}
