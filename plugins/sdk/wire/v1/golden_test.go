package wirev1_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// vector reads testdata/NAME.hex, which protoc encoded from NAME.txt
// (scripts/generate-wire-vectors.sh).
func vector(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// golden is one vector and the value that it stands for.
type golden struct {
	name   string
	value  any
	encode func() []byte
	decode func([]byte) (any, error)
}

func goldens() []golden {
	manifest, configuration, delivery := goldenManifest(), goldenConfiguration(), goldenDelivery()
	outcomes, requests, responses := goldenOutcomes(), goldenRequests(), goldenResponses()
	probe, sums, webhook, evidence := goldenProbe(), goldenSums(), goldenWebhook(), goldenEvidence()
	records, appended := goldenRecords(), goldenAppended()
	return []golden{
		{
			"DescribeAnswer", manifest,
			func() []byte { return wirev1.EncodeManifest(manifest) },
			func(b []byte) (any, error) { return wirev1.DecodeManifest(b) },
		},
		{
			"ConfigureRequest", configuration,
			func() []byte { return wirev1.EncodeConfiguration(configuration) },
			func(b []byte) (any, error) { return wirev1.DecodeConfiguration(b) },
		},
		{
			"DeliverRequest", delivery,
			func() []byte { return wirev1.EncodeDelivery(delivery) },
			func(b []byte) (any, error) { return wirev1.DecodeDelivery(b) },
		},
		{
			"DeliverAnswer", outcomes,
			func() []byte { return wirev1.EncodeOutcomes(outcomes) },
			func(b []byte) (any, error) { return wirev1.DecodeOutcomes(b) },
		},
		{
			"HttpBatch", requests,
			func() []byte { return wirev1.EncodeRequests(requests) },
			func(b []byte) (any, error) { return wirev1.DecodeRequests(b) },
		},
		{
			"HttpAnswers", responses,
			func() []byte { return wirev1.EncodeResponses(responses, nil) },
			func(b []byte) (any, error) { return wirev1.DecodeResponses(b, len(responses)) },
		},
		{
			"AppendBatch", records,
			func() []byte { return wirev1.EncodeRecords(records) },
			func(b []byte) (any, error) { return wirev1.DecodeRecords(b) },
		},
		{
			"AppendAnswers", appended,
			func() []byte { return wirev1.EncodeAppended(appended, nil) },
			func(b []byte) (any, error) { return wirev1.DecodeAppended(b, len(appended)) },
		},
		{
			"ProbeRequest", probe,
			func() []byte { return wirev1.EncodeProbe(probe) },
			func(b []byte) (any, error) { return wirev1.DecodeProbe(b) },
		},
		{
			"ProbeAnswer", sums,
			func() []byte { return wirev1.EncodeProbeAnswers(sums) },
			func(b []byte) (any, error) { return wirev1.DecodeProbeAnswers(b, len(sums)) },
		},
		{
			"WebhookRequest", webhook,
			func() []byte { return wirev1.EncodeWebhook(webhook) },
			func(b []byte) (any, error) { return wirev1.DecodeWebhook(b) },
		},
		{
			"WebhookAnswer", evidence,
			func() []byte { return wirev1.EncodeWebhookAnswer(evidence) },
			func(b []byte) (any, error) { return wirev1.DecodeWebhookAnswer(b) },
		},
	}
}

func goldenRecords() []capability.Record {
	return []capability.Record{
		{Item: "item-1", Identifier: "fencepost_abc", Again: true, JSON: []byte(`{"identifier":"fencepost_abc"}`)},
		{Item: "item-2", Identifier: "i"},
	}
}

func goldenAppended() []capability.Appended {
	return []capability.Appended{
		{Sequence: 1}, {Earlier: true, Sequence: 300}, {Failure: capability.FailureNotSent, Reason: "disk_full"}, {Failure: capability.FailureUnknown, Reason: "io_error"},
	}
}

func goldenProbe() exporter.Probe {
	return exporter.Probe{
		Questions: []exporter.ProbeQuestion{
			{
				Customer: "cus_1", Feature: "tokens", Mapping: map[string]string{"value_key": "n", "event_name": "llm_tokens"},
				From: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
			},
			{Customer: "cus_2"},
		},
		Deadline: time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC),
	}
}

