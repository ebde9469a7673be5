package stripe_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

func describe(t testing.TB) exporter.Manifest {
	t.Helper()
	// Describe works without capabilities and before Configure.
	m, err := stripe.New(capability.Host{}).Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// match applies the manifest's patterns as its contract says: first match
// counts, "{identifier}" stands for the item's.
func match(t *testing.T, status int, body, identifier string) exporter.AnswerClass {
	t.Helper()
	var parsed struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal([]byte(body), &parsed)
	at := map[string]string{"/error/code": parsed.Error.Code, "/error/message": parsed.Error.Message}
	for _, p := range describe(t).Answers {
		value, known := at[p.Path]
		if !known || (len(p.Equals) == 0) == (p.Contains == "") {
			t.Fatalf("pattern %+v is none", p)
		}
		hit := slices.Contains(p.Equals, value)
		if p.Contains != "" {
			hit = strings.Contains(value, strings.ReplaceAll(p.Contains, "{identifier}", identifier))
		}
		if hit && p.Status == status {
			return p.Class
		}
	}
	return ""
}

func TestManifest(t *testing.T) {
	t.Parallel()
	m := describe(t)
	// Stripe's published limits, less the margins that the manifest explains.
	if m.IdentifierHorizon != 82_800*time.Second || m.IdentifierMaxLength != 100 ||
		m.WindowPast >= 35*24*time.Hour || m.WindowFuture != 300*time.Second {
		t.Errorf("limits: %+v", m)
	}
	if want := (exporter.ValueDomain{SignificantDigits: 15, MaxDecimals: 12, Negative: true}); m.Values != want {
		t.Errorf("values: %+v", m.Values)
	}
	if m.MaxBatch < 1 || m.MaxBatch > 500 || m.Rate != 1000 || m.Concurrency != 16 {
		t.Errorf("sending: %+v", m)
	}
	// Q19: below the day in which Stripe cancels. Q23: what settles is listed.
	if m.Corrections != exporter.CorrectCancel || m.CancelWithin != 23*time.Hour || !m.ReadBack.Sums || m.ReadBack.Granularity != time.Minute || len(m.ReadBack.Evidence) != 2 {
		t.Errorf("corrections and read-back: %+v", m)
	}
	if want := (exporter.WebhookSignature{Scheme: "t=,v1=", Header: "Stripe-Signature", Secret: "webhook_secret", Tolerance: 5 * time.Minute}); m.Webhook == nil || *m.Webhook != want {
		t.Errorf("webhook: %+v", m.Webhook)
	}
	if d := cmp.Diff([]exporter.Secret{{
		Name: "api_key", Header: "Authorization", Prefix: "Bearer ",
		TestPrefixes: []string{"sk_test_", "rk_test_"}, LivePrefixes: []string{"sk_live_", "rk_live_"},
	}}, m.Secrets); d != "" {
		t.Error(d)
	}
	// What the wire carries is what the exporter said.
	got, err := wirev1.DecodeManifest(wirev1.EncodeManifest(m))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m, got); d != "" {
		t.Errorf("over the wire (-want +got):\n%s", d)
	}
}
