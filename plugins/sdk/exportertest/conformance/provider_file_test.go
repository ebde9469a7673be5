package conformance_test

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// A provider's file says what it says, about the identifier that was sent; one
// that cannot be meant is refused by its field.
func TestProviderFile(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		`{`:                               "provider",
		`{}{}`:                            "provider",
		`{"answer":{}}`:                   "provider",
		`{"answers":{}}`:                  "provider.identifier",
		`{"identifier":{"header":"K"}}`:   "provider.answers",
		`{"identifier":{"pointer":"id"}}`: "provider.identifier.pointer",
		`{"identifier":{"header":"K","pointer":"/id"}}`:                              "provider.identifier",
		`{"identifier":{"header":"K"},"answers":{"accept":{"status":20}}}`:           "provider.answers.accept.status",
		`{"identifier":{"header":"K"},"answers":{"maybe":{"status":200}}}`:           "provider.answers",
		`{"identifier":{"header":"K"},"answers":{"refuse":{"status":400}}}`:          "provider.answers",
		`{"identifier":{"header":"K"},"answers":{"accept":{"status":200,"code":1}}}`: "provider",
	} {
		_, err := conformance.ParseProvider([]byte(text))
		if tagged, ok := errors.AsType[*sdk.Error](err); !ok || tagged.Tag != sdk.TagInvalid || tagged.Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
	d, err := conformance.ParseProvider([]byte(`{"configuration":{"mode":"test"},"identifier":{"pointer":"/a/1/b~1c"},
		"nonsense":[{"settings_text":"null"}],
		"answers":{"accept":{"status":201,"headers":{"X-Id":"{identifier}"},"body":{ "id": "{identifier}" }}}}`))
	if err != nil {
		t.Fatal(err)
	}
	items := []exporter.Item{{Identifier: `a"b`, Kind: "event"}}
	r, ok := d.Answer(conformance.Accept, capability.Request{}, items)
	if !ok || r.Status != 201 || string(r.Body) != `{"id":"a\"b"}` || r.Headers[1].Value != `a"b` {
		t.Errorf("%+v %s", r, r.Body)
	}
	items[0].Corrects = &exporter.Corrects{Method: exporter.CorrectCancel, Identifier: "original"}
	if r, _ := d.Answer(conformance.Accept, capability.Request{}, items); string(r.Body) != `{"id":"original"}` {
		t.Errorf("of a cancellation: %s", r.Body)
	}
	if _, ok := d.Answer(conformance.Duplicate, capability.Request{}, items); ok {
		t.Error("it says what the file has not")
	}
	if r, ok := d.Answer(conformance.Accept, capability.Request{}, append(items, items...)); !ok || r.Status != 400 {
		t.Errorf("about two items: %+v", r)
	}
	none := func(string) string { return "" }
	for body, want := range map[string]string{
		`{"a":[0,{"b/c":"id_1"}]}`: "id_1", `{"a":[0]}`: "", `{"a":{"1":{"b/c":"x"}}}`: "x", `{"a":[0,{"b/c":1}]}`: "", `no`: "", `{"a":"b"}`: "",
	} {
		if id, ok := d.Identify(none, []byte(body)); id != want || ok != (want != "") {
			t.Errorf("%s: %q %v", body, id, ok)
		}
	}
	if string(d.Nonsense[0].Settings) != "null" || d.Configuration.Mode != "test" {
		t.Errorf("%+v", d.Provider)
	}
}