func goldenSums() []exporter.ProbeAnswer {
	return []exporter.ProbeAnswer{
		{Sum: new("12345678901234567890.5"), Meter: "mtr_1"}, {Code: "no_meter", Message: "später"}, {Sum: new("0")},
	}
}

func goldenWebhook() exporter.Webhook {
	return exporter.Webhook{
		Body: []byte("{\"id\":\"evt_1\",\xff}"), ReceivedAt: time.Date(2026, 11, 30, 12, 0, 0, 1000, time.UTC),
	}
}

func goldenEvidence() exporter.WebhookAnswer {
	return exporter.WebhookAnswer{
		ID: "evt_1", Counted: 12, Code: "v1.billing.meter.error_report_triggered",
		Evidence: []exporter.Evidence{
			{Identifier: "fencepost_abc", Refused: true, Code: "no_meter", Message: "n"}, {Identifier: "x"},
		},
	}
}

func goldenManifest() exporter.Manifest {
	return exporter.Manifest{
		Name: "acme", Version: "2.1.0", IdentifierMaxLength: 64,
		IdentifierHorizon: 23 * time.Hour, WindowPast: 34 * 24 * time.Hour, WindowFuture: 5 * time.Minute,
		Values:   exporter.ValueDomain{SignificantDigits: 15, MaxDecimals: -1, Negative: true, Zero: true},
		MaxBatch: 200, Rate: 25, Concurrency: 16,
		SerialBy: []string{"customer", "event_name"}, Corrections: exporter.CorrectTotal,
		Capabilities: []capability.Name{"http", "log"}, Hosts: []string{"api.acme.example"},
		Secrets: []exporter.Secret{{
			Name: "key", Header: "Authorization", Prefix: "Bearer ",
			TestPrefixes: []string{"t_", "rt_"}, LivePrefixes: []string{"l_"},
		}, {Name: "aws", Scheme: exporter.SecretAWS}, {Name: "hook", Scheme: exporter.SecretWebhook}},
		MappingKeys: []string{"event_name"}, NeedsAccount: true,
		Answers: []exporter.AnswerPattern{
			{Class: exporter.AnswerDuplicate, Status: 400, Path: "/error/message", Contains: "exists {identifier}"},
			{Class: exporter.AnswerRefused, Status: 422, Path: "/error/code", Equals: []string{"a", "b"}},
			{Class: exporter.AnswerMendable, Status: 404, Path: "/c", Equals: []string{"no_meter"}},
			{Class: exporter.AnswerAccepted, Status: 200, In: "/Results", Path: "/Status", Equals: []string{"Success"}},
			{Class: exporter.AnswerAgain, Status: 200, In: "/Left"},
		},
		Records: &exporter.Records{
			Path:    "/UsageRecords",
			Key:     []exporter.RecordKey{{Field: "customer", Path: "/Customer"}, {Field: "mapping.dimension", Path: "/Dimension"}},
			Answers: []exporter.RecordAnswers{{Path: "/Results", Record: "/UsageRecord"}, {Path: "/Left"}},
		},
		Every:        time.Hour,
		CancelWithin: 23 * time.Hour,
		ReadBack: exporter.ReadBack{
			Sums: true, Lag: time.Hour, Granularity: time.Minute, Evidence: []string{"sum_present", "error_report"},
		},
		Webhook: &exporter.WebhookSignature{
			Scheme: "t=,v1=", Header: "Acme-Signature", Secret: "hook", Tolerance: 5 * time.Minute,
		},
	}
}

func goldenConfiguration() exporter.Configuration {
	return exporter.Configuration{
		Name: "billing", Account: "acct_1", Mode: "live", BaseURL: "https://127.0.0.1:9999",
		Settings: json.RawMessage(`{"connected":true}`),
	}
}

