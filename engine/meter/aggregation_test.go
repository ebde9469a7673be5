package meter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Q7, Q8: what each aggregation stores of an event. Those that read a number
// store it; count stores one, and unique one with its text as a dimension.
func TestApplyByAggregation(t *testing.T) {
	t.Parallel()
	data := json.RawMessage(`{"n":"-2.50","user":"u1","id":7.0,"region":"eu"}`)
	for _, tc := range []struct {
		how        meter.Aggregation
		value      string
		quantity   string
		dimensions map[string]string
	}{
		{meter.Sum, "$.n", "-2.5", map[string]string{"region": "eu"}},
		{meter.Max, "$.n", "-2.5", map[string]string{"region": "eu"}},
		{meter.Min, "$.n", "-2.5", map[string]string{"region": "eu"}},
		{meter.Avg, "$.n", "-2.5", map[string]string{"region": "eu"}},
		{meter.Latest, "$.n", "-2.5", map[string]string{"region": "eu"}},
		{meter.Count, "", "1", map[string]string{"region": "eu"}},
		{meter.Unique, "$.user", "1", map[string]string{"region": "eu", "value": "u1"}},
		{meter.Unique, "$.id", "1", map[string]string{"region": "eu", "value": "7"}},
	} {
		s := set(t, meter.Meter{
			Feature: "f", EventType: "t", Aggregation: tc.how, Value: tc.value, Dimensions: map[string]string{"region": "$.region"},
		})
		got, err := s.Apply(meter.CloudEvent{Type: "t", Data: data})
		if err != nil {
			t.Errorf("%s: %v", tc.how, err)
			continue
		}
		want := meter.Measurement{Feature: "f", Quantity: decimal.MustParse(tc.quantity), Dimensions: tc.dimensions, Path: got[0].Path}
		if diff := cmp.Diff(want, got[0], exact); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.how, diff)
		}
	}
}

// A unique meter needs a text that can be a dimension, and one feature adds up
// in one way.
func TestUniqueRefuses(t *testing.T) {
	t.Parallel()
	s := set(t, meter.Meter{Feature: "f", EventType: "t", Aggregation: meter.Unique, Value: "$.user"})
	for _, data := range []string{``, `{}`, `{"user":null}`, `{"user":{}}`, `{"user":"` + strings.Repeat("x", 257) + `"}`} {
		e := meter.CloudEvent{Type: "t"}
		want := "data"
		if data != "" {
			e.Data, want = json.RawMessage(data), "data.user"
		}
		_, err := s.Apply(e)
		if diff := cmp.Diff([]string{want}, fields(t, err)); diff != "" {
			t.Errorf("%.20s (-want +got):\n%s", data, diff)
		}
	}
	if got, err := s.Apply(meter.CloudEvent{Type: "t", Data: json.RawMessage(`{"user":""}`)}); err != nil || got[0].Dimensions["value"] != "" || len(got[0].Dimensions) != 1 {
		t.Errorf("an empty text is a value: %v, %v", got, err)
	}
}

// Q8: which aggregations a provider can be sent event by event, and which allow
// no correction of a part.
func TestAggregations(t *testing.T) {
	t.Parallel()
	exportable := map[meter.Aggregation]bool{meter.Sum: true, meter.Count: true, "": true}
	whole := map[meter.Aggregation]bool{meter.Max: true, meter.Min: true, meter.Latest: true, meter.Unique: true}
	for _, a := range []meter.Aggregation{"", "sum", "count", "max", "min", "avg", "latest", "unique"} {
		if a.Exportable() != exportable[a] || a.WholeOnly() != whole[a] || a.Valid() != (a != "") {
			t.Errorf("%q: exportable %v, whole only %v, valid %v", a, a.Exportable(), a.WholeOnly(), a.Valid())
		}
	}
	s := set(t,
		meter.Meter{Feature: "peak", EventType: "a", Aggregation: meter.Max, Value: "$.a"},
		meter.Meter{Feature: "peak", EventType: "b", Aggregation: meter.Max, Value: "$.b"},
		meter.Meter{Feature: "mixed", EventType: "a", Aggregation: meter.Count},
		meter.Meter{Feature: "mixed", EventType: "b", Aggregation: meter.Sum, Value: "$.b"},
		meter.Meter{Feature: "calls", EventType: "c", Aggregation: meter.Count},
	)
	got := map[string]meter.Aggregation{}
	for _, f := range append(s.Features(), "nobody") {
		got[f] = s.Aggregation(f)
	}
	want := map[string]meter.Aggregation{"peak": "max", "mixed": "sum", "calls": "count", "nobody": "sum"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if (meter.Set{}).Aggregation("f") != meter.Sum || len((meter.Set{}).Features()) != 0 {
		t.Error("the empty set measures nothing, and what it does not measure is a sum")
	}
}
