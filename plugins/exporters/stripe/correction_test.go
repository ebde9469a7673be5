package stripe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

func correction(method exporter.CorrectionMode) exporter.Item {
	it := item()
	it.ID, it.Identifier, it.Kind, it.Value, it.Attempt = "item-2", "fencepost_2", "correction", "-12.5", 4
	it.Corrects = &exporter.Corrects{Method: method, Identifier: "fencepost_1", Value: "12.5"}
	return it
}

// Q19: a cancellation names the original, a negative event itself.
func TestCorrectionRequests(t *testing.T) {
	t.Parallel()
	for method, want := range map[exporter.CorrectionMode]struct{ url, body string }{
		exporter.CorrectCancel: {
			"https://api.stripe.com/v1/billing/meter_event_adjustments",
			"cancel[identifier]=fencepost_1&event_name=llm_tokens&type=cancel",
		},
		exporter.CorrectNegative: {
			"https://api.stripe.com/v1/billing/meter_events",
			"event_name=llm_tokens&identifier=fencepost_2&payload[stripe_customer_id]=cus_1&payload[value]=-12.5&timestamp=1796040000",
		},
	} {
		h := &host{answer: answer(500, "")}
		deliver(t, open(t, h, testMode()), correction(method))
		r := h.batches[0][0]
		if r.URL != want.url || string(r.Body) != want.body || cmp.Diff([]string{"item-2"}, r.Items) != "" {
			t.Errorf("%s: %s %s %v", method, r.URL, r.Body, r.Items)
		}
		// The header's key is of this item and attempt, whatever it cancels.
		if !slicesContain(r.Headers, "Idempotency-Key", "fencepost_2-4") {
			t.Errorf("%s: headers %v", method, r.Headers)
		}
	}
}

func slicesContain(headers []capability.Header, name, value string) bool {
	for _, h := range headers {
		if h.Name == name && h.Value == value {
			return true
		}
	}
	return false
}

// Q9, Q19: what answers to a cancellation mean. Nothing but an answer about the
// original settles it.
func TestCancelAnswers(t *testing.T) {
	t.Parallel()
	const good = `{"object":"billing.meter_event_adjustment","cancel":{"identifier":"fencepost_1"},"event_name":"llm_tokens","livemode":false,"status":"pending","type":"cancel"}`
	for name, c := range map[string]struct {
		answer func(capability.Request) capability.Response
		want   exporter.ItemOutcome
	}{
		"taken":           {answer(200, good), exporter.ItemOutcome{Kind: exporter.Accepted, ProviderRef: "fencepost_1"}},
		"complete":        {answer(200, `{"cancel":{"identifier":"fencepost_1"},"status":"complete","type":"cancel"}`), exporter.ItemOutcome{Kind: exporter.Accepted, ProviderRef: "fencepost_1"}},
		"of another":      {answer(200, `{"cancel":{"identifier":"fencepost_2"},"type":"cancel"}`), exporter.ItemOutcome{Kind: exporter.Retry, Code: stripe.CodeForeignAnswer}},
		"an event":        {answer(200, `{"identifier":"fencepost_1"}`), exporter.ItemOutcome{Kind: exporter.Retry, Code: stripe.CodeForeignAnswer}},
		"of another kind": {answer(200, `{"cancel":{"identifier":"fencepost_1"},"type":"range"}`), exporter.ItemOutcome{Kind: exporter.Retry, Code: stripe.CodeForeignAnswer}},
		"empty":           {answer(200, ""), exporter.ItemOutcome{Kind: exporter.Retry, Code: stripe.CodeUnreadableAnswer}},
		"live":            {answer(200, `{"cancel":{"identifier":"fencepost_1"},"type":"cancel","livemode":true}`), exporter.ItemOutcome{Kind: exporter.Uncertain, Code: stripe.CodeModeMismatch}},
		"repeated": {
			answer(400, refusal("", "The meter event with identifier fencepost_1 has already been canceled.")),
			exporter.ItemOutcome{Kind: exporter.AcceptedEarlier, Code: "already_cancelled", ProviderRef: "fencepost_1"},
		},
		"repeated of another": {
			answer(400, refusal("", "The meter event with identifier fencepost_10 has already been canceled.")),
			exporter.ItemOutcome{Kind: exporter.Retry, Code: stripe.CodeUnknownRefusal},
		},
		"unknown": {answer(400, refusal("resource_missing", "No such meter event: 'fencepost_1'")), exporter.ItemOutcome{Kind: exporter.Rejected, Code: "resource_missing", Mendable: true}},
		"late":    {answer(400, refusal("", "You can only cancel events within 24 hours of Stripe receiving them.")), exporter.ItemOutcome{Kind: exporter.Rejected, Code: stripe.CodeRefused, Mendable: true}},
		"500":     {answer(500, ""), exporter.ItemOutcome{Kind: exporter.Retry, Code: "http_500"}},
		"lost":    {failure(capability.FailureUnknown, "reset"), exporter.ItemOutcome{Kind: exporter.Retry, Code: stripe.CodeNoAnswer}},
	} {
		got := deliver(t, open(t, &host{answer: c.answer}, testMode()), correction(exporter.CorrectCancel))[0]
		c.want.ItemID, got.Message = "item-2", ""
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// An answer that the host recognises by itself is the one that the exporter
// means: a repeated cancellation is a duplicate, what cannot be cancelled waits
// for a person.
func TestCancelPatterns(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]exporter.AnswerClass{
		refusal("", "The meter event with identifier fencepost_1 has already been canceled."): exporter.AnswerDuplicate,
		refusal("", "You can only cancel events within 24 hours of Stripe receiving them."):   exporter.AnswerMendable,
		refusal("", "No such meter event: 'fencepost_1'"):                                     exporter.AnswerMendable,
		refusal("", "The meter event with identifier fencepost_9 has already been canceled."): "",
	} {
		if got := match(t, 400, body, "fencepost_1"); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

// A correction that says not how it is to be told is not sent.
func TestUnsendableCorrections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code string
		item exporter.Item
	}{
		"no method":   {stripe.CodeMethodUnknown, correction("")},
		"a total":     {stripe.CodeMethodUnknown, correction(exporter.CorrectTotal)},
		"no original": {stripe.CodeIdentifierInvalid, func() exporter.Item { it := correction(exporter.CorrectCancel); it.Corrects.Identifier = ""; return it }()},
	} {
		h := &host{answer: answer(200, `{}`)}
		if o := deliver(t, open(t, h, testMode()), c.item)[0]; o.Kind != exporter.Retry || o.Code != c.code || len(h.batches) != 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
