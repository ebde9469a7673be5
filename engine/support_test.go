package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// noon is the time of every call that does not say otherwise.
var noon = time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)

func atNoon() time.Time { return noon }

// fixture is an engine on a SQLite file of its own.
type fixture struct {
	t *testing.T
	*engine.Engine
	store *sqlite.Adapter
	dir   string
	// postgres is the store of a fixture that has no SQLite file.
	postgres storage.EventStore
}

// open returns an engine on a fresh store; change edits its configuration.
func open(t *testing.T, change ...func(*engine.Config)) *fixture {
	t.Helper()
	dir := t.TempDir()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "fencepost.db"), Migrate: true, Now: atNoon, LockWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{t: t, Engine: over(t, st, change...), store: st, dir: dir}
}

// over returns an engine on a store that is open.
func over(t *testing.T, st storage.Adapter, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	cfg := engine.Config{Store: st, Now: atNoon, Manifests: map[string]exporter.Manifest{"stripe": manifest()}}
	for _, f := range change {
		f(&cfg)
	}
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func withMeters(t *testing.T, ms ...meter.Meter) func(*engine.Config) {
	t.Helper()
	set, err := meter.NewSet(ms)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *engine.Config) { c.Meters = set }
}

// manifest is an exporter that takes 15 digits, 35 days back.
func manifest() exporter.Manifest {
	return exporter.Manifest{
		Name: "stripe", IdentifierMaxLength: 100, WindowPast: 35 * 24 * time.Hour, WindowFuture: 5 * time.Minute,
		Values:   exporter.ValueDomain{SignificantDigits: 15, MaxDecimals: 12, Negative: true},
		SerialBy: []string{"customer", "event_name"}, MappingKeys: []string{"event_name"},
		Corrections: exporter.CorrectCancel, CancelWithin: 23 * time.Hour,
	}
}

func plan(features map[string]string) engine.RoutePlan {
	p := engine.RoutePlan{
		Exporter: "stripe", Provider: "stripe", Account: "acct_1", Mode: "test",
		Features: map[string]map[string]string{}, Label: "1",
	}
	for f, name := range features {
		p.Features[f] = map[string]string{"event_name": name}
	}
	return p
}

func (f *fixture) routes(plans ...engine.RoutePlan) storage.RouteSet {
	f.t.Helper()
	set, err := f.ApplyRoutes(f.t.Context(), plans)
	if err != nil {
		f.t.Fatal(err)
	}
	return set
}

func (f *fixture) subscribe(tenant, customer string) {
	f.t.Helper()
	s := storage.Subscription{Tenant: tenant, Anchor: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	if customer != "" {
		s.Customers = map[string]string{"stripe": customer}
	}
	if _, err := f.PutSubscription(f.t.Context(), s); err != nil {
		f.t.Fatal(err)
	}
}

// plain is an event of tenant acme and feature tokens an hour ago.
func plain(id, quantity string) engine.Event {
	return engine.Event{
		ID: id, Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse(quantity), Time: noon.Add(-time.Hour),
	}
}

func cloud(t *testing.T, text string) meter.CloudEvent {
	t.Helper()
	e, err := meter.DecodeCloudEvent([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// completion is a CloudEvent with two numbers in its data.
func completion(t *testing.T, id string, in, out int) meter.CloudEvent {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": id, "source": "/gw", "type": "llm.completion", "subject": "acme",
		"time": "2026-11-30T11:00:00Z", "data": map[string]any{"in": in, "out": out, "model": "m1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return cloud(t, string(body))
}

// each records inputs with an outcome for each; it fails the test on an error.
func (f *fixture) each(inputs ...any) []engine.Result {
	f.t.Helper()
	res, err := f.RecordBatch(f.t.Context(), engine.Batch{Mode: storage.Each, Inputs: inputsOf(inputs)})
	if err != nil {
		f.t.Fatal(err)
	}
	return res
}

func inputsOf(list []any) []engine.Input {
	out := make([]engine.Input, len(list))
	for i, v := range list {
		switch v := v.(type) {
		case engine.Event:
			out[i].Plain = &v
		case meter.CloudEvent:
			out[i].Cloud = &v
		case engine.Input:
			out[i] = v
		}
	}
	return out
}

// outcomes are the outcomes of results as one text, "inserted duplicate".
func outcomes(res []engine.Result) string {
	texts := make([]string, len(res))
	for i, r := range res {
		texts[i] = string(r.Outcome)
	}
	return strings.Join(texts, " ")
}

func (f *fixture) want(res []engine.Result, want string) {
	f.t.Helper()
	if got := outcomes(res); got != want {
		f.t.Fatalf("outcomes %q, want %q", got, want)
	}
	for i, r := range res {
		if r.Index != i {
			f.t.Errorf("result %d carries index %d", i, r.Index)
		}
	}
}

// total is the sum of a feature of tenant acme and its count, "12.5/2".
func (f *fixture) total(feature string) string {
	f.t.Helper()
	return f.totalOf("acme", feature)
}

func (f *fixture) totalOf(tenant, feature string) string {
	f.t.Helper()
	totals, err := f.store.LoadTotals(f.t.Context(), storage.TotalsQuery{Tenant: tenant, Feature: feature})
	if err != nil {
		f.t.Fatal(err)
	}
	var sum decimal.Decimal
	var n int64
	for _, t := range totals {
		sum = sum.Add(t.Quantity)
		n += t.Events
	}
	return sum.String() + "/" + decimal.MustParse(itoa(n)).String()
}

func itoa(n int64) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func (f *fixture) items() []storage.Item {
	f.t.Helper()
	page, err := f.store.ListItems(f.t.Context(), storage.ItemQuery{Limit: 1000})
	if err != nil {
		f.t.Fatal(err)
	}
	return page.Items
}

func (f *fixture) events() []storage.Event {
	f.t.Helper()
	page, err := f.Events(f.t.Context(), storage.StreamQuery{Limit: 1000})
	if err != nil {
		f.t.Fatal(err)
	}
	return page.Events
}

// tagIs fails unless err has a tag and, if given, a code.
func tagIs(t *testing.T, err error, tag sdk.Tag, code string) {
	t.Helper()
	var e *sdk.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v has no tag, want %s", err, tag)
	}
	if e.Tag != tag || (code != "" && e.Code != code) {
		t.Fatalf("error %v has tag %q and code %q, want %q %q", err, e.Tag, e.Code, tag, code)
	}
}

// wrapped is a store whose recording is replaced by a test.
type wrapped struct {
	*sqlite.Adapter
	record func(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error)
}

func (w *wrapped) RecordEvents(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
	return w.record(ctx, req)
}

// batchOf is an atomic batch.
func batchOf(inputs ...any) engine.Batch { return engine.Batch{Inputs: inputsOf(inputs)} }
