package meter_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine/meter"
)

// official builds the events that the official SDK sends in these tests.
func official(t *testing.T) map[string]event.Event {
	t.Helper()
	build := func(contentType string, data any) event.Event {
		e := event.New()
		e.SetID("a-1 €")
		e.SetSource("https://example.com/api?x=1")
		e.SetType("llm.completion")
		e.SetSubject("acme")
		e.SetTime(time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.FixedZone("", 3600)))
		e.SetDataSchema("https://example.com/schema")
		e.SetExtension("traceparent", "00-ab")
		e.SetExtension("sampled", true)
		e.SetExtension("priority", int32(-3))
		if contentType != "" {
			if err := e.SetData(contentType, data); err != nil {
				t.Fatal(err)
			}
		}
		return e
	}
	return map[string]event.Event{
		"JSON":    build(event.ApplicationJSON, json.RawMessage(`{"tokens":9007199254740993,"model":"m<1>"}`)),
		"text":    build(event.TextPlain, "a\n\"b\" €"),
		"bytes":   build("application/octet-stream", []byte{0, 255}),
		"no data": build("", nil),
	}
}

// What the official SDK writes, we read; in each mode the same event.
func TestInteropWithOfficialSDK(t *testing.T) {
	t.Parallel()
	for name, sent := range official(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := meter.CloudEvent{
				ID: "a-1 €", Source: sent.Source(), Type: "llm.completion", Subject: "acme",
				Time:            time.Date(2026, 11, 30, 11, 0, 0, 123456000, time.UTC),
				DataContentType: sent.DataContentType(), DataSchema: "https://example.com/schema",
				Extensions: map[string]string{"traceparent": "00-ab", "sampled": "true", "priority": "-3"},
			}
			switch name {
			case "JSON":
				want.Data = sent.Data()
			case "no data":
			default:
				want.Bytes = sent.Data()
			}
			structured, err := json.Marshal(sent)
			if err != nil {
				t.Fatal(err)
			}
			got, err := meter.DecodeCloudEvent(structured)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("structured: %v (-want +got):\n%s", err, diff)
			}
			got, err = decodeBinary(t, sent)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("binary: %v (-want +got):\n%s", err, diff)
			}
			batch, err := json.Marshal([]event.Event{sent, sent})
			if err != nil {
				t.Fatal(err)
			}
			items, err := meter.DecodeCloudEventBatch(batch)
			if err != nil || len(items) != 2 {
				t.Fatalf("batch: %v, %v", items, err)
			}
			for _, item := range items {
				if diff := cmp.Diff(want, item.Event); item.Err != nil || diff != "" {
					t.Errorf("batch: %v (-want +got):\n%s", item.Err, diff)
				}
			}
		})
	}
}

func decodeBinary(t *testing.T, e event.Event) (meter.CloudEvent, error) {
	t.Helper()
	w := headerWriter{header: make(http.Header)}
	if _, err := binding.Write(t.Context(), binding.ToMessage(&e), nil, &w); err != nil {
		t.Fatal(err)
	}
	return meter.DecodeCloudEventBinary(w.header, w.body)
}

// headerWriter writes a binary message as the SDK's HTTP protocol does, which is
// not imported because it brings a logging library: values in the SDK's own
// text, not percent-encoded.
type headerWriter struct {
	header http.Header
	body   []byte
}

func (w *headerWriter) Start(context.Context) error { return nil }
func (w *headerWriter) End(context.Context) error   { return nil }

func (w *headerWriter) SetAttribute(attribute spec.Attribute, value any) error {
	name := "ce-" + attribute.Name()
	if attribute.Kind() == spec.DataContentType {
		name = "Content-Type"
	}
	return w.set(name, value)
}

func (w *headerWriter) SetExtension(name string, value any) error { return w.set("ce-"+name, value) }

func (w *headerWriter) set(name string, value any) error {
	if value == nil {
		return nil
	}
	text, err := types.Format(value)
	w.header.Set(name, text)
	return err
}

func (w *headerWriter) SetData(data io.Reader) (err error) {
	w.body, err = io.ReadAll(data)
	return err
}
