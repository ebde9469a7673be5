package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Declared is a provider that a file describes, so that exporters in languages
// other than Go are judged too. See docs/plugins/tools.md for its fields.
type Declared struct {
	Provider

	// Header or Pointer is where a request has the identifier: a header's name,
	// or a JSON pointer into the body. One is set.
	Header  string
	Pointer string
}

// identifierPlace stands in an answer for the identifier that it is about.
const identifierPlace = "{identifier}"

type providerFile struct {
	Configuration fileConfiguration     `json:"configuration"`
	Nonsense      []fileConfiguration   `json:"nonsense"`
	Mapping       map[string]string     `json:"mapping"`
	Identifier    fileIdentifier        `json:"identifier"`
	Answers       map[Answer]fileAnswer `json:"answers"`
	AnyBody       bool                  `json:"any_body"`
	Definite      []int                 `json:"definite"`
	PerAttempt    []string              `json:"per_attempt"`
}

type fileConfiguration struct {
	Account  string          `json:"account"`
	Mode     string          `json:"mode"`
	BaseURL  string          `json:"base_url"`
	Settings json.RawMessage `json:"settings"`
	// SettingsText is for settings that are no JSON.
	SettingsText string `json:"settings_text"`
}

type fileIdentifier struct {
	Header  string `json:"header"`
	Pointer string `json:"pointer"`
}

type fileAnswer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
}

// ReadProvider reads the provider of a file.
func ReadProvider(path string) (Provider, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Provider{}, sdk.Invalid("provider", err.Error())
	}
	d, err := ParseProvider(text)
	return d.Provider, err
}

// ParseProvider reads a provider from JSON. The error has tag invalid and names
// the field.
func ParseProvider(text []byte) (Declared, error) {
	var f providerFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Declared{}, sdk.Invalid("provider", "a JSON object of the documented shape: "+err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Declared{}, sdk.Invalid("provider", "one JSON object and nothing after it")
	}
	if (f.Identifier.Header == "") == (f.Identifier.Pointer == "") {
		return Declared{}, sdk.Invalid("provider.identifier", "a header or a pointer: where a request has the identifier")
	}
	if f.Identifier.Pointer != "" && f.Identifier.Pointer[0] != '/' {
		return Declared{}, sdk.Invalid("provider.identifier.pointer", "a JSON pointer, such as /id")
	}
	answers := map[Answer]fileAnswer{}
	for name, a := range f.Answers {
		switch {
		case !slices.Contains([]Answer{Accept, Duplicate, Refuse, Mend}, name):
			return Declared{}, sdk.Invalid("provider.answers", "accept, duplicate, refuse and mend")
		case a.Status < 200 || a.Status > 599:
			return Declared{}, sdk.Invalid(fmt.Sprintf("provider.answers.%s.status", name), "200 to 599")
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, a.Body); err == nil { // absent is no JSON
			a.Body = compact.Bytes()
		}
		answers[name] = a
	}
	if _, ok := answers[Accept]; !ok {
		return Declared{}, sdk.Invalid("provider.answers", "has accept: what the provider says when it takes an item")
	}
	out := Declared{Header: f.Identifier.Header, Pointer: f.Identifier.Pointer, Provider: Provider{
		Configuration: f.Configuration.configuration(), Mapping: f.Mapping,
		AnyBody: f.AnyBody, Definite: f.Definite, PerAttempt: f.PerAttempt,
		Answer: func(a Answer, _ capability.Request, items []exporter.Item) (capability.Response, bool) {
			answer, ok := answers[a]
			if !ok {
				return capability.Response{}, false
			}
			if len(items) != 1 {
				return capability.Response{Status: 400}, true
			}
			return answer.response(identifierOf(items[0])), true
		},
	}}
	for _, c := range f.Nonsense {
		out.Nonsense = append(out.Nonsense, c.configuration())
	}
	return out, nil
}

// identifierOf is the identifier that an item's request is about.
func identifierOf(it exporter.Item) string {
	if it.Corrects != nil && it.Corrects.Method == exporter.CorrectCancel {
		return it.Corrects.Identifier
	}
	return it.Identifier
}

func (c fileConfiguration) configuration() exporter.Configuration {
	out := exporter.Configuration{Name: "sample", Account: c.Account, Mode: c.Mode, BaseURL: c.BaseURL, Settings: c.Settings}
	if c.SettingsText != "" {
		out.Settings = []byte(c.SettingsText)
	}
	return out
}

func (a fileAnswer) response(identifier string) capability.Response {
	r := capability.Response{Status: a.Status}
	quoted, err := json.Marshal(identifier)
	if err != nil {
		panic(err) // a string
	}
	inside := string(quoted[1 : len(quoted)-1])
	if len(a.Body) > 0 {
		r.Headers = append(r.Headers, capability.Header{Name: "Content-Type", Value: "application/json"})
		r.Body = []byte(strings.ReplaceAll(string(a.Body), identifierPlace, inside))
	}
	for name, value := range a.Headers {
		r.Headers = append(r.Headers, capability.Header{Name: name, Value: strings.ReplaceAll(value, identifierPlace, identifier)})
	}
	return r
}

// Identify returns the identifier that a request carries, if it has one.
func (d Declared) Identify(header func(string) string, body []byte) (string, bool) {
	if d.Header != "" {
		id := header(d.Header)
		return id, id != ""
	}
	var at any
	if err := json.Unmarshal(body, &at); err != nil {
		return "", false
	}
	for key := range strings.SplitSeq(d.Pointer[1:], "/") {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		switch v := at.(type) {
		case map[string]any:
			at = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(v) {
				return "", false
			}
			at = v[i]
		default:
			return "", false
		}
	}
	id, ok := at.(string)
	return id, ok && id != ""
}
