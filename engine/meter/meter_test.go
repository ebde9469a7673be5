package meter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

func set(t testing.TB, meters ...meter.Meter) meter.Set {
	t.Helper()
	s, err := meter.NewSet(meters)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestApply(t *testing.T) {
	t.Parallel()
	s := set(t,
		meter.Meter{Feature: "tokens", EventType: "llm", Aggregation: meter.Sum, Value: "$.usage.tokens", Dimensions: map[string]string{
			"model": "$['model name']", "cached": "$.cached", "tier": "$.tier", "gone": "$.gone", "null": "$.null", "first": "$.list[0].x",
		}},
		meter.Meter{Feature: "calls", EventType: "llm", Aggregation: meter.Count},
		meter.Meter{Feature: "tokens", EventType: "other", Aggregation: meter.Sum, Value: "$"},
	)
	got, err := s.Apply(meter.CloudEvent{Type: "llm", Data: json.RawMessage(
		`{"usage":{"tokens":"9007199254740993.50"},"model name":"m1","cached":false,"tier":1.0,"null":null,"list":[{"x":"y"}]}`)})
	want := []meter.Measurement{
		{Feature: "calls", Quantity: decimal.One, Path: "type"},
		{Feature: "tokens", Quantity: decimal.MustParse("9007199254740993.5"), Path: "data.usage.tokens", Dimensions: map[string]string{
			"model": "m1", "cached": "false", "tier": "1", "first": "y",
		}},
	}
	if diff := cmp.Diff(want, got, exact); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = s.Apply(meter.CloudEvent{Type: "other", Data: json.RawMessage("7")})
	if err != nil || len(got) != 1 || got[0].Quantity.String() != "7" || got[0].Path != "data" {
		t.Errorf("the data itself: %+v, %v", got, err)
	}
	if !s.Matches("llm") || s.Matches("unknown") {
		t.Error("Matches is wrong")
	}
}

// An event that no meter takes is unmatched, never an error.
func TestApplyUnmatched(t *testing.T) {
	t.Parallel()
	for _, s := range []meter.Set{{}, set(t), set(t, meter.Meter{Feature: "f", EventType: "other", Aggregation: meter.Count})} {
		if got, err := s.Apply(meter.CloudEvent{Type: "llm"}); err != nil || len(got) != 0 {
			t.Errorf("%v, %v", got, err)
		}
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	s := set(t, meter.Meter{
		Feature: "tokens", EventType: "llm", Aggregation: meter.Sum, Value: "$.a.b[1]",
		Dimensions: map[string]string{"model": "$['m d']"},
	})
	for data, want := range map[string][]string{
		``:                              {"data"},
		`{}`:                            {"data.a.b[1]"},
		`{"a":{"b":[1]}}`:               {"data.a.b[1]"},
		`{"a":{"b":{"1":2}}}`:           {"data.a.b[1]"},
		`{"a":{"b":[1,null]}}`:          {"data.a.b[1]"},
		`{"a":{"b":[1,true]}}`:          {"data.a.b[1]"},
		`{"a":{"b":[1,"secret"]}}`:      {"data.a.b[1]"},
		`{"a":{"b":[1,1e400]}}`:         {"data.a.b[1]"},
		`{"a":{"b":[1,[]]}}`:            {"data.a.b[1]"},
		`{"a":{"b":[1,2]},"m d":{}}`:    {"data['m d']"},
		`{"a":{"b":[1,"x"]},"m d":[1]}`: {"data.a.b[1]", "data['m d']"},
		`{"a":{"b":[1,2]},"m d":"` + strings.Repeat("x", 257) + `"}`: {"data['m d']"},
		`{"a":`: {"data"},
	} {
		e := meter.CloudEvent{Type: "llm"}
		if data != "" {
			e.Data = json.RawMessage(data)
		}
		got, err := s.Apply(e)
		if diff := cmp.Diff(want, fields(t, err)); diff != "" || got != nil {
			t.Errorf("%s: %v, %v (-want +got):\n%s", data, got, err, diff)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error repeats the value: %v", err)
		}
	}
}

func TestMeasurementsSign(t *testing.T) {
	t.Parallel()
	ms := []meter.Measurement{
		{Feature: "credit", Quantity: decimal.MustParse("-1"), Path: "data.c"},
		{Feature: "tokens", Quantity: decimal.MustParse("-1"), Path: "data.t"},
		{Feature: "zero", Path: "data.z"},
	}
	rules := meter.Rules{Now: clock, Feature: func(f string) meter.FeatureRules { return meter.FeatureRules{Signed: f == "credit"} }}
	if diff := cmp.Diff([]string{"data.t"}, fields(t, rules.Measurements(ms).Err())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRulesCloudEvent(t *testing.T) {
	t.Parallel()
	good := meter.CloudEvent{ID: "a", Source: "s", Type: "t", Subject: "u", Time: clock.Add(meter.DefaultFuture)}
	rules := meter.Rules{Now: clock}
	if errs := rules.CloudEvent(good); errs != nil {
		t.Errorf("legal event: %v", errs)
	}
	many := make(map[string]string)
	for i := range 65 {
		many[fmt.Sprint("x", i)] = ""
	}
	for name, tc := range map[string]struct {
		change func(*meter.CloudEvent)
		field  string
	}{
		"future":          {func(e *meter.CloudEvent) { e.Time = e.Time.Add(1) }, "time"},
		"core extension":  {func(e *meter.CloudEvent) { e.Extensions = map[string]string{"id": "x"} }, "id"},
		"extension bytes": {func(e *meter.CloudEvent) { e.Extensions = map[string]string{"x": "\xff"} }, "x"},
		"65 extensions":   {func(e *meter.CloudEvent) { e.Extensions = many }, "extensions"},
		"two payloads":    {func(e *meter.CloudEvent) { e.Data, e.Bytes = []byte("1"), []byte("1") }, "data"},
		"bad data":        {func(e *meter.CloudEvent) { e.Data = []byte("{") }, "data"},
		"empty data":      {func(e *meter.CloudEvent) { e.Data = []byte{} }, "data"},
		"source bytes":    {func(e *meter.CloudEvent) { e.Source = "\xff" }, "source"},
		"content type":    {func(e *meter.CloudEvent) { e.DataContentType = "\n" }, "datacontenttype"},
		"schema":          {func(e *meter.CloudEvent) { e.DataSchema = "\xff" }, "dataschema"},
	} {
		e := good
		tc.change(&e)
		if diff := cmp.Diff([]string{tc.field}, fields(t, rules.CloudEvent(e).Err())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNewSetRefuses(t *testing.T) {
	t.Parallel()
	good := meter.Meter{Feature: "f", EventType: "t", Aggregation: meter.Sum, Value: "$.a"}
	with := func(change func(*meter.Meter)) []meter.Meter {
		second := good
		second.Feature = "g"
		change(&second)
		return []meter.Meter{good, second}
	}
	tooMany := make(map[string]string)
	for i := range 33 {
		tooMany[fmt.Sprint("k", i)] = "$.a"
	}
	for name, tc := range map[string]struct {
		meters []meter.Meter
		tag    sdk.Tag
		field  string
	}{
		"twice (Q1)":           {[]meter.Meter{good, good}, sdk.TagInvalid, "meters[1]"},
		"no feature":           {with(func(m *meter.Meter) { m.Feature = "" }), sdk.TagInvalid, "meters[1].feature"},
		"feature":              {with(func(m *meter.Meter) { m.Feature = "9f" }), sdk.TagInvalid, "meters[1].feature"},
		"no type":              {with(func(m *meter.Meter) { m.EventType = "" }), sdk.TagInvalid, "meters[1].event_type"},
		"no aggregation":       {with(func(m *meter.Meter) { m.Aggregation = "" }), sdk.TagInvalid, "meters[1].aggregation"},
		"unknown aggregation":  {with(func(m *meter.Meter) { m.Aggregation = "SUM" }), sdk.TagInvalid, "meters[1].aggregation"},
		"sum without value":    {with(func(m *meter.Meter) { m.Value = "" }), sdk.TagInvalid, "meters[1].value"},
		"count with value":     {with(func(m *meter.Meter) { m.Aggregation = meter.Count }), sdk.TagInvalid, "meters[1].value"},
		"bad path":             {with(func(m *meter.Meter) { m.Value = "tokens" }), sdk.TagInvalid, "meters[1].value"},
		"bad dimension path":   {with(func(m *meter.Meter) { m.Dimensions = map[string]string{"d": "$.*"} }), sdk.TagInvalid, "meters[1].dimensions.d"},
		"empty dimension name": {with(func(m *meter.Meter) { m.Dimensions = map[string]string{"": "$.a"} }), sdk.TagInvalid, "meters[1].dimensions"},
		"another aggregation":  {with(func(m *meter.Meter) { m.Feature, m.EventType, m.Aggregation = "f", "u", meter.Max }), sdk.TagInvalid, "meters[1].aggregation"},
		"unique without value": {with(func(m *meter.Meter) { m.Aggregation, m.Value = meter.Unique, "" }), sdk.TagInvalid, "meters[1].value"},
		"unique, value taken": {with(func(m *meter.Meter) {
			m.Aggregation, m.Dimensions = meter.Unique, map[string]string{"value": "$.a"}
		}), sdk.TagInvalid, "meters[1].dimensions.value"},
		"33 dimensions": {with(func(m *meter.Meter) { m.Dimensions = tooMany }), sdk.TagInvalid, "meters[1].dimensions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := meter.NewSet(tc.meters)
			if diff := cmp.Diff([]string{tc.field}, fields(t, err)); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if sdk.TagOf(err) != tc.tag {
				t.Errorf("tag %s, want %s", sdk.TagOf(err), tc.tag)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	data := json.RawMessage(`{"a":{"b-c_1":[[1,2],{"é":3}]},"it's":4,"q\"":5,"":6,"x.y":7,"]":8,"\\":9}`)
	for path, want := range map[string]string{
		`$.a.b-c_1[0][1]`:       "2",
		`$.a['b-c_1'][1].é`:     "3",
		`$['it\'s']`:            "4",
		`$["it's"]`:             "4",
		`$['q"']`:               "5",
		`$['']`:                 "6",
		`$['x.y']`:              "7",
		`$[']']`:                "8",
		`$['\\']`:               "9",
		``:                      "",
		`a`:                     "",
		`$a`:                    "",
		`$.`:                    "",
		`$..a`:                  "",
		`$.a.`:                  "",
		`$.a b`:                 "",
		`$.*`:                   "",
		`$[*]`:                  "",
		`$[-1]`:                 "",
		`$[01]`:                 "",
		`$[1:2]`:                "",
		`$[1`:                   "",
		`$[`:                    "",
		`$[]`:                   "",
		`$['a]`:                 "",
		`$['a'`:                 "",
		`$['a"]`:                "",
		`$['a\n']`:              "",
		`$['a\`:                 "",
		`$.a[?(@.b)]`:           "",
		`$.a\`:                  "",
		`$[100001]`:             "",
		"$['a\n']":              "",
		"$.\xff":                "",
		`$` + deepPath(33):      "",
		`$['` + longPath + "']": "",
	} {
		s, err := meter.NewSet([]meter.Meter{{Feature: "f", EventType: "t", Aggregation: meter.Sum, Value: path}})
		if want == "" {
			if err == nil {
				t.Errorf("path %q is accepted", path)
			}
			continue
		}
		if err != nil {
			t.Errorf("path %q: %v", path, err)
			continue
		}
		got, err := s.Apply(meter.CloudEvent{Type: "t", Data: data})
		if err != nil || got[0].Quantity.String() != want {
			t.Errorf("path %q: %v, %v; want %s", path, got, err, want)
		}
	}
}

func deepPath(n int) string { return strings.Repeat(".a", n) }

var longPath = strings.Repeat("a", 256)

func TestErrors(t *testing.T) {
	t.Parallel()
	if err := meter.Errors(nil).Err(); err != nil {
		t.Errorf("no errors: %v", err)
	}
	cause := sdk.Unavailable("timeout", errors.New("x"))
	if got := meter.AsErrors(fmt.Errorf("wrapped: %w", cause)); len(got) != 1 || got[0] != cause {
		t.Errorf("AsErrors = %v", got)
	}
	if got := meter.AsErrors(errors.New("untagged")); got != nil {
		t.Errorf("AsErrors = %v", got)
	}
	two := meter.Errors{sdk.Invalid("a", "x"), cause}
	if !errors.Is(two.Err(), sdk.ErrUnavailable) || !errors.Is(two.Err(), sdk.ErrInvalid) {
		t.Error("errors.Is does not look into each")
	}
	if two.At(3)[0].Field != "events[3].a" || two[0].Field != "a" {
		t.Error("At changes its receiver")
	}
}

func BenchmarkDecodeAndMeasure(b *testing.B) {
	s := set(b,
		meter.Meter{Feature: "context", EventType: "llm.completion", Aggregation: meter.Sum, Value: "$.usage.context", Dimensions: map[string]string{"model": "$.model"}},
		meter.Meter{Feature: "generated", EventType: "llm.completion", Aggregation: meter.Sum, Value: "$.usage.generated", Dimensions: map[string]string{"model": "$.model"}},
	)
	body := []byte(`{"specversion":"1.0","id":"a-1","source":"/api","type":"llm.completion","subject":"acme","time":"2026-11-30T12:00:00Z",
		"data":{"model":"m1","usage":{"context":4808,"generated":10},"request":{"path":"/v1/completions","region":"eu-1"}}}`)
	b.ReportAllocs()
	for b.Loop() {
		e, err := meter.DecodeCloudEvent(body)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Apply(e); err != nil {
			b.Fatal(err)
		}
		if _, err := e.DedupeHash(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodePlain(b *testing.B) {
	body := []byte(`{"id":"req_1","tenant":"acme","feature":"tokens","quantity":"12.5","time":"2026-11-30T12:00:00.000001Z","dimensions":{"model":"m1"}}`)
	b.ReportAllocs()
	for b.Loop() {
		e, err := meter.DecodePlain(body)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.DedupeHash(); err != nil {
			b.Fatal(err)
		}
	}
}
