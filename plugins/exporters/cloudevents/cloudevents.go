// Package cloudevents exports usage as batches of events to an ingestion API in
// the manner of OpenMeter, which takes CloudEvents, or of Lago, which has a form
// of its own for the same facts. The address is the operator's base_url.
//
// # Settings
//
//	shape: openmeter   an array of CloudEvents to base_url/api/v1/events
//	shape: lago        a batch to base_url/api/v1/events/batch; the customer of
//	                   an item is the subscription's external id
//	source: TEXT       the CloudEvents' source, default fencepost
//
// # Mapping of a feature
//
//	event_type   the CloudEvents' type, or the code of the billable metric; required
//	value_key    key of the value in data or properties, default value
package cloudevents

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Shapes of an ingestion API.
const (
	ShapeOpenMeter = "openmeter"
	ShapeLago      = "lago"
)

// New builds the exporter on the host's HTTP capability. It is an
// [exporter.New].
func New(host capability.Host) exporter.Exporter { return &Exporter{http: host.HTTP} }

// Exporter sends items in batches. Make it with [New]; the zero value can only
// describe itself. It is not for use from two goroutines at once.
type Exporter struct {
	http  capability.HTTP
	base  string
	shape shape
}

type settings struct {
	Shape  string `json:"shape"`
	Source string `json:"source"`
}

// Describe returns the manifest.
func (*Exporter) Describe(context.Context) (exporter.Manifest, error) { return manifest(), nil }

// Configure checks and takes the operator's settings. Its errors are tagged
// invalid and name the field.
func (e *Exporter) Configure(_ context.Context, c exporter.Configuration) error {
	if e.http == nil {
		return &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "capability_missing", Field: "http",
			Rule: "the capability http", Hint: "grant http to this plugin",
		}
	}
	if c.Mode != "test" && c.Mode != "live" {
		return sdk.Invalid("mode", "test or live")
	}
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return sdk.Invalid("base_url", `the https address of the service without query, such as "https://openmeter.cloud"`)
	}
	var s settings
	d := json.NewDecoder(bytes.NewReader(c.Settings))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return sdk.Invalid("settings", "a JSON object with shape (openmeter or lago), and source if you like")
	}
	switch s.Shape {
	case ShapeOpenMeter:
		if s.Source == "" {
			s.Source = "fencepost"
		}
		e.shape = openMeter{source: s.Source}
	case ShapeLago:
		if s.Source != "" {
			return sdk.Invalid("settings.source", "absent: Lago's events have none")
		}
		e.shape = lago{}
	default:
		return sdk.Invalid("settings.shape", "openmeter or lago")
	}
	e.base = strings.TrimRight(c.BaseURL, "/")
	return nil
}

// Close has nothing to release.
func (*Exporter) Close(context.Context) error { return nil }

// shape is how an API wants the same facts.
type shape interface {
	// request returns path, content type and body of a batch.
	request(items []*exporter.Item) (path, contentType string, body []byte, err error)
	// refuses reports whether an answer says that nothing of its request was
	// taken. A proxy's may have the same status.
	refuses(status int, body []byte) bool
	// faulty says what a refusal of a whole batch says of its items, in their
	// order.
	faulty(n int, body []byte) []verdict
	// lookup is the path at which an item that exists is read back; empty: it
	// cannot be.
	lookup(item *exporter.Item) string
	// same reports whether what was read back is the item.
	same(item *exporter.Item, body []byte) (found, same bool)
}

// verdict is what a refused batch says of one item.
type verdict uint8

const (
	verdictSilent verdict = iota
	verdictFaulty
	verdictExists
)

// valueKey is where an item's value goes.
func valueKey(item *exporter.Item) string {
	if k := item.Mapping[keyValue]; k != "" {
		return k
	}
	return "value"
}
