package meter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

var exact = cmp.Comparer(func(a, b decimal.Decimal) bool { return a.String() == b.String() })

// fields returns the fields that err complains about, in order.
func fields(t testing.TB, err error) []string {
	t.Helper()
	out := []string{}
	for _, e := range meter.AsErrors(err) {
		if e.Rule == "" {
			t.Errorf("%s: an error without a rule", e.Field)
		}
		out = append(out, e.Field)
	}
	slices.Sort(out)
	return out
}

func TestDecodePlain(t *testing.T) {
	t.Parallel()
	got, err := meter.DecodePlain([]byte(`{"id":"req_1","tenant":"acme","feature":"tokens","quantity":"12.50",
		"time":"2026-11-30T13:00:00.0000019+01:00","dimensions":{"model":"m1","n":1.0,"ok":true,"none":null},
		"metadata":{ "a": [1.0] }}`))
	want := meter.PlainEvent{
		ID: "req_1", Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse("12.5"),
		Time:       time.Date(2026, 11, 30, 12, 0, 0, 1000, time.UTC),
		Dimensions: map[string]string{"model": "m1", "n": "1", "ok": "true"},
		Metadata:   json.RawMessage(`{ "a": [1.0] }`),
	}
	if diff := cmp.Diff(want, got, exact); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// F59, report 69: a quantity is exact from its literal text, or refused.
func TestQuantities(t *testing.T) {
	t.Parallel()
	for literal, want := range map[string]string{
		`9007199254740993`:   "9007199254740993",
		`"9007199254740993"`: "9007199254740993",
		`0.1`:                "0.1",
		`1e3`:                "1000",
		`0`:                  "0",
		`-0`:                 "0",
		`"99999999999999999999999999.999999999999"`: "99999999999999999999999999.999999999999",
		`99999999999999999999999999.999999999999`:   "99999999999999999999999999.999999999999",
		`0.000000000001`:       "0.000000000001",
		`1.00000000000000000`:  "1",
		`100000000000000000e8`: "10000000000000000000000000",
		`1e26`:                 "",
		`1e400`:                "",
		`0.0000000000001`:      "",
		`123456789012345678901234567890123456789`: "",
		`"NaN"`:          "",
		`"Infinity"`:     "",
		`"1_000"`:        "",
		`"1,5"`:          "",
		`" 1"`:           "",
		`""`:             "",
		`"٣"`:            "",
		`"0x10"`:         "",
		`true`:           "",
		`[1]`:            "",
		`{"a":1}`:        "",
		`null`:           "",
		`"1e-999999999"`: "",
	} {
		e, err := meter.DecodePlain(fmt.Appendf(nil, `{"id":"a","tenant":"t","feature":"f","quantity":%s}`, literal))
		if want == "" {
			if diff := cmp.Diff([]string{"quantity"}, fields(t, err)); diff != "" {
				t.Errorf("%s: %v\n%s", literal, err, diff)
			}
			continue
		}
		if err != nil || e.Quantity.String() != want {
			t.Errorf("%s: got %s, %v; want %s", literal, e.Quantity, err, want)
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2023-11-16T18:17:03.9799600Z":        "2023-11-16T18:17:03.97996Z", // seven decimals, as in the public trace
		"2023-11-16T18:17:03.999999999Z":      "2023-11-16T18:17:03.999999Z",
		"2026-11-30t12:00:00z":                "2026-11-30T12:00:00Z",
		"2026-11-30T12:00:00-00:00":           "2026-11-30T12:00:00Z",
		"2026-11-30T23:30:00-08:45":           "2026-12-01T08:15:00Z",
		"2024-02-29T00:00:00.1+14:00":         "2024-02-28T10:00:00.1Z",
		"2000-01-01T00:00:00Z":                "2000-01-01T00:00:00Z",
		"1999-12-31T23:59:59Z":                "",
		"0001-01-01T00:00:00Z":                "", // would pass for an absent time
		"2023-02-29T00:00:00Z":                "",
		"2026-13-01T00:00:00Z":                "",
		"2026-11-30T24:00:00Z":                "",
		"2026-11-30T12:00:60Z":                "",
		"2026-11-30T12:00:00":                 "",
		"2026-11-30 12:00:00Z":                "",
		"2026-11-30T12:00:00,5Z":              "",
		"2026-11-30T12:00:00.Z":               "",
		"2026-11-30T12:00:00.1234567890Z":     "",
		"2026-11-30T12:00:00+24:00":           "",
		"2026-11-30T12:00:00+1:00":            "",
		"2026-11-30T12:00:00+01:60":           "",
		"2026-11-30T12:00:00+0100":            "",
		"2026-11-30":                          "",
		"20261130T120000Z":                    "",
		"1764504000":                          "",
		"٢٠٢٦-11-30T12:00:00Z":                "",
		"":                                    "",
		"2026-11-30T12:00:00Z ":               "",
		strings.Repeat("2026-11-30T12:00", 9): "",
	} {
		body, err := json.Marshal(map[string]any{"id": "a", "tenant": "t", "feature": "f", "quantity": "1", "time": text})
		if err != nil {
			t.Fatal(err)
		}
		e, err := meter.DecodePlain(body)
		if want == "" {
			if diff := cmp.Diff([]string{"time"}, fields(t, err)); diff != "" {
				t.Errorf("%q: %v\n%s", text, err, diff)
			}
			continue
		}
		if got := e.Time.Format(time.RFC3339Nano); err != nil || got != want {
			t.Errorf("%q: got %s, %v; want %s", text, got, err, want)
		}
	}
}

// Every fault of an event is reported at once, and no value is repeated.
func TestDecodePlainReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := meter.DecodePlain([]byte(`{"id":"ce:secret","tenant":"secret\n","feature":"Secret","quantity":"secret",
		"time":"secret","dimensions":{"a":[],"secret key":"` + strings.Repeat("secret", 50) + `"},"metadata":["secret"],
		"color":"secret","<script>":1}`))
	want := []string{"", "color", "dimensions", "dimensions.a", "feature", "id", "metadata", "quantity", "tenant", "time"}
	if diff := cmp.Diff(want, fields(t, err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !errors.Is(err, sdk.ErrInvalid) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "script") {
		t.Errorf("err = %v", err)
	}
}

func TestDecodePlainRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 129)
	many := make(map[string]string)
	for i := range 10_000 {
		many[fmt.Sprint("k", i)] = "v"
	}
	manyJSON, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		with   string // further members, which override by position
		fields []string
	}{
		"empty id":          {`"id":"","tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"null id":           {`"id":null,"tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"number as id":      {`"id":1,"tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"long id":           {`"id":"` + long + `","tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"megabyte id":       {`"id":"` + strings.Repeat("x", 1<<20-80) + `","tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"reserved legacy":   {`"id":"legacy:1","tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"reserved track":    {`"id":"track:1","tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"reserved recur":    {`"id":"recurring:1","tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"NUL in id":         {`"id":"a\u0000","tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"DEL in id":         {`"id":"a\u007f","tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"C1 in tenant":      {`"id":"a","tenant":"t\u0085","feature":"f","quantity":1`, []string{"tenant"}},
		"lone surrogate":    {`"id":"a\ud800","tenant":"t","feature":"f","quantity":1`, []string{"id"}},
		"nothing":           {``, []string{"feature", "id", "quantity", "tenant"}},
		"id twice":          {`"id":"a","id":"a","tenant":"t","feature":"f","quantity":1`, []string{""}},
		"wrong case":        {`"ID":"a","id":"a","tenant":"t","feature":"f","quantity":1`, []string{"ID"}},
		"__proto__":         {`"__proto__":null,"id":"a","tenant":"t","feature":"f","quantity":1`, []string{"__proto__"}},
		"feature capitals":  {`"id":"a","tenant":"t","feature":"F","quantity":1`, []string{"feature"}},
		"feature newline":   {`"id":"a","tenant":"t","feature":"f\n","quantity":1`, []string{"feature"}},
		"feature too long":  {`"id":"a","tenant":"t","feature":"` + strings.Repeat("f", 64) + `","quantity":1`, []string{"feature"}},
		"10,000 dimensions": {`"id":"a","tenant":"t","feature":"f","quantity":1,"dimensions":` + string(manyJSON), []string{"dimensions"}},
		"empty dimension":   {`"id":"a","tenant":"t","feature":"f","quantity":1,"dimensions":{"":"x"}`, []string{"dimensions"}},
		"long dimension":    {`"id":"a","tenant":"t","feature":"f","quantity":1,"dimensions":{"` + long + `":"x"}`, []string{"dimensions"}},
		"long value":        {`"id":"a","tenant":"t","feature":"f","quantity":1,"dimensions":{"k":"` + long + long + `"}`, []string{"dimensions.k"}},
		"nested dimension":  {`"id":"a","tenant":"t","feature":"f","quantity":1,"dimensions":{"k":{"a":1}}`, []string{"dimensions.k"}},
		"dimension twice":   {`"id":"a","tenant":"t","feature":"f","quantity":1,"dimensions":{"k":"1","k":"1"}`, []string{"dimensions"}},
		"dimension array":   {`"id":"a","tenant":"t","feature":"f","quantity":1,"dimensions":[]`, []string{"dimensions"}},
		"metadata text":     {`"id":"a","tenant":"t","feature":"f","quantity":1,"metadata":"x"`, []string{"metadata"}},
		"metadata too long": {`"id":"a","tenant":"t","feature":"f","quantity":1,"metadata":{"a":"` + strings.Repeat("x", 16<<10) + `"}`, []string{"metadata"}},
		"metadata too deep": {`"id":"a","tenant":"t","feature":"f","quantity":1,"metadata":` + strings.Repeat(`{"a":`, 33) + "1" + strings.Repeat("}", 33), []string{"metadata"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := meter.DecodePlain([]byte("{" + tc.with + "}"))
			if diff := cmp.Diff(tc.fields, fields(t, err)); diff != "" {
				t.Errorf("%.200v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// The largest legal event, so that no limit is off by one.
func TestLimitsAreInclusive(t *testing.T) {
	t.Parallel()
	dimensions := make(map[string]string)
	for i := range meter.MaxDimensions {
		dimensions[fmt.Sprintf("%0*d", meter.MaxDimensionKey, i)] = strings.Repeat("v", meter.MaxDimensionValue)
	}
	metadata := `{"a":"` + strings.Repeat("x", meter.MaxMetadata-8) + `"}`
	e := meter.PlainEvent{
		ID: strings.Repeat("é", meter.MaxID/2), Tenant: strings.Repeat("t", meter.MaxID),
		Feature: "f" + strings.Repeat("-", meter.MaxFeature-1), Quantity: decimal.MustParse("0"),
		Time: clock.Add(300 * time.Second), Dimensions: dimensions, Metadata: json.RawMessage(metadata),
	}
	rules := meter.Rules{Now: clock}
	if errs := rules.Plain(e); errs != nil {
		t.Errorf("legal event: %v", errs)
	}
	for field, change := range map[string]func(*meter.PlainEvent){
		"id":         func(e *meter.PlainEvent) { e.ID += "x" },
		"tenant":     func(e *meter.PlainEvent) { e.Tenant += "x" },
		"feature":    func(e *meter.PlainEvent) { e.Feature += "x" },
		"quantity":   func(e *meter.PlainEvent) { e.Quantity = decimal.MustParse("-0.000000000001") },
		"time":       func(e *meter.PlainEvent) { e.Time = e.Time.Add(time.Microsecond) },
		"dimensions": func(e *meter.PlainEvent) { e.Dimensions = map[string]string{"\xff": ""} },
		"metadata":   func(e *meter.PlainEvent) { e.Metadata = json.RawMessage(metadata + " ") },
	} {
		broken := e
		change(&broken)
		if diff := cmp.Diff([]string{field}, fields(t, rules.Plain(broken).Err())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

var clock = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestRules(t *testing.T) {
	t.Parallel()
	e := meter.PlainEvent{ID: "a", Tenant: "t", Feature: "f", Quantity: decimal.MustParse("-1"), Time: clock}
	signed := func(feature string) meter.FeatureRules { return meter.FeatureRules{Signed: feature == "f"} }
	if errs := (meter.Rules{Now: clock, Feature: signed}).Plain(e); errs != nil {
		t.Errorf("negative of a signed feature: %v", errs)
	}
	wide := e
	wide.Quantity = decimal.MustParse("99999999999999999999999999").Add(decimal.One)
	got := fields(t, meter.Rules{Now: clock}.Plain(wide).Err())
	if diff := cmp.Diff([]string{"quantity"}, got); diff != "" {
		t.Errorf("computed quantity (-want +got):\n%s", diff)
	}
	got = fields(t, meter.Rules{}.Plain(e).Err())
	if diff := cmp.Diff([]string{"quantity", "time"}, got); diff != "" {
		t.Errorf("no clock (-want +got):\n%s", diff)
	}
	if errs := (meter.Rules{Now: clock, Future: time.Hour}).Plain(meter.PlainEvent{
		ID: "a", Tenant: "t", Feature: "f", Time: clock.Add(time.Hour),
	}); errs != nil {
		t.Errorf("future of an hour: %v", errs)
	}
}

// Q1: an absent time is hashed as absent, a null one as well.
func TestPlainDedupeHash(t *testing.T) {
	t.Parallel()
	hash := func(members string) string {
		e, err := meter.DecodePlain([]byte(`{"id":"a","tenant":"t","feature":"f",` + members + `}`))
		if err != nil {
			t.Fatal(err)
		}
		h, err := e.DedupeHash()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", h)
	}
	absent := hash(`"quantity":1`)
	if absent != hash(`"time":null,"metadata":{},"dimensions":{},"quantity":"1.0"`) {
		t.Error("null and absent differ")
	}
	if absent == hash(`"quantity":1,"time":"2026-11-30T12:00:00Z"`) {
		t.Error("a time is not hashed")
	}
	if hash(`"quantity":1,"time":"2026-11-30T12:00:00.0000009Z"`) != hash(`"quantity":1,"time":"2026-11-30T13:00:00+01:00"`) {
		t.Error("what is finer than a microsecond is hashed")
	}
}

// C-T10: one bad event of a batch is its own problem.
func TestBatches(t *testing.T) {
	t.Parallel()
	good := `{"id":"a","tenant":"t","feature":"f","quantity":1}`
	items, err := meter.DecodePlainBatch([]byte("[" + good + `,{"id":"\ud800"},` + good + `,7,{"id":"b"}]`))
	if err != nil || len(items) != 5 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	if items[0].Err != nil || items[2].Err != nil || items[2].Event.ID != "a" {
		t.Errorf("good items: %v, %v", items[0], items[2])
	}
	if diff := cmp.Diff([]string{"events[1].id"}, fields(t, items[1].Err)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"events[3]"}, fields(t, items[3].Err)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"events[4].feature", "events[4].quantity", "events[4].tenant"}, fields(t, items[4].Err)); diff != "" {
		t.Error(diff)
	}
	if i, ok := meter.AsErrors(items[4].Err)[0].ItemIndex(); !ok || i != 4 {
		t.Errorf("index %d, %v", i, ok)
	}
	for name, body := range map[string]string{
		"too many": "[" + strings.Repeat(good+",", 500) + good + "]",
		"too long": "[" + strings.Repeat(" ", 1<<20) + "]",
		"object":   good,
		"open":     "[" + good,
	} {
		if _, err := meter.DecodePlainBatch([]byte(body)); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("plain, %s: %v", name, err)
		}
		if _, err := meter.DecodeCloudEventBatch([]byte(body)); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("CloudEvents, %s: %v", name, err)
		}
	}
	if items, err := meter.DecodePlainBatch([]byte("[" + strings.Repeat(good+",", 499) + good + "]")); err != nil || len(items) != 500 {
		t.Errorf("500 events: %v", err)
	}
	if items, err := meter.DecodePlainBatch([]byte(" [ ] ")); err != nil || len(items) != 0 {
		t.Errorf("no events: %v, %v", items, err)
	}
	if _, err := meter.DecodePlain([]byte("[" + good + "]")); err == nil {
		t.Error("a batch is taken for its first event")
	}
}

func header(pairs ...string) http.Header {
	h := make(http.Header)
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}
