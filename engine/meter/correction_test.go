package meter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

func TestDecodeCorrection(t *testing.T) {
	t.Parallel()
	two := decimal.MustParse("2.5")
	for body, want := range map[string]meter.Correction{
		`{"id":"c","tenant":"acme","event_id":"req_1","quantity":"2.50"}`: {ID: "c", Tenant: "acme", EventID: "req_1", Quantity: &two},
		`{"id":"c","tenant":"acme","event_id":"req_1","quantity":25e-1,"remaining":false,"reason":null}`: {
			ID: "c", Tenant: "acme", EventID: "req_1", Quantity: &two,
		},
		`{"id":"c","tenant":"acme","event_id":"ce:2:/s1:11:f","remaining":true,"reason":"why","metadata":{"a":1}}`: {
			ID: "c", Tenant: "acme", EventID: "ce:2:/s1:11:f", Remaining: true, Reason: "why", Metadata: json.RawMessage(`{"a":1}`),
		},
		`{"id":"c","tenant":"acme","event_id":"req_1","replace":{"id":"r","tenant":"acme","feature":"f","quantity":"2.5"}}`: {
			ID: "c", Tenant: "acme", EventID: "req_1", Replace: &meter.PlainEvent{ID: "r", Tenant: "acme", Feature: "f", Quantity: two},
		},
	} {
		got, err := meter.DecodeCorrection([]byte(body))
		if diff := cmp.Diff(want, got, exact); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", body, err, diff)
		}
	}
}

// Section 4 item 5: unknown fields are errors, what an original decides cannot
// be given, and every fault is listed.
func TestDecodeCorrectionRefuses(t *testing.T) {
	t.Parallel()
	with := func(rest string) string { return `{"id":"c","tenant":"acme","event_id":"req_1",` + rest + `}` }
	for body, want := range map[string][]string{
		`{}`:   {"id", "tenant", "event_id", "quantity"},
		`[]`:   {""},
		`null`: {""},
		`{"id":1,"tenant":[],"event_id":{},"quantity":"x","reason":5,"remaining":"yes"}`:               {"id", "tenant", "event_id", "quantity", "reason", "remaining"},
		with(`"quantity":1,"dimensions":{}`):                                                           {"dimensions"},
		with(`"quantity":1,"dimensions":null`):                                                         {"dimensions"},
		with(`"quantity":1,"time":"2026-11-30T12:00:00Z"`):                                             {"time"},
		with(`"quantity":1,"occurred_at":"x","feature":""`):                                            {"occurred_at", "feature"},
		with(`"quantity":1,"amount":2`):                                                                {"amount"},
		with(`"quantity":1,"quantity":1`):                                                              {""},
		with(`"quantity":0`):                                                                           {"quantity"},
		with(`"quantity":-1`):                                                                          {"quantity"},
		with(`"quantity":1e400`):                                                                       {"quantity"},
		with(`"quantity":"0.0000000000001"`):                                                           {"quantity"},
		with(`"quantity":1,"remaining":true`):                                                          {"quantity"},
		with(`"remaining":false`):                                                                      {"quantity"},
		with(`"remaining":1`):                                                                          {"remaining", "quantity"},
		with(`"quantity":1,"metadata":[]`):                                                             {"metadata"},
		with(`"replace":5`):                                                                            {"replace"},
		with(`"replace":{"id":"r","tenant":"acme","feature":"f"}`):                                     {"replace.quantity"},
		with(`"replace":{"id":"r","tenant":"acme","feature":"f","quantity":1,"x":1}`):                  {"replace.x"},
		with(`"replace":{"id":"r","tenant":"other","feature":"f","quantity":1}`):                       {"replace.tenant"},
		with(`"quantity":1,"replace":{"id":"r","tenant":"acme","feature":"f","quantity":1}`):           {"quantity"},
		with(`"quantity":1,"reason":"` + strings.Repeat("x", 1025) + `"`):                              {"reason"},
		with(`"quantity":1,"reason":"a","metadata":{"reason":"b"}`):                                    {"metadata.reason"},
		with(`"quantity":1,"metadata":{"a":"` + strings.Repeat("x", meter.MaxMetadata) + `"}`):         {"metadata"},
		`{"id":"legacy:1","tenant":"acme","event_id":"` + strings.Repeat("x", 129) + `","quantity":1}`: {"id", "event_id"},
	} {
		got, err := meter.DecodeCorrection([]byte(body))
		if diff := cmp.Diff(want, fields(t, err), cmp.Transformer("set", func(s []string) map[string]bool {
			m := map[string]bool{}
			for _, f := range s {
				m[f] = true
			}
			return m
		})); diff != "" {
			t.Errorf("%.90s: %+v, %v (-want +got):\n%s", body, got, err, diff)
		}
	}
}

