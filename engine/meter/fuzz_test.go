package meter_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/engine/meter"
)

// Each target: no input panics; what is accepted keeps every limit, has a hash,
// and is JSON for the standard library too; what is refused says why.

func refused(t *testing.T, err error) {
	t.Helper()
	errs := meter.AsErrors(err)
	if len(errs) == 0 {
		t.Fatalf("refused without a reason: %v", err)
	}
	for _, e := range errs {
		if e.Rule == "" {
			t.Fatalf("refused without a rule: %v", e)
		}
	}
}

func accepted(t *testing.T, e meter.CloudEvent) {
	t.Helper()
	if errs := (meter.Rules{Now: e.Time}).CloudEvent(e); errs != nil {
		t.Fatalf("decoded, but: %v", errs)
	}
	if _, err := e.DedupeHash(); err != nil {
		t.Fatalf("no hash: %v", err)
	}
	if e.Data != nil && !json.Valid(e.Data) {
		t.Fatalf("data is not JSON: %q", e.Data)
	}
	for _, path := range []string{"$", "$.a", "$.a[0]['b']"} {
		s, err := meter.NewSet([]meter.Meter{{Feature: "f", EventType: e.Type, Aggregation: meter.Sum, Value: path, Dimensions: map[string]string{"d": "$.d"}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(e); err != nil {
			refused(t, err)
		}
	}
}

var plainSeeds = []string{
	`{"id":"req_1","tenant":"acme","feature":"tokens","quantity":"12.5","time":"2026-11-30T12:00:00.000001Z","dimensions":{"model":"m1"},"metadata":{"a":[1e400]}}`,
	`{"id":"a","tenant":"t","feature":"f","quantity":9007199254740993}`, `{"id":"a","tenant":"t","feature":"f","quantity":1e400}`,
	`{"id":"\ud800"}`, `{"id":"a","id":"b"}`, `[]`, `{"quantity":NaN}`, `{"id":null,"x":null}`,
}

func FuzzDecodePlain(f *testing.F) {
	for _, seed := range plainSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := meter.DecodePlain(body)
		if err != nil {
			refused(t, err)
			return
		}
		if errs := (meter.Rules{Now: e.Time, Feature: func(string) meter.FeatureRules { return meter.FeatureRules{Signed: true} }}).Plain(e); errs != nil || !json.Valid(body) {
			t.Fatalf("decoded, but: %v", errs)
		}
		if _, err := e.DedupeHash(); err != nil {
			t.Fatalf("no hash: %v", err)
		}
	})
}

func FuzzDecodePlainBatch(f *testing.F) {
	for _, seed := range plainSeeds {
		f.Add([]byte("[" + seed + "," + seed + "]"))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		items, err := meter.DecodePlainBatch(body)
		if err != nil {
			refused(t, err)
		}
		for i, item := range items {
			if item.Err == nil {
				continue
			}
			refused(t, item.Err)
			if n, ok := meter.AsErrors(item.Err)[0].ItemIndex(); !ok || n != i {
				t.Fatalf("item %d says it is %d", i, n)
			}
		}
	})
}

var cloudEventSeeds = []string{
	minimal + `}`, minimal + `,"time":"2026-11-30T12:00:00.1234567Z","x":true,"n":-1,"data":{"a":[{"b":12.50}],"d":"x"}}`,
	minimal + `,"datacontenttype":"text/plain","data":"a"}`, minimal + `,"data_base64":"AP8="}`,
	minimal + `,"datacontenttype":"application/json","data_base64":"eyJhIjoxfQ=="}`, minimal + `,"data":null,"y":{}}`, `{}`, `[{}]`,
}

func FuzzDecodeCloudEvent(f *testing.F) {
	for _, seed := range cloudEventSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := meter.DecodeCloudEvent(body)
		if err != nil {
			refused(t, err)
			return
		}
		accepted(t, e)
	})
}

func FuzzDecodeCloudEventBatch(f *testing.F) {
	for _, seed := range cloudEventSeeds {
		f.Add([]byte("[" + seed + "," + seed + "]"))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		items, err := meter.DecodeCloudEventBatch(body)
		if err != nil {
			refused(t, err)
		}
		for _, item := range items {
			if item.Err != nil {
				refused(t, item.Err)
			} else {
				accepted(t, item.Event)
			}
		}
	})
}

func FuzzDecodeCloudEventBinary(f *testing.F) {
	f.Add("id", "a%201", "application/json", []byte(`{"a":1}`))
	f.Add("x", `"quoted \" text"`, "text/plain", []byte("text"))
	f.Add("time", "2026-11-30T12:00:00Z", "", []byte{})
	f.Add("data_base64", "%", "application/x+json; a=b", []byte("[1"))
	f.Fuzz(func(t *testing.T, name, value, contentType string, body []byte) {
		before := bytes.Clone(body)
		h := http.Header{
			"Ce-Specversion": {"1.0"}, "Ce-Id": {"a"}, "Ce-Source": {"s"}, "Ce-Type": {"t"}, "Ce-Subject": {"u"},
			"Content-Type": {contentType},
		}
		h[http.CanonicalHeaderKey("ce-"+name)] = []string{value}
		e, err := meter.DecodeCloudEventBinary(h, body)
		if !bytes.Equal(body, before) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			refused(t, err)
			return
		}
		accepted(t, e)
	})
}

func FuzzNewSet(f *testing.F) {
	for _, seed := range []string{"$", "$.a", "$.a[0]['b']", `$["it's"]`, "$[", `$['\`, "$.\xff"} {
		f.Add(seed, "feature")
	}
	f.Fuzz(func(t *testing.T, path, feature string) {
		s, err := meter.NewSet([]meter.Meter{{Feature: feature, EventType: "t", Aggregation: meter.Sum, Value: path}})
		if err != nil {
			refused(t, err)
			return
		}
		if _, err := s.Apply(meter.CloudEvent{Type: "t", Data: json.RawMessage(`{"a":[{"b":1}]}`)}); err != nil {
			refused(t, err)
		}
	})
}
