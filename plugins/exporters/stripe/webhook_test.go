package stripe_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

func receive(e exporter.Exporter, body string) (exporter.WebhookAnswer, error) {
	receiver, ok := e.(exporter.WebhookReceiver)
	if !ok {
		return exporter.WebhookAnswer{}, errors.New("no receiver")
	}
	return receiver.Webhook(context.Background(), exporter.Webhook{Body: []byte(body)})
}

// fullReport is of the shape in Stripe's reference, with names of our own.
const fullReport = `{"id":"evt_test_1","object":"v2.core.event","context":null,"created":"2026-11-30T12:00:00.000Z",` +
	`"data":{"developer_message_summary":"There are 7 invalid events","reason":{"error_count":7,"error_types":[` +
	`{"code":"duplicate_meter_event","error_count":1,"sample_errors":[{"error_message":"again","request":{"identifier":"fencepost_4"}},{"error_message":"again","request":{"identifier":"fencepost_1"}}]},` +
	`{"code":"meter_event_no_customer_defined","error_count":6,"sample_errors":[` +
	`{"error_message":"no key","request":{"identifier":"fencepost_1"}},{"error_message":"no key","request":{"identifier":"fencepost_2"}},` +
	`{"error_message":"no key","request":{"identifier":"fencepost_2"}},{"error_message":"made up","request":{}}]}]},` +
	`"validation_end":"2026-11-30T12:00:00.000Z","validation_start":"2026-11-30T11:59:50.000Z"},"livemode":false,"reason":null,` +
	`"related_object":{"id":"mtr_1","type":"billing.meter","url":"/v1/billing/meters/mtr_1"},"type":"v1.billing.meter.error_report_triggered"}`

var fullAnswer = exporter.WebhookAnswer{
	ID: "evt_test_1", Code: "v1.billing.meter.error_report_triggered", Counted: 7,
	Evidence: []exporter.Evidence{
		{Identifier: "fencepost_4", Code: "duplicate_meter_event", Message: "again"},
		{Identifier: "fencepost_1", Refused: true, Code: "meter_event_no_customer_defined", Message: "no key"},
		{Identifier: "fencepost_2", Refused: true, Code: "meter_event_no_customer_defined", Message: "no key"},
	},
}

func thinReport() string {
	head, rest, _ := strings.Cut(fullReport, `"data":`)
	_, tail, _ := strings.Cut(rest, `"livemode"`)
	return head + `"livemode"` + tail
}

// O12, D2: samples are evidence, a repetition is none against the event, and
// the same message says the same again.
func TestWebhook(t *testing.T) {
	t.Parallel()
	h := &host{answer: answer(200, fullReport)}
	e := open(t, h, testMode())
	for range 2 {
		got, err := receive(e, fullReport)
		if d := cmp.Diff(fullAnswer, got); err != nil || d != "" {
			t.Errorf("%v\n%s", err, d)
		}
	}
	if len(h.batches) != 0 {
		t.Error("a whole message was fetched again")
	}
	// A thin one is fetched.
	got, err := receive(e, thinReport())
	if d := cmp.Diff(fullAnswer, got); err != nil || d != "" {
		t.Errorf("thin: %v\n%s", err, d)
	}
	r := h.batches[0][0]
	if r.Method != http.MethodGet || r.URL != "https://api.stripe.com/v2/core/events/evt_test_1" || len(r.Items) != 0 ||
		!slicesContain(r.Headers, "Stripe-Version", "2025-01-27.acacia") {
		t.Errorf("request %+v", r)
	}
	noMeter := strings.Replace(fullReport, "error_report_triggered", "no_meter_found", 1)
	if got, err := receive(e, noMeter); err != nil || len(got.Evidence) != 3 || got.Code != "v1.billing.meter.no_meter_found" {
		t.Errorf("no meter: %+v, %v", got, err)
	}
}