// What an original decides is refused by that rule, which says what to do.
func TestInheritedFieldsAreExplained(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"feature", "dimensions", "time", "occurred_at"} {
		_, err := meter.DecodeCorrection([]byte(`{"id":"c","tenant":"acme","event_id":"req_1","quantity":1,"` + field + `":null}`))
		if err == nil || !strings.Contains(err.Error(), "replace the event") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A batch names the item, and one bad item spoils no other.
func TestDecodeCorrectionBatch(t *testing.T) {
	t.Parallel()
	items, err := meter.DecodeCorrectionBatch([]byte(`[{"id":"c","tenant":"acme","event_id":"req_1","quantity":1},{"id":"d"},7]`))
	if err != nil || len(items) != 3 || items[0].Err != nil {
		t.Fatalf("%+v, %v", items, err)
	}
	for i, field := range map[int]string{1: "corrections[1].tenant", 2: "corrections[2]"} {
		errs := meter.AsErrors(items[i].Err)
		index, ok := errs[0].ItemIndex()
		if errs[0].Field != field || !ok || index != i {
			t.Errorf("%d: %v", i, errs)
		}
	}
	if _, err := meter.DecodeCorrectionBatch([]byte(`[` + strings.Repeat(`{},`, 500) + `{}]`)); err == nil {
		t.Error("501 corrections in one batch")
	}
}

// The reason is kept in the metadata, which stays JSON.
func TestStoredMetadata(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, metadata, want string }{
		{"", "", ""},
		{"", `{"a":1}`, `{"a":1}`},
		{"why", "", `{"reason":"why"}`},
		{"why", " { } ", `{"reason":"why"}`},
		{"<\"é", ` {"a":{"b":[]}} `, `{"reason":"<\"é","a":{"b":[]}}`},
	} {
		got, err := meter.Correction{Reason: tc.reason, Metadata: json.RawMessage(tc.metadata)}.StoredMetadata()
		if err != nil {
			t.Error(err)
		}
		if tc.want == "" && len(got) == 0 {
			continue
		}
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(tc.want), &b) != nil || !cmp.Equal(a, b) {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

// What is accepted keeps every limit and has a hash; what is refused says why.
func FuzzDecodeCorrection(f *testing.F) {
	for _, seed := range []string{
		`{"id":"c","tenant":"acme","event_id":"req_1","quantity":"2.50","reason":"why","metadata":{"a":1}}`,
		`{"id":"c","tenant":"acme","event_id":"ce:2:/s1:11:f","remaining":true}`, `{"id":null,"dimensions":null}`, `[]`,
		`{"id":"c","tenant":"acme","event_id":"req_1","replace":{"id":"r","tenant":"acme","feature":"f","quantity":-1}}`,
	} {
		f.Add([]byte(seed))
	}
	signed := func(string) meter.FeatureRules { return meter.FeatureRules{Signed: true} }
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := meter.DecodeCorrection(body)
		if err != nil {
			refused(t, err)
			return
		}
		rules := meter.Rules{Now: clock, Feature: signed}
		if c.Replace != nil {
			rules.Now = c.Replace.Time
		}
		if errs := rules.Correction(c); errs != nil {
			t.Fatalf("decoded, but: %v", errs)
		}
		if _, err := c.DedupeHash(); err != nil {
			t.Fatalf("no hash: %v", err)
		}
		stored, err := c.StoredMetadata()
		if err != nil || (len(stored) > 0 && !json.Valid(stored)) {
			t.Fatalf("stored metadata %s, %v", stored, err)
		}
	})
}
