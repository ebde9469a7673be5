package meter

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// CloudEvent is a CloudEvent 1.0 as it came in, in any of its three modes. The
// subject is the tenant. A decoded one keeps every limit of this package except
// those that need a clock; see [Rules.CloudEvent].
type CloudEvent struct {
	ID      string
	Source  string
	Type    string
	Subject string // the tenant
	// Time is in UTC, cut to microseconds towards the past; zero if the event
	// came without one.
	Time            time.Time
	DataContentType string
	DataSchema      string
	// Extensions holds every other attribute in its canonical text; nil if
	// there are none.
	Extensions map[string]string
	// Data is the payload if it is JSON, Bytes if it is anything else. At most
	// one is not nil.
	Data  json.RawMessage
	Bytes []byte
}

// ReceiptID is the id of the event's receipt within its tenant.
func (e CloudEvent) ReceiptID() string { return canon.ReceiptID(e.Source, e.ID) }

// EventID is the id of the event that e leads to for a feature.
func (e CloudEvent) EventID(feature string) string { return canon.EventID(e.Source, e.ID, feature) }

// DedupeHash is the canonical hash of the whole event, absent time as absent.
// It fails only for an event that no decoder of this package returned.
func (e CloudEvent) DedupeHash() (storage.Hash, error) {
	return storage.Hash{}, sdk.Invalid("", "not built yet")
}

// CloudEventItem is one event of a batch, or what is wrong with it.
type CloudEventItem struct {
	Event CloudEvent
	Err   error // nil, or Errors naming "events[i].…"
}

// DecodeCloudEvent reads a structured event (application/cloudevents+json).
func DecodeCloudEvent(body []byte) (CloudEvent, error) {
	return CloudEvent{}, Errors{sdk.Invalid("", "not built yet")}
}

// DecodeCloudEventBatch reads a batch (application/cloudevents-batch+json). The
// error concerns the batch as a whole; what is wrong with one event is in its
// item.
func DecodeCloudEventBatch(body []byte) ([]CloudEventItem, error) {
	return nil, Errors{sdk.Invalid("", "not built yet")}
}

// DecodeCloudEventBinary reads an event in binary mode: attributes from the
// ce-* headers, data from the body as Content-Type says.
func DecodeCloudEventBinary(header http.Header, body []byte) (CloudEvent, error) {
	return CloudEvent{}, Errors{sdk.Invalid("", "not built yet")}
}
