package ndjson_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/exporters/ndjson"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// file is a host's that answers as told and keeps what it got.
type file struct {
	records []capability.Record
	answers []capability.Appended
	err     error
}

func (f *file) Append(_ context.Context, records []capability.Record) ([]capability.Appended, error) {
	f.records = records
	return f.answers, f.err
}

// What a line says, and what the host's answer to it means.
func TestDeliver(t *testing.T) {
	t.Parallel()
	f := &file{answers: []capability.Appended{
		{Sequence: 7}, {Earlier: true, Sequence: 3}, {Failure: capability.FailureNotSent, Reason: "disk_full"}, {Failure: capability.FailureUnknown, Reason: "io_error"},
	}}
	e := ndjson.New(capability.Host{Append: f})
	if err := e.Configure(t.Context(), exporter.Configuration{Mode: "test"}); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 30, 12, 0, 0, 5000, time.UTC)
	items := []exporter.Item{
		{
			ID: "1", Identifier: "fencepost_1", Attempt: 1, Kind: "event", Mode: "live", Account: "acct", Customer: "cus", Feature: "calls", Value: "0.000000000001",
			Timestamp: at, PeriodStart: at, PeriodEnd: at, Mapping: map[string]string{"sku": "A"},
		},
		{ID: "2", Identifier: "fencepost_2", Attempt: 2, Corrects: &exporter.Corrects{Method: exporter.CorrectNegative, Identifier: "fencepost_0"}},
		{ID: "3", Identifier: "fencepost_3", Attempt: 1},
		{ID: "4", Identifier: "fencepost_4", Attempt: 1},
	}
	out, err := e.Deliver(t.Context(), exporter.Delivery{Items: items})
	if err != nil {
		t.Fatal(err)
	}
	want := []exporter.ItemOutcome{
		{ItemID: "1", Kind: exporter.Accepted, ProviderRef: "line 7"},
		{ItemID: "2", Kind: exporter.AcceptedEarlier, ProviderRef: "line 3"},
		{ItemID: "3", Kind: exporter.Retry, Code: "disk_full"},
		{ItemID: "4", Kind: exporter.Uncertain, Code: "io_error"},
	}
	if d := cmp.Diff(want, out); d != "" {
		t.Error(d)
	}
	if f.records[0].Again || !f.records[1].Again || f.records[0].Item != "1" || f.records[0].Identifier != "fencepost_1" {
		t.Errorf("%+v", f.records[:2])
	}
	const line = `{"identifier":"fencepost_1","kind":"event","account":"acct","mode":"live","customer":"cus","feature":"calls","value":"0.000000000001",` +
		`"timestamp":"2026-11-30T12:00:00.000005Z","period_start":"2026-11-30T12:00:00.000005Z","period_end":"2026-11-30T12:00:00.000005Z","mapping":{"sku":"A"}}`
	if got := string(f.records[0].JSON); got != line {
		t.Errorf("%s, want %s", got, line)
	}
	var second ndjson.Record
	if err := json.Unmarshal(f.records[1].JSON, &second); err != nil || second.Corrects != "fencepost_0" {
		t.Errorf("%+v %v", second, err)
	}
	f.err = errors.New("refused")
	if _, err := e.Deliver(t.Context(), exporter.Delivery{Items: items}); err == nil {
		t.Error("a refusal of the host was lost")
	}
}

// What an operator can get wrong is named by its field.
func TestConfigure(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]exporter.Configuration{
		"base_url": {Mode: "test", BaseURL: "https://example.com"}, "settings": {Mode: "test", Settings: json.RawMessage(`{"path":"/etc/passwd"}`)},
	} {
		var refused *sdk.Error
		if err := ndjson.New(capability.Host{Append: &file{}}).Configure(t.Context(), c); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := ndjson.New(capability.Host{}).Configure(t.Context(), exporter.Configuration{}); sdk.TagOf(err) != sdk.TagUnsupported {
		t.Errorf("without append: %v", err)
	}
}
