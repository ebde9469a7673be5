package meter_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine/meter"
)

const minimal = `{"specversion":"1.0","id":"a-1","source":"/api","type":"t","subject":"acme"`

func TestDecodeCloudEvent(t *testing.T) {
	t.Parallel()
	got, err := meter.DecodeCloudEvent([]byte(`{"specversion":"1.0","id":"a-1","source":"/api","type":"llm.completion",
		"subject":"acme","time":"2026-11-30T12:00:00.1234567Z","dataschema":"https://x.test/s","traceparent":"00-ab",
		"sampled":true,"priority":-0,"gone":null,"data":{"tokens":12.50}}`))
	want := meter.CloudEvent{
		ID: "a-1", Source: "/api", Type: "llm.completion", Subject: "acme",
		Time: time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC), DataSchema: "https://x.test/s",
		DataContentType: "application/json",
		Extensions:      map[string]string{"traceparent": "00-ab", "sampled": "true", "priority": "0"},
		Data:            json.RawMessage(`{"tokens":12.50}`),
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// CloudEvents JSON format 1.0.2, section 3.1: the forms of data.
func TestStructuredData(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		with  string
		typ   string
		data  string
		bytes string
	}{
		"none":                      {``, "", "", ""},
		"null":                      {`,"data":null`, "", "", ""},
		"JSON without type":         {`,"data":[1]`, "application/json", "[1]", ""},
		"JSON string without type":  {`,"data":"x"`, "application/json", `"x"`, ""},
		"JSON type":                 {`,"datacontenttype":"application/json; charset=utf-8","data":"x"`, "application/json; charset=utf-8", `"x"`, ""},
		"structured suffix":         {`,"datacontenttype":"application/vnd.x+json","data":1`, "application/vnd.x+json", "1", ""},
		"text":                      {`,"datacontenttype":"text/plain","data":"a\nb"`, "text/plain", "", "a\nb"},
		"empty text":                {`,"datacontenttype":"text/plain","data":""`, "text/plain", "", ""},
		"base64":                    {`,"datacontenttype":"application/octet-stream","data_base64":"AP8="`, "application/octet-stream", "", "\x00\xff"},
		"base64 of JSON":            {`,"datacontenttype":"application/json","data_base64":"eyJhIjoxfQ=="`, "application/json", `{"a":1}`, ""},
		"base64 without type":       {`,"data_base64":"eyJhIjoxfQ=="`, "", "", `{"a":1}`},
		"data before its type":      {`,"data":"x","datacontenttype":"text/plain"`, "text/plain", "", "x"},
		"type that does not parse":  {`,"datacontenttype":";;","data":"x"`, ";;", "", "x"},
		"data_base64 null and data": {`,"data_base64":null,"data":1`, "application/json", "1", ""},
	} {
		e, err := meter.DecodeCloudEvent([]byte(minimal + tc.with + "}"))
		if err != nil || e.DataContentType != tc.typ || string(e.Data) != tc.data || string(e.Bytes) != tc.bytes {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		if (e.Data != nil) != (tc.data != "") || (e.Bytes != nil) != (tc.bytes != "") {
			t.Errorf("%s: empty data is not absent", name)
		}
	}
}

func TestDecodeCloudEventRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	for name, tc := range map[string]struct {
		body   string
		fields []string
	}{
		"nothing":              {`{}`, []string{"id", "source", "specversion", "subject", "type"}},
		"no specversion":       {`{"id":"a","source":"s","type":"t","subject":"u"}`, []string{"specversion"}},
		"null specversion":     {`{"specversion":null,"id":"a","source":"s","type":"t","subject":"u"}`, []string{"specversion"}},
		"number specversion":   {`{"specversion":1.0,"id":"a","source":"s","type":"t","subject":"u"}`, []string{"specversion"}},
		"old specversion":      {`{"specversion":"0.3","id":"a","source":"s","type":"t","subject":"u"}`, []string{"specversion"}},
		"empty id":             {`{"specversion":"1.0","id":"","source":"s","type":"t","subject":"u"}`, []string{"id"}},
		"long everything":      {`{"specversion":"1.0","id":"` + long + `","source":"` + long + `","type":"` + long + `","subject":"` + long + `"}`, []string{"id", "source", "subject", "type"}},
		"no subject":           {`{"specversion":"1.0","id":"a","source":"s","type":"t"}`, []string{"subject"}},
		"control in source":    {`{"specversion":"1.0","id":"a","source":"s\u001b","type":"t","subject":"u"}`, []string{"source"}},
		"NUL in an extension":  {minimal + `,"x":"\u0000"}`, []string{"x"}},
		"id twice":             {minimal + `,"id":"a-1"}`, []string{""}},
		"bad time":             {minimal + `,"time":"yesterday"}`, []string{"time"}},
		"time as number":       {minimal + `,"time":1764504000}`, []string{"time"}},
		"nested extension":     {minimal + `,"x":{"a":1}}`, []string{"x"}},
		"array extension":      {minimal + `,"x":[1]}`, []string{"x"}},
		"fraction extension":   {minimal + `,"x":1.5}`, []string{"x"}},
		"capital extension":    {minimal + `,"traceParent":"x"}`, []string{"traceParent"}},
		"extension with space": {minimal + `,"a b":"x"}`, []string{"extensions"}},
		"empty extension name": {minimal + `,"":"x"}`, []string{"extensions"}},
		"long extension":       {minimal + `,"x":"` + strings.Repeat("x", 2049) + `"}`, []string{"x"}},
		"data twice":           {minimal + `,"data":1,"data_base64":"AA=="}`, []string{"data"}},
		"bad base64":           {minimal + `,"data_base64":"A"}`, []string{"data_base64"}},
		"base64 trailing bits": {minimal + `,"data_base64":"AB=="}`, []string{"data_base64"}},
		"base64 with newline":  {minimal + `,"data_base64":"AA\n=="}`, []string{"data_base64"}},
		"base64 as number":     {minimal + `,"data_base64":1}`, []string{"data_base64"}},
		"base64 of bad JSON":   {minimal + `,"datacontenttype":"application/json","data_base64":"eyJh"}`, []string{"data"}},
		"object as text":       {minimal + `,"datacontenttype":"text/plain","data":{"a":1}}`, []string{"data"}},
		"key twice in data":    {minimal + `,"data":{"a":1,"a":1}}`, []string{"data"}},
		"surrogate in data":    {minimal + `,"data":"\udfff"}`, []string{"data"}},
		"data too deep":        {minimal + `,"data":` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + "}", []string{"data"}},
		"batch":                {"[" + minimal + "}]", []string{""}},
		"not JSON":             {"specversion: 1.0", []string{""}},
		"too long":             {minimal + strings.Repeat(" ", 1<<20) + "}", []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := meter.DecodeCloudEvent([]byte(tc.body))
			if diff := cmp.Diff(tc.fields, fields(t, err)); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestDecodeCloudEventBatch(t *testing.T) {
	t.Parallel()
	items, err := meter.DecodeCloudEventBatch([]byte("[" + minimal + `},{"specversion":"1.0"},` + minimal + `,"data":"\ud800"}]`))
	if err != nil || len(items) != 3 {
		t.Fatalf("%v, %v", items, err)
	}
	if items[0].Err != nil || items[0].Event.ID != "a-1" {
		t.Errorf("first: %+v", items[0])
	}
	want := []string{"events[1].id", "events[1].source", "events[1].subject", "events[1].type"}
	if diff := cmp.Diff(want, fields(t, items[1].Err)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"events[2].data"}, fields(t, items[2].Err)); diff != "" {
		t.Error(diff)
	}
}

// CloudEvents HTTP binding 1.0.2, section 3.1.3: header values.
func TestDecodeBinary(t *testing.T) {
	t.Parallel()
	got, err := meter.DecodeCloudEventBinary(header(
		"ce-specversion", "1.0", "ce-id", "a%201", "ce-source", "/api", "CE-Type", "llm.completion",
		"ce-subject", "%E2%82%AC%20acme%22", "ce-time", "2026-11-30T12:00:00Z", "ce-traceparent", "00-ab",
		"ce-old", `"quoted \"text\" 100%25"`, "Content-Type", "application/json", "X-Other", "ignored", "Cerberus", "ignored",
	), []byte(`{"tokens":1}`))
	want := meter.CloudEvent{
		ID: "a 1", Source: "/api", Type: "llm.completion", Subject: `€ acme"`,
		Time: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), DataContentType: "application/json",
		Extensions: map[string]string{"traceparent": "00-ab", "old": `quoted "text" 100%`},
		Data:       json.RawMessage(`{"tokens":1}`),
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestDecodeBinaryRefuses(t *testing.T) {
	t.Parallel()
	with := func(pairs ...string) http.Header {
		h := header("ce-specversion", "1.0", "ce-id", "a", "ce-source", "s", "ce-type", "t", "ce-subject", "u",
			"Content-Type", "application/json")
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	twoSpellings := with()
	twoSpellings["ce-x"] = []string{"1"}
	twoSpellings["Ce-X"] = []string{"2"}
	for name, tc := range map[string]struct {
		header http.Header
		body   string
		fields []string
	}{
		"no attributes":       {header("Content-Type", "application/json"), `{}`, []string{"id", "source", "specversion", "subject", "type"}},
		"id twice":            {with("ce-id", "b"), `{}`, []string{"id"}},
		"two spellings":       {twoSpellings, `{}`, []string{"x"}},
		"content type twice":  {with("Content-Type", "text/plain"), `{}`, []string{"datacontenttype"}},
		"ce-datacontenttype":  {with("ce-datacontenttype", "text/plain"), `{}`, []string{"datacontenttype"}},
		"ce-data":             {with("ce-data", "1"), `{}`, []string{"data"}},
		"half an escape":      {with("ce-x", "100%"), `{}`, []string{"x"}},
		"escape of no UTF-8":  {with("ce-x", "%ff"), `{}`, []string{"x"}},
		"escaped NUL":         {with("ce-x", "%00"), `{}`, []string{"x"}},
		"open quote":          {with("ce-x", `"a`), `{}`, []string{"x"}},
		"quote in the middle": {with("ce-x", `"a"b`), `{}`, []string{"x"}},
		"underscore":          {with("ce-a_b", "x"), `{}`, []string{"a_b"}},
		"no name":             {with("ce-", "x"), `{}`, []string{"headers"}},
		"bad JSON":            {with(), `{"a":`, []string{"data"}},
		"JSON key twice":      {with(), `{"a":1,"a":2}`, []string{"data"}},
		"too long":            {with(), strings.Repeat(" ", 1<<20+1), []string{""}},
	} {
		_, err := meter.DecodeCloudEventBinary(tc.header, []byte(tc.body))
		if diff := cmp.Diff(tc.fields, fields(t, err)); diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// Q1: one event has one hash, whatever mode, order, spacing and notation it
// came in; any change of the event has another. Meters play no part.
func TestCloudEventDedupeHash(t *testing.T) {
	t.Parallel()
	hash := func(e meter.CloudEvent, err error) [32]byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		h, err := e.DedupeHash()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	want := hash(meter.DecodeCloudEvent([]byte(minimal + `,"n":42,"data":{"a":1,"b":2.50}}`)))
	same := map[string][32]byte{
		"order and notation": hash(meter.DecodeCloudEvent([]byte(`{"n":"42","data":{ "b":25e-1, "a":1.0 },"time":null,` + minimal[1:] + "}"))),
		"binary": hash(meter.DecodeCloudEventBinary(header("ce-specversion", "1.0", "ce-id", "a-1", "ce-source", "/api",
			"ce-type", "t", "ce-subject", "acme", "ce-n", "42", "Content-Type", "application/json"), []byte(` {"b":2.5,"a":1}`))),
		"base64": hash(meter.DecodeCloudEvent([]byte(minimal + `,"n":42,"datacontenttype":"application/json","data_base64":"eyJhIjoxLCJiIjoyLjV9"}`))),
	}
	for name, got := range same {
		if got != want {
			t.Errorf("%s: another hash", name)
		}
	}
	seen := map[[32]byte]string{want: "base"}
	for name, body := range map[string]string{
		"a time":       minimal + `,"n":42,"time":"2026-11-30T12:00:00Z","data":{"a":1,"b":2.5}}`,
		"extension":    minimal + `,"n":43,"data":{"a":1,"b":2.5}}`,
		"no extension": minimal + `,"data":{"a":1,"b":2.5}}`,
		"one more":     minimal + `,"n":42,"m":"","data":{"a":1,"b":2.5}}`,
		"data":         minimal + `,"n":42,"data":{"a":1,"b":2.51}}`,
		"no data":      minimal + `,"n":42}`,
		"schema":       minimal + `,"n":42,"dataschema":"s:x","data":{"a":1,"b":2.5}}`,
		"content type": minimal + `,"n":42,"datacontenttype":"text/json","data":{"a":1,"b":2.5}}`,
		"data as text": minimal + `,"n":42,"datacontenttype":"text/plain","data":"{\"a\":1,\"b\":2.5}"}`,
		"type":         `{"specversion":"1.0","id":"a-1","source":"/api","type":"u","subject":"acme","n":42,"data":{"a":1,"b":2.5}}`,
		"id":           `{"specversion":"1.0","id":"a-2","source":"/api","type":"t","subject":"acme","n":42,"data":{"a":1,"b":2.5}}`,
		"source":       `{"specversion":"1.0","id":"a-1","source":"/ap","type":"t","subject":"acme","n":42,"data":{"a":1,"b":2.5}}`,
		"subject":      `{"specversion":"1.0","id":"a-1","source":"/api","type":"t","subject":"acm","n":42,"data":{"a":1,"b":2.5}}`,
	} {
		got := hash(meter.DecodeCloudEvent([]byte(body)))
		if twin, twice := seen[got]; twice {
			t.Errorf("%s has the hash of %s", name, twin)
		}
		seen[got] = name
	}
}
