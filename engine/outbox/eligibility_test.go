package outbox

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// O18, A41-A48: each reason, alone.
func TestCheck(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	tests := []struct {
		name string
		edit func(*exporter.Manifest, *exporter.Item)
		want Reason
	}{
		{"fine", func(*exporter.Manifest, *exporter.Item) {}, ReasonNone},
		{"mode", func(_ *exporter.Manifest, i *exporter.Item) { i.Mode = "live" }, ReasonModeMismatch},
		{"account", func(_ *exporter.Manifest, i *exporter.Item) { i.Account = "acct_2" }, ReasonAccountMismatch},
		{"mapping key absent", func(_ *exporter.Manifest, i *exporter.Item) { i.Mapping = nil }, ReasonFeatureUnmapped},
		{"customer", func(_ *exporter.Manifest, i *exporter.Item) { i.Customer = "" }, ReasonNoCustomer},
		{"identifier too long", func(m *exporter.Manifest, _ *exporter.Item) { m.IdentifierMaxLength = 64 }, ReasonPayloadInvalid},
		{"value unreadable", func(_ *exporter.Manifest, i *exporter.Item) { i.Value = "NaN" }, ReasonPayloadInvalid},
		{"no time", func(_ *exporter.Manifest, i *exporter.Item) { i.Timestamp = time.Time{} }, ReasonPayloadInvalid},
		{"15 digits", func(_ *exporter.Manifest, i *exporter.Item) { i.Value = "123456789.012345" }, ReasonNone},
		{"16 digits", func(_ *exporter.Manifest, i *exporter.Item) { i.Value = "1234567890.123456" }, ReasonValueDomain},
		{"a number with many zeros", func(_ *exporter.Manifest, i *exporter.Item) { i.Value = "5000000000000000000000" }, ReasonNone},
		{"whole numbers only", func(m *exporter.Manifest, _ *exporter.Item) { m.Values.MaxDecimals = 0 }, ReasonValueDomain},
		{"any decimals", func(m *exporter.Manifest, _ *exporter.Item) { m.Values.MaxDecimals = -1 }, ReasonNone},
		{"negative", func(_ *exporter.Manifest, i *exporter.Item) { i.Value = "-1" }, ReasonValueDomain},
		{"negative allowed", func(m *exporter.Manifest, i *exporter.Item) { m.Values.Negative, i.Value = true, "-1" }, ReasonNone},
		{"zero", func(_ *exporter.Manifest, i *exporter.Item) { i.Value = "0" }, ReasonValueDomain},
		{"zero allowed", func(m *exporter.Manifest, i *exporter.Item) { m.Values.Zero, i.Value = true, "0" }, ReasonNone},
		{"oldest", func(_ *exporter.Manifest, i *exporter.Item) { i.Timestamp = noon.Add(-34 * day) }, ReasonNone},
		{"too old", func(_ *exporter.Manifest, i *exporter.Item) { i.Timestamp = noon.Add(-34*day - 1) }, ReasonTimestampWindow},
		{"newest", func(_ *exporter.Manifest, i *exporter.Item) { i.Timestamp = noon.Add(4 * time.Minute) }, ReasonNone},
		{"too new", func(_ *exporter.Manifest, i *exporter.Item) { i.Timestamp = noon.Add(4*time.Minute + 1) }, ReasonTimestampWindow},
		{"no window", func(m *exporter.Manifest, i *exporter.Item) {
			m.WindowPast, m.WindowFuture, i.Timestamp = 0, 0, noon.AddDate(-9, 0, 0)
		}, ReasonNone},
	}
	for _, tt := range tests {
		c := sample("req_1", noon)
		c.Digest, _ = Identifier(c.Identity)
		item, err := Payload(c)
		if err != nil {
			t.Fatal(err)
		}
		m := testManifest
		tt.edit(&m, &item)
		if got := Check(m, testDestination, item, noon); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	item := exporter.Item{Mode: "test"}
	m := testManifest
	m.NeedsAccount = true
	if got := Check(m, Destination{Exporter: "double", Mode: "test"}, item, noon); got != ReasonNoAccount {
		t.Errorf("no account: %q", got)
	}
}

// enqueue is an event that has one route in force.
func enqueue() Enqueue {
	c := sample("req_1", noon)
	return Enqueue{
		Event: c.Event,
		Routes: []storage.Route{{
			ID: 7, Exporter: "double", Account: "acct_1", Mode: "test", Feature: "tokens",
			Disposition: storage.RouteExport, MappingVersion: "9f2c",
		}},
		Mappings:  map[string]storage.Mapping{"9f2c": c.Mapping},
		Manifests: map[string]exporter.Manifest{"double": testManifest},
		Customers: map[string]string{"double": "cus_1"}, AttemptBudget: 20, Now: noon,
	}
}

// O20, Q3, Q4.
func TestBuildItems(t *testing.T) {
	t.Parallel()
	got := BuildItems(enqueue())
	if len(got) != 1 {
		t.Fatalf("%d items", len(got))
	}
	identity := sample("req_1", noon).Identity
	digest, _ := Identifier(identity)
	want := storage.NewItem{
		Identity: identity, Digest: digest, SubjectKey: SubjectKey(identity), RouteID: 7,
		SerialKey: "6:double6:acct_14:test8:customer5:cus_110:event_name10:llm_tokens",
		Customer:  "cus_1", AttemptBudget: 20,
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// O18, A49, Q7, Q25: what cannot be sent is staged with its reason, never dropped.
func TestBuildItemsQuarantines(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		edit    func(*Enqueue)
		items   int
		reason  Reason
		settled bool
	}{
		{"zero leads to no item", func(e *Enqueue) { e.Event.Quantity = decimal.Decimal{} }, 0, "", false},
		{"no route", func(e *Enqueue) { e.Event.Feature = "other" }, 0, "", false},
		{"retired", func(e *Enqueue) { e.Routes[0].RetiredAt = noon }, 0, "", false},
		{"ignored", func(e *Enqueue) { e.Routes[0].Disposition = storage.RouteIgnore }, 0, "", false},
		{"unmapped", func(e *Enqueue) { e.Routes[0].Disposition = storage.RouteQuarantine }, 1, ReasonFeatureUnmapped, false},
		{"mapping gone", func(e *Enqueue) { e.Mappings = nil }, 1, ReasonFeatureUnmapped, false},
		{"mapping broken", func(e *Enqueue) {
			e.Mappings["9f2c"] = storage.Mapping{Version: "9f2c", Content: []byte(`[]`)}
		}, 1, ReasonPayloadInvalid, false},
		{"no customer", func(e *Enqueue) { e.Customers = nil }, 1, ReasonNoCustomer, false},
		{"negative", func(e *Enqueue) { e.Event.Quantity = decimal.MustParse("-1") }, 1, ReasonValueDomain, false},
		{"old", func(e *Enqueue) { e.Now = noon.AddDate(0, 2, 0) }, 1, ReasonTimestampWindow, false},
		{"another host's exporter", func(e *Enqueue) { e.Manifests, e.Now = nil, noon.AddDate(0, 2, 0) }, 1, ReasonNone, false},
		{"engine's reason", func(e *Enqueue) { e.Reason = ReasonPlanUnresolved }, 1, ReasonPlanUnresolved, false},
		{"engine's reason wins", func(e *Enqueue) { e.Reason, e.Customers = ReasonFeatureBuffered, nil }, 1, ReasonFeatureBuffered, true},
		{"period buffered", func(e *Enqueue) { e.Reason = ReasonPeriodBuffered }, 1, ReasonPeriodBuffered, true},
	}
	for _, tt := range tests {
		e := enqueue()
		tt.edit(&e)
		got := BuildItems(e)
		if len(got) != tt.items {
			t.Errorf("%s: %d items", tt.name, len(got))
			continue
		}
		if tt.items == 1 && (got[0].QuarantineReason != string(tt.reason) || got[0].Settled != tt.settled) {
			t.Errorf("%s: %q, settled %v", tt.name, got[0].QuarantineReason, got[0].Settled)
		}
	}
}

// Q4: at each destination the feature's own route wins over the one for any
// feature, whatever their order, even if it says to ignore.
func TestRoutesFor(t *testing.T) {
	t.Parallel()
	route := func(id int64, exporter, feature string, d storage.RouteDisposition) storage.Route {
		return storage.Route{ID: id, Exporter: exporter, Mode: "test", Feature: feature, Disposition: d}
	}
	any1 := route(1, "a", storage.AnyFeature, storage.RouteQuarantine)
	own2 := route(2, "a", "tokens", storage.RouteExport)
	any3 := route(3, "b", storage.AnyFeature, storage.RouteQuarantine)
	own4 := route(4, "b", "tokens", storage.RouteIgnore)
	any5 := route(5, "c", storage.AnyFeature, storage.RouteExport)
	for _, routes := range [][]storage.Route{{any1, own2, any3, own4, any5}, {own4, own2, any5, any3, any1}} {
		got := make(map[int64]bool)
		for _, r := range routesFor(routes, "tokens") {
			got[r.ID] = true
		}
		if diff := cmp.Diff(map[int64]bool{2: true, 5: true}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Q3: the payload is a pure function of item, event and mapping.
func TestPayloadGolden(t *testing.T) {
	t.Parallel()
	c := sample("req_1", time.Date(2026, 11, 30, 13, 0, 0, 123456000, time.FixedZone("", 3600)))
	c.ItemID, c.LeaseToken, c.Attempts = 41, 3, 2
	c.Event.PeriodStart = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	c.Event.PeriodEnd = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	c.Event.Quantity = decimal.MustParse("1.250e1")
	c.Digest[0] = 0xab
	got, err := Payload(c)
	if err != nil {
		t.Fatal(err)
	}
	want := exporter.Item{
		ID: "41", Identifier: "fencepost_ab00000000000000000000000000000000000000000000000000000000000000",
		Attempt: 3, Kind: "event", Account: "acct_1", Mode: "test", Customer: "cus_req_1", Feature: "tokens",
		Value: "12.5", Timestamp: time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC),
		PeriodStart: c.Event.PeriodStart, PeriodEnd: c.Event.PeriodEnd,
		Mapping: map[string]string{"event_name": "llm_tokens"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	detail := storage.ItemDetail{
		Item:  storage.Item{ItemID: 41, Identity: c.Identity, Digest: c.Digest, Customer: c.Customer},
		Event: &c.Event, Mapping: c.Mapping,
	}
	raw, err := PayloadJSON(detail)
	if err != nil {
		t.Fatal(err)
	}
	const shown = `{"identifier":"fencepost_ab00000000000000000000000000000000000000000000000000000000000000",` +
		`"customer":"cus_req_1","feature":"tokens","value":"12.5","timestamp":"2026-11-30T12:00:00.123456Z",` +
		`"period_start":"2026-11-01T00:00:00.000000Z","period_end":"2026-12-01T00:00:00.000000Z",` +
		`"account":"acct_1","mode":"test","mapping":{"event_name":"llm_tokens"}}`
	if string(raw) != shown {
		t.Errorf("shown as %s", raw)
	}
}

// O2, A-T12: a stored payload comes back as it was frozen.
func TestStoredPayload(t *testing.T) {
	t.Parallel()
	c := sample("cor_1", noon)
	c.Identity.SubjectKind = storage.SubjectCorrection
	item, err := Payload(c)
	if err != nil {
		t.Fatal(err)
	}
	item.Value = "-3"
	if c.Payload, err = FreezePayload(item); err != nil {
		t.Fatal(err)
	}
	c.Event = storage.Event{}
	got, err := Payload(c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(item, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{`{}`, `null`, `{"value":"1","extra":1}`, `{"value":"1e999"}`, `{"value":"1"} x`, `[`} {
		c.Payload = json.RawMessage(bad)
		if _, err := Payload(c); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func TestSerialKey(t *testing.T) {
	t.Parallel()
	item := exporter.Item{Customer: "a", Feature: "f", Mapping: map[string]string{"event_name": "b"}}
	by := []string{"customer", "event_name", "feature"}
	key := SerialKey(testDestination, by, item)
	if SerialKey(testDestination, nil, item) != "" {
		t.Error("a key without names")
	}
	other := item
	other.Customer, other.Mapping = "a10:event_name", map[string]string{"event_name": ""}
	if SerialKey(testDestination, by, other) == key {
		t.Error("two customers share a key")
	}
	if SerialKey(Destination{Exporter: "double", Account: "acct_2", Mode: "test"}, by, item) == key {
		t.Error("two destinations share a key")
	}
}

func FuzzPayload(f *testing.F) {
	f.Add([]byte(`{"feature":"f","value":"1","timestamp":"2026-11-30T12:00:00Z","period_start":"2026-11-30T12:00:00Z","period_end":"2026-11-30T12:00:00Z"}`), []byte(`{"event_name":"x"}`))
	f.Add([]byte(`{"value":1e400}`), []byte(`{"a":null}`))
	f.Fuzz(func(t *testing.T, payload, mapping []byte) {
		c := sample("w", noon)
		c.Payload, c.Mapping.Content = payload, mapping
		item, err := Payload(c)
		if err != nil || payload == nil {
			return
		}
		if _, err := decimal.ParseTotal(item.Value); err != nil {
			t.Errorf("value %q", item.Value)
		}
		frozen, err := FreezePayload(item)
		if err != nil {
			return // a year that JSON cannot write
		}
		c.Payload = frozen
		again, err := Payload(c)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(item, again); diff != "" {
			t.Errorf("freezing changes it:\n%s", diff)
		}
	})
}
