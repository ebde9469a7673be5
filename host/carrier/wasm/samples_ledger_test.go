package wasm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// ledger opens the second sample of a language, with a file that answers so.
func ledger(t *testing.T, language string, answer func([]capability.Record) ([]capability.Appended, error)) *Module {
	t.Helper()
	m, err := Open(t.Context(), Config{
		Name: "ledger", Version: "1.0.0", Module: built(t, "ledger", language), Declared: []capability.Name{capability.AppendName},
		Granted: []capability.Name{capability.AppendName}, Limits: Limits{MaxInstances: 1},
		Host: Host{AppendSend: func(_ context.Context, batch []byte) ([]byte, error) {
			records, err := wirev1.DecodeRecords(batch)
			if err != nil {
				return nil, err
			}
			out, err := answer(records)
			return wirev1.EncodeAppended(out, err), nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

// Issue 5, point 6: read-back, messages of the provider and the append capability
// in every language's SDK.
func TestSamplesOfTheRest(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"c", "rust", "assemblyscript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			var got []capability.Record
			m := ledger(t, language, func(records []capability.Record) ([]capability.Appended, error) {
				got = records
				switch len(records) {
				case 1:
					return nil, sdk.Invalid("records", "not now")
				case 2:
					return []capability.Appended{{Sequence: 1}}, nil // one is lost
				}
				return []capability.Appended{{Sequence: 8}, {Earlier: true, Sequence: 3}, {Failure: capability.FailureUnknown, Reason: "disk"}}, nil
			})
			call := func(method wirev1.Method, request []byte) []byte {
				t.Helper()
				answer, err := m.Call(t.Context(), uint32(method), request)
				if err != nil {
					t.Fatalf("%s: %v", method, err)
				}
				return answer
			}
			ledgerDescribes(t, call(wirev1.MethodDescribe, nil))
			items := []exporter.Item{{ID: "1", Identifier: "id_1", Attempt: 1, Value: "1.5"}, {ID: "2", Identifier: "id_2", Attempt: 2, Value: "2"}, {ID: "3", Identifier: "id_3", Attempt: 1, Value: "3"}}
			deliver := func(n int) []exporter.ItemOutcome {
				t.Helper()
				out, err := wirev1.DecodeOutcomes(call(wirev1.MethodDeliver, wirev1.EncodeDelivery(exporter.Delivery{Items: items[:n]})))
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			outcomes := []exporter.ItemOutcome{
				{ItemID: "1", Kind: exporter.Accepted, ProviderRef: "8"},
				{ItemID: "2", Kind: exporter.AcceptedEarlier, ProviderRef: "3"},
				{ItemID: "3", Kind: exporter.Retry, ProviderRef: "0", Code: "disk"},
			}
			if d := cmp.Diff(outcomes, deliver(3)); d != "" {
				t.Error(d)
			}
			records := []capability.Record{
				{Item: "1", Identifier: "id_1", JSON: []byte(`{"value":"1.5"}`)},
				{Item: "2", Identifier: "id_2", Again: true, JSON: []byte(`{"value":"2"}`)},
				{Item: "3", Identifier: "id_3", JSON: []byte(`{"value":"3"}`)},
			}
			if d := cmp.Diff(records, got); d != "" {
				t.Error(d)
			}
			// A refused batch wrote nothing; where answers are lost nobody knows.
			if o := deliver(1)[0]; o.Kind != exporter.Retry || o.Code != "batch_refused" {
				t.Errorf("refused: %+v", o)
			}
			for _, o := range deliver(2) {
				if o.Kind != exporter.Retry || o.Code != "answers_lost" {
					t.Errorf("lost: %+v", o)
				}
			}
			ledgerReadsBack(t, m, call)
		})
	}
}

func ledgerDescribes(t *testing.T, answer []byte) {
	t.Helper()
	d, err := wirev1.DecodeManifest(answer)
	if err != nil {
		t.Fatal(err)
	}
	want := exporter.Manifest{
		Name: "ledger", Version: "1.0.0", IdentifierMaxLength: 64, MaxBatch: 100, Corrections: d.Corrections, Every: time.Hour,
		Capabilities: []capability.Name{capability.AppendName},
		ReadBack:     exporter.ReadBack{Sums: true, Lag: time.Minute, Granularity: time.Hour, Evidence: []string{"sum_present"}},
		Webhook:      &exporter.WebhookSignature{Scheme: "t=,v1=", Header: "Ledger-Signature", Secret: "webhook_secret", Tolerance: 5 * time.Minute},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
}

func ledgerReadsBack(t *testing.T, m *Module, call func(wirev1.Method, []byte) []byte) {
	t.Helper()
	from := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	sums, err := wirev1.DecodeProbeAnswers(call(wirev1.MethodProbe, wirev1.EncodeProbe(exporter.Probe{Questions: []exporter.ProbeQuestion{
		{Customer: "cus_1", Feature: "tokens", Mapping: map[string]string{"a": "x", "meter": "llm €"}, From: from, To: from.Add(2 * time.Hour)},
		{Feature: "calls", From: from, To: from},
	}})), 2)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]exporter.ProbeAnswer{{Sum: new("7200"), Meter: "llm €", Message: "cus_1"}, {Code: "nobody", Message: "calls"}}, sums); d != "" {
		t.Error(d)
	}
	says, err := wirev1.DecodeWebhookAnswer(call(wirev1.MethodWebhook, wirev1.EncodeWebhook(exporter.Webhook{Body: []byte("id_1"), ReceivedAt: from})))
	if err != nil {
		t.Fatal(err)
	}
	want := exporter.WebhookAnswer{
		ID: "message", Counted: 7, Code: "1796040000",
		Evidence: []exporter.Evidence{{Identifier: "id_1", Refused: true, Code: "late", Message: "no such customer"}, {Identifier: "other"}},
	}
	if d := cmp.Diff(want, says); d != "" {
		t.Error(d)
	}
	for method, code := range map[wirev1.Method]string{wirev1.MethodProbe: "malformed_message", wirev1.MethodWebhook: "malformed_message", 99: "unknown_method"} {
		_, err := m.Call(t.Context(), uint32(method), []byte{0x0a, 0xff})
		refused, ok := errors.AsType[*carrier.PluginError](err)
		if !ok {
			t.Fatalf("%s: %v", method, err)
		}
		if e, err := wirev1.DecodeError(refused.Payload); err != nil || e.Code != code {
			t.Errorf("%s: %v %v", method, e, err)
		}
	}
	_, err = m.Call(t.Context(), uint32(wirev1.MethodWebhook), wirev1.EncodeWebhook(exporter.Webhook{}))
	if refused, ok := errors.AsType[*carrier.PluginError](err); !ok {
		t.Errorf("an empty message: %v", err)
	} else if e, err := wirev1.DecodeError(refused.Payload); err != nil || e.Field != "body" {
		t.Errorf("an empty message: %v %v", e, err)
	}
}
