package stripemock_test

import (
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// What the exporter sends, through the host's egress, is what Stripe's own
// OpenAPI takes: stripe-mock refuses an unknown or missing parameter and a
// wrong type, and the exporter takes its answer for an acceptance.
func TestExporterRequestsMatchOpenAPI(t *testing.T) {
	t.Parallel()
	mock := start(t)
	base, err := url.Parse(mock.URL())
	if err != nil {
		t.Fatal(err)
	}
	roots, err := egress.LoadCAFile(mock.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := stripe.New(capability.Host{}).Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	secret := manifest.Secrets[0]
	http, err := egress.New(egress.Config{
		Plugin: "stripe", Hosts: []string{base.Host}, AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		RootCAs: roots, Answers: manifest.Answers,
		Secrets: map[string]egress.InjectedSecret{secret.Name: {
			Header: secret.Header, Prefix: secret.Prefix, Value: grant.NewSecret("sk_test_stripemocktakesany"),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = http.Close() })
	x := stripe.New(capability.Host{HTTP: http})
	if err := x.Configure(t.Context(), exporter.Configuration{Name: "stripe", Account: "acct_1", Mode: "test", BaseURL: mock.URL()}); err != nil {
		t.Fatal(err)
	}
	items := []exporter.Item{
		item("1", "0.000000000001"), item("2", "-12.5"), item("3", "123456789012345"),
	}
	covered := make([]egress.CallItem, len(items))
	for i, it := range items {
		covered[i] = egress.CallItem{ID: it.ID, Identifier: it.Identifier}
	}
	ctx, call := http.Begin(t.Context(), covered)
	outcomes, err := x.Deliver(ctx, exporter.Delivery{Items: items, Deadline: time.Now().Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	evidence := call.Exchanges()
	for _, o := range outcomes {
		if o.Kind != exporter.Accepted {
			t.Errorf("item %s: %s %s %s", o.ItemID, o.Kind, o.Code, o.Message)
		}
		if ex := evidence[o.ItemID]; len(ex) != 1 || ex[0].Class != exporter.ClassSuccess {
			t.Errorf("item %s: the host saw %+v", o.ItemID, ex)
		}
	}
	if len(outcomes) != len(items) {
		t.Errorf("%d outcomes for %d items", len(outcomes), len(items))
	}
}

func item(id, value string) exporter.Item {
	return exporter.Item{
		ID: id, Identifier: "fencepost_0000000000000000000000000000000000000000000000000000000000000" + "00" + id,
		Attempt: 1, Kind: "event", Account: "acct_1", Mode: "test", Customer: "cus_1", Feature: "tokens", Value: value,
		Timestamp: time.Now().Add(-time.Minute), Mapping: map[string]string{"event_name": "llm_tokens"},
	}
}