// What it does not know is no evidence; what it cannot read has to come again.
func TestWebhookOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   string
		answer func(capability.Request) capability.Response
		want   exporter.WebhookAnswer
		err    error
	}{
		"another type":       {`{"id":"evt_1","type":"v1.billing.meter.other"}`, nil, exporter.WebhookAnswer{ID: "evt_1", Code: "v1.billing.meter.other"}, nil},
		"of live mode":       {strings.Replace(fullReport, `"livemode":false`, `"livemode":true`, 1), nil, exporter.WebhookAnswer{ID: "evt_test_1", Code: stripe.CodeModeMismatch}, nil},
		"no JSON":            {"x", nil, exporter.WebhookAnswer{}, sdk.ErrInvalid},
		"no id":              {"{}", nil, exporter.WebhookAnswer{}, sdk.ErrInvalid},
		"id with a path":     {strings.Replace(thinReport(), "evt_test_1", "../../v1/refunds", 1), nil, exporter.WebhookAnswer{}, sdk.ErrInvalid},
		"fetch fails":        {thinReport(), answer(500, ""), exporter.WebhookAnswer{}, sdk.ErrUnavailable},
		"fetch of another":   {thinReport(), answer(200, strings.Replace(fullReport, "evt_test_1", "evt_test_2", 1)), exporter.WebhookAnswer{}, sdk.ErrUnavailable},
		"fetch without data": {thinReport(), answer(200, thinReport()), exporter.WebhookAnswer{}, sdk.ErrUnavailable},
		"fetch lost":         {thinReport(), failure(capability.FailureUnknown, "reset"), exporter.WebhookAnswer{}, sdk.ErrUnavailable},
	} {
		got, err := receive(open(t, &host{answer: c.answer}, testMode()), c.body)
		if d := cmp.Diff(c.want, got); d != "" || !errors.Is(err, c.err) {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
	if _, err := receive(stripe.New(capability.Host{}), fullReport); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("before Configure: %v", err)
	}
}

// O12: what is said of another account is no evidence about ours, whole or thin;
// nothing can be counted below zero.
func TestWebhookOfAnotherAccount(t *testing.T) {
	t.Parallel()
	about := func(body, who string) string { return strings.Replace(body, `"context":null`, who, 1) }
	ignored := exporter.WebhookAnswer{ID: "evt_test_1", Code: stripe.CodeAccountMismatch}
	for name, c := range map[string]struct {
		body, fetched, own string
		want               exporter.WebhookAnswer
		err                error
	}{
		"ours":                      {body: about(fullReport, `"context":"acct_1"`), want: fullAnswer},
		"ours, in an organisation":  {body: about(fullReport, `"context":"org_1/acct_1"`), want: fullAnswer},
		"another":                   {body: about(fullReport, `"context":"acct_2"`), want: ignored},
		"another of the same":       {body: about(fullReport, `"context":"org_1/acct_2"`), want: ignored},
		"another, as API v1 has it": {body: about(fullReport, `"context":null,"account":"acct_2"`), want: ignored},
		"another, thin":             {body: about(thinReport(), `"context":"acct_2"`), fetched: fullReport, want: ignored},
		"another, when fetched":     {body: thinReport(), fetched: about(fullReport, `"context":"acct_2"`), want: ignored},
		"only a name of ours":       {body: about(fullReport, `"context":"acct_2"`), own: "main", want: fullAnswer},
		"counts below zero":         {body: strings.Replace(fullReport, `"error_count":7`, `"error_count":-5`, 1), err: sdk.ErrInvalid},
		"a type below zero":         {body: strings.Replace(fullReport, `"error_count":6`, `"error_count":-6`, 1), err: sdk.ErrInvalid},
		"fetched, below zero":       {body: thinReport(), fetched: strings.Replace(fullReport, `"error_count":7`, `"error_count":-5`, 1), err: sdk.ErrInvalid},
		"context is no text":        {body: about(fullReport, `"context":{}`), err: sdk.ErrInvalid},
	} {
		cfg := testMode()
		cfg.Account = "acct_1"
		if c.own != "" {
			cfg.Account = c.own
		}
		got, err := receive(open(t, &host{answer: answer(200, c.fetched)}, cfg), c.body)
		if d := cmp.Diff(c.want, got); d != "" || !errors.Is(err, c.err) {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
}

// FuzzWebhook: whatever comes, no panic, and no evidence without an identifier.
func FuzzWebhook(f *testing.F) {
	f.Add(fullReport)
	f.Add(thinReport())
	f.Fuzz(func(t *testing.T, body string) {
		got, err := receive(open(t, &host{answer: answer(200, fullReport)}, testMode()), body)
		for _, e := range got.Evidence {
			if e.Identifier == "" || err != nil {
				t.Fatalf("%q: %+v, %v", body, got, err)
			}
		}
	})
}
