package stripe_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// host answers every batch with what a test scripted.
type host struct {
	batches [][]capability.Request
	answer  func(capability.Request) capability.Response
	err     error
	short   bool // leaves the last answer out
}

func (h *host) Send(_ context.Context, requests []capability.Request) ([]capability.Response, error) {
	h.batches = append(h.batches, requests)
	if h.err != nil {
		return nil, h.err
	}
	out := make([]capability.Response, 0, len(requests))
	for _, r := range requests {
		out = append(out, h.answer(r))
	}
	if h.short {
		out = out[:len(out)-1]
	}
	return out, nil
}

func answer(status int, body string, headers ...string) func(capability.Request) capability.Response {
	r := capability.Response{Status: status, Body: []byte(body)}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Headers = append(r.Headers, capability.Header{Name: headers[i], Value: headers[i+1]})
	}
	return func(capability.Request) capability.Response { return r }
}

func open(t testing.TB, h *host, c exporter.Configuration) exporter.Exporter {
	t.Helper()
	e := stripe.New(capability.Host{HTTP: h})
	if err := e.Configure(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	return e
}

func testMode() exporter.Configuration { return exporter.Configuration{Name: "billing", Mode: "test"} }

func connected() exporter.Configuration {
	return exporter.Configuration{Name: "billing", Mode: "test", Account: "acct_1", Settings: json.RawMessage(`{"connected":true}`)}
}

func item() exporter.Item {
	return exporter.Item{
		ID: "item-1", Identifier: "fencepost_1", Attempt: 1, Kind: "event", Mode: "test",
		Customer: "cus_1", Feature: "tokens", Value: "12.5",
		Timestamp: time.Date(2026, 11, 30, 12, 0, 0, 999_999_000, time.UTC),
		Mapping:   map[string]string{"event_name": "llm_tokens"},
	}
}

func deliver(t testing.TB, e exporter.Exporter, items ...exporter.Item) []exporter.ItemOutcome {
	t.Helper()
	outcomes, err := e.Deliver(context.Background(), exporter.Delivery{Items: items})
	if err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != len(items) {
		t.Fatalf("%d outcomes of %d items", len(outcomes), len(items))
	}
	for i := range items {
		if outcomes[i].ItemID != items[i].ID {
			t.Fatalf("outcome %d is of %q, want %q", i, outcomes[i].ItemID, items[i].ID)
		}
	}
	return outcomes
}