func goldenDelivery() exporter.Delivery {
	return exporter.Delivery{
		Items: []exporter.Item{
			{
				ID: "item-1", Identifier: "fencepost_abc", Attempt: 3, Kind: "event",
				Account: "acct_1", Mode: "test", Customer: "cus_1", Feature: "tokens",
				Value:       "-12345678901234567890123456.000000000001",
				Timestamp:   time.Date(2026, 11, 30, 12, 0, 0, 1000, time.UTC),
				PeriodStart: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
				PeriodEnd:   time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
				Mapping:     map[string]string{"value_key": "n", "event_name": "llm_tokens"},
			},
			{
				ID: "item-2", Identifier: "i", Attempt: 1, Kind: "usage_window", Value: "0.5",
				Timestamp: time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
				Corrects:  &exporter.Corrects{Method: exporter.CorrectCancel, Identifier: "o", Value: "7"},
			},
		},
		Deadline: time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC),
	}
}

func goldenOutcomes() []exporter.ItemOutcome {
	return []exporter.ItemOutcome{
		{ItemID: "1", Kind: exporter.Accepted, ProviderRef: "ref"},
		{ItemID: "2", Kind: exporter.AcceptedEarlier},
		{ItemID: "3", Kind: exporter.Retry, RetryAfter: 1500 * time.Millisecond, Code: "http_500", Message: "später"},
		{ItemID: "4", Kind: exporter.RateLimited, RetryAfter: 24 * time.Hour},
		{ItemID: "5", Kind: exporter.Rejected, Code: "no_meter", Mendable: true},
		{ItemID: "6", Kind: exporter.Conflict},
		{ItemID: "7", Kind: exporter.Uncertain},
	}
}

func goldenRequests() []capability.Request {
	return []capability.Request{
		{
			Method: "POST", URL: "https://api.acme.example/v1/events",
			Headers: []capability.Header{
				{Name: "Idempotency-Key", Value: "abc-1"}, {Name: "X-Twice", Value: "a"}, {Name: "X-Twice", Value: "b"},
			},
			Body: []byte("a=\x00\xff&b=1"), Items: []string{"item-1", "item-2"}, Secrets: []string{"key"},
			SigningScope: "us-east-1/aws-marketplace",
		},
		{Method: "GET", URL: "https://api.acme.example/v1/meters"},
	}
}

func goldenResponses() []capability.Response {
	return []capability.Response{
		{Status: 200, Headers: []capability.Header{{Name: "Date", Value: "x"}}, Body: []byte("{}")},
		{Failure: capability.FailureNotSent, Reason: "host_not_granted"},
		{Failure: capability.FailureUnknown, Reason: "reset"},
	}
}

func TestGoldenVectors(t *testing.T) {
	t.Parallel()
	for _, g := range goldens() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			want := vector(t, g.name)
			if got := g.encode(); !bytes.Equal(got, want) {
				t.Errorf("encode\n got %x\nwant %x", got, want)
			}
			got, err := g.decode(want)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(g.value, got); d != "" {
				t.Errorf("decode (-want +got):\n%s", d)
			}
		})
	}
}

func TestGoldenErrors(t *testing.T) {
	t.Parallel()
	failure := &sdk.Error{
		Tag: sdk.TagInvalid, Code: "bad_account", Field: "account", Rule: "an account id",
		Hint: "set account", Index: 5, Err: errors.New("parse: no underscore"),
	}
	want := vector(t, "Error")
	if got := wirev1.EncodeError(failure); !bytes.Equal(got, want) {
		t.Errorf("encode\n got %x\nwant %x", got, want)
	}
	got, err := wirev1.DecodeError(want)
	if err != nil {
		t.Fatal(err)
	}
	if got.Error() != failure.Error() || got.Tag != failure.Tag || got.Code != failure.Code {
		t.Errorf("decode: got %v, want %v", got, failure)
	}

	refusal := &sdk.Error{Tag: sdk.TagUnsupported, Code: "capability_missing"}
	want = vector(t, "HttpAnswersRefused")
	if got := wirev1.EncodeResponses(nil, refusal); !bytes.Equal(got, want) {
		t.Errorf("encode a refusal\n got %x\nwant %x", got, want)
	}
	_, err = wirev1.DecodeResponses(want, 3)
	if !errors.Is(err, refusal) || errors.Is(err, wirev1.ErrMalformed) {
		t.Errorf("decode a refusal: %v", err)
	}
}
