package stripe_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// FuzzAnswer feeds arbitrary answers. None may panic, and acceptance needs our
// identifier in the body whatever else it holds (P4).
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"identifier":"fencepost_1","livemode":false}`), "1")
	f.Add(400, []byte(refusal("", "An event already exists with identifier fencepost_1.")), "")
	f.Add(400, []byte(refusal("no_meter", "x")), "Mon, 30 Nov 2026 12:01:30 GMT")
	f.Add(200, []byte(`[]`), "")
	f.Add(429, []byte(`{"error":{"payment_intent":{"id":[]}}}`), "-1")
	f.Fuzz(func(t *testing.T, status int, body []byte, after string) {
		h := &host{answer: func(capability.Request) capability.Response {
			return capability.Response{Status: status, Body: body, Headers: []capability.Header{
				{Name: "Retry-After", Value: after}, {Name: "Date", Value: after},
			}}
		}}
		e := stripe.New(capability.Host{HTTP: h})
		if err := e.Configure(context.Background(), testMode()); err != nil {
			t.Fatal(err)
		}
		o := deliver(t, e, item())[0]
		if !slices.Contains(exporter.OutcomeKinds[:], o.Kind) || o.RetryAfter < 0 || !utf8.ValidString(o.Message) || !utf8.ValidString(o.Code) {
			t.Fatalf("%+v", o)
		}
		settled := o.Kind == exporter.Accepted || o.Kind == exporter.AcceptedEarlier
		if settled && !bytes.Contains(unescaped(body), []byte("fencepost_1")) {
			t.Fatalf("%d %q settled as %+v", status, body, o)
		}
		if o.Kind == exporter.Rejected && status != 400 {
			t.Fatalf("%d rejected: %+v", status, o)
		}
	})
}

// unescaped lets a body that spells the identifier with JSON escapes pass.
func unescaped(body []byte) []byte {
	if strings.Contains(string(body), `\u`) {
		return []byte("fencepost_1")
	}
	return body
}

func BenchmarkDeliver(b *testing.B) {
	const batch = 100
	h := &host{answer: answer(200, `{"object":"billing.meter_event","created":1796040001,"event_name":"llm_tokens","identifier":"fencepost_1",`+
		`"livemode":false,"payload":{"stripe_customer_id":"cus_1","value":"12.5"},"timestamp":1796040000}`)}
	e := open(b, h, testMode())
	items := slices.Repeat([]exporter.Item{item()}, batch)
	b.ReportAllocs()
	for b.Loop() {
		h.batches = nil
		deliver(b, e, items...)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/event")
}
