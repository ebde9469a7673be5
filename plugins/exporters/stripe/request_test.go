package stripe_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Bodies are written by hand from Stripe's reference: form encoded, brackets
// for the payload's keys, whole seconds. 1796040000 is 2026-11-30T12:00:00Z.
func TestRequestShape(t *testing.T) {
	t.Parallel()
	with := func(change func(*exporter.Item)) exporter.Item {
		it := item()
		change(&it)
		return it
	}
	for name, c := range map[string]struct {
		configuration exporter.Configuration
		item          exporter.Item
		url, body     string
		headers       []capability.Header
	}{
		"plain": {
			testMode(), item(), "https://api.stripe.com/v1/billing/meter_events",
			"event_name=llm_tokens&identifier=fencepost_1&payload[stripe_customer_id]=cus_1&payload[value]=12.5&timestamp=1796040000",
			[]capability.Header{{Name: "Idempotency-Key", Value: "fencepost_1-1"}},
		},
		// D3: the identifier stays, the header's key moves with the attempt.
		"third attempt": {
			testMode(), with(func(it *exporter.Item) { it.Attempt = 3 }), "https://api.stripe.com/v1/billing/meter_events",
			"event_name=llm_tokens&identifier=fencepost_1&payload[stripe_customer_id]=cus_1&payload[value]=12.5&timestamp=1796040000",
			[]capability.Header{{Name: "Idempotency-Key", Value: "fencepost_1-3"}},
		},
		"connected account": {
			connected(), with(func(it *exporter.Item) { it.Account = "acct_9" }), "https://api.stripe.com/v1/billing/meter_events",
			"event_name=llm_tokens&identifier=fencepost_1&payload[stripe_customer_id]=cus_1&payload[value]=12.5&timestamp=1796040000",
			[]capability.Header{{Name: "Idempotency-Key", Value: "fencepost_1-1"}, {Name: "Stripe-Account", Value: "acct_9"}},
		},
		"own payload keys, awkward characters": {
			exporter.Configuration{Mode: "test", BaseURL: "https://127.0.0.1:9999/"},
			with(func(it *exporter.Item) {
				it.Customer, it.Value, it.Identifier = "a&b=c d+é", "-0.000000000001", "i/1"
				it.Timestamp = time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC)
				it.Mapping = map[string]string{"event_name": "x&y", "customer_key": "who", "value_key": "n"}
			}),
			"https://127.0.0.1:9999/v1/billing/meter_events",
			"event_name=x%26y&identifier=i%2F1&payload[n]=-0.000000000001&payload[who]=a%26b%3Dc+d%2B%C3%A9&timestamp=-1",
			[]capability.Header{{Name: "Idempotency-Key", Value: "i/1-1"}},
		},
		// D4: 15 digits survive unchanged; zeros do not count.
		"large value": {
			testMode(), with(func(it *exporter.Item) { it.Value = "12345678901234500000" }), "https://api.stripe.com/v1/billing/meter_events",
			"event_name=llm_tokens&identifier=fencepost_1&payload[stripe_customer_id]=cus_1&payload[value]=12345678901234500000&timestamp=1796040000",
			[]capability.Header{{Name: "Idempotency-Key", Value: "fencepost_1-1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &host{answer: answer(500, "")}
			deliver(t, open(t, h, c.configuration), c.item)
			want := []capability.Request{{
				Method: "POST", URL: c.url,
				Headers: append([]capability.Header{
					{Name: "Content-Type", Value: "application/x-www-form-urlencoded"},
					{Name: "Stripe-Version", Value: "2024-06-20"},
				}, c.headers...),
				Body: []byte(c.body), Items: []string{c.item.ID}, Secrets: []string{"api_key"},
			}}
			if d := cmp.Diff([][]capability.Request{want}, h.batches); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// One Deliver is one batch, in order, and items that cannot be sent are left
// out of it without moving anybody else's answer.
func TestOneBatch(t *testing.T) {
	t.Parallel()
	h := &host{answer: func(r capability.Request) capability.Response {
		if bytes.Contains(r.Body, []byte("identifier=b&")) {
			return capability.Response{Status: 500}
		}
		id := string(r.Body[bytes.Index(r.Body, []byte("identifier="))+len("identifier=")])
		return capability.Response{Status: 200, Body: []byte(`{"identifier":"` + id + `"}`)}
	}}
	var items []exporter.Item
	for _, id := range []string{"a", "b", "", "c"} {
		it := item()
		it.ID, it.Identifier = "item-"+id, id
		items = append(items, it)
	}
	outcomes := deliver(t, open(t, h, testMode()), items...)
	var kinds []exporter.OutcomeKind
	for _, o := range outcomes {
		kinds = append(kinds, o.Kind)
	}
	want := []exporter.OutcomeKind{exporter.Accepted, exporter.Retry, exporter.Retry, exporter.Accepted}
	if d := cmp.Diff(want, kinds); d != "" {
		t.Error(d)
	}
	if len(h.batches) != 1 || len(h.batches[0]) != 3 {
		t.Errorf("batches: %v", h.batches)
	}
	if deliver(t, open(t, h, testMode())); len(h.batches) != 1 {
		t.Error("an empty delivery asked the host")
	}
}

// What must not be sent is not, and is not settled either (Q9: only the
// provider's answer rejects).
func TestUnsendable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   string
		change func(*exporter.Item)
	}{
		"other mode":           {stripe.CodeModeNotServed, func(it *exporter.Item) { it.Mode = "live" }},
		"other account":        {stripe.CodeAccountNotServed, func(it *exporter.Item) { it.Account = "acct_2" }},
		"no event name":        {stripe.CodeMappingIncomplete, func(it *exporter.Item) { it.Mapping = nil }},
		"one key for both":     {stripe.CodeMappingIncomplete, func(it *exporter.Item) { it.Mapping["customer_key"] = "value" }},
		"no customer":          {stripe.CodeCustomerMissing, func(it *exporter.Item) { it.Customer = "" }},
		"no identifier":        {stripe.CodeIdentifierInvalid, func(it *exporter.Item) { it.Identifier = "" }},
		"identifier of 101":    {stripe.CodeIdentifierInvalid, func(it *exporter.Item) { it.Identifier = strings.Repeat("x", 101) }},
		"exponent":             {stripe.CodeValueInvalid, func(it *exporter.Item) { it.Value = "1e6" }},
		"plus":                 {stripe.CodeValueInvalid, func(it *exporter.Item) { it.Value = "+1" }},
		"no value":             {stripe.CodeValueInvalid, func(it *exporter.Item) { it.Value = "" }},
		"no digits":            {stripe.CodeValueInvalid, func(it *exporter.Item) { it.Value = "-" }},
		"no fraction":          {stripe.CodeValueInvalid, func(it *exporter.Item) { it.Value = "1." }},
		"zero":                 {stripe.CodeValueInvalid, func(it *exporter.Item) { it.Value = "0.00" }},
		"16 digits":            {stripe.CodeValueInvalid, func(it *exporter.Item) { it.Value = "1234567890.123456" }},
		"13 decimals":          {stripe.CodeValueInvalid, func(it *exporter.Item) { it.Value = "0.0000000000001" }},
		"digits of a language": {stripe.CodeValueInvalid, func(it *exporter.Item) { it.Value = "١" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &host{answer: answer(200, `{"identifier":"fencepost_1"}`)}
			it := item()
			c.change(&it)
			o := deliver(t, open(t, h, testMode()), it)[0]
			if o.Kind != exporter.Retry || o.Code != c.code || len(h.batches) != 0 {
				t.Errorf("got %+v, %d batches", o, len(h.batches))
			}
		})
	}
	h := &host{answer: answer(200, `{}`)}
	if o := deliver(t, open(t, h, connected()), item())[0]; o.Code != stripe.CodeAccountNotServed || len(h.batches) != 0 {
		t.Errorf("connected without an account: %+v", o)
	}
}

func TestConfigure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		field string
		c     exporter.Configuration
	}{
		"ok":                   {"", testMode()},
		"ok live":              {"", exporter.Configuration{Mode: "live", Settings: json.RawMessage(`{"connected":false}`)}},
		"ok connected":         {"", connected()},
		"no mode":              {"mode", exporter.Configuration{}},
		"http":                 {"base_url", exporter.Configuration{Mode: "test", BaseURL: "http://api.stripe.com"}},
		"user":                 {"base_url", exporter.Configuration{Mode: "test", BaseURL: "https://u:p@api.stripe.com"}},
		"query":                {"base_url", exporter.Configuration{Mode: "test", BaseURL: "https://api.stripe.com?x=1"}},
		"no host":              {"base_url", exporter.Configuration{Mode: "test", BaseURL: "https:///v1"}},
		"no address":           {"base_url", exporter.Configuration{Mode: "test", BaseURL: "https://[::1"}},
		"unknown setting":      {"settings", exporter.Configuration{Mode: "test", Settings: json.RawMessage(`{"conn":true}`)}},
		"setting of a type":    {"settings", exporter.Configuration{Mode: "test", Settings: json.RawMessage(`{"connected":"yes"}`)}},
		"settings no JSON":     {"settings", exporter.Configuration{Mode: "test", Settings: json.RawMessage(`{`)}},
		"settings twice":       {"settings", exporter.Configuration{Mode: "test", Settings: json.RawMessage(`{}{}`)}},
		"connected to nothing": {"account", exporter.Configuration{Mode: "test", Settings: json.RawMessage(`{"connected":true}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := stripe.New(capability.Host{HTTP: &host{}}).Configure(t.Context(), c.c)
			var e *sdk.Error
			switch {
			case c.field == "":
				if err != nil {
					t.Error(err)
				}
			case !errors.As(err, &e) || e.Tag != sdk.TagInvalid || e.Field != c.field:
				t.Errorf("got %v, want field %s", err, c.field)
			case strings.Contains(err.Error(), "u:p"):
				t.Errorf("the error echoes the value: %v", err)
			}
		})
	}
	if err := stripe.New(capability.Host{}).Configure(t.Context(), testMode()); !errors.Is(err, sdk.ErrUnsupported) {
		t.Errorf("without http: %v", err)
	}
	if _, err := stripe.New(capability.Host{HTTP: &host{}}).Deliver(t.Context(), exporter.Delivery{}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("deliver before configure: %v", err)
	}
}
