package canon

import (
	"encoding/json"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// EventHash is the digest of an event's content: feature, quantity, time, kind,
// original event id, dimensions and metadata. Tenant and event id are not part
// of it, because it is only ever compared within one identity; nor is anything
// that was computed or assigned later (period, plan, seq).
//
// A zero OccurredAt is hashed as absent: pass the event without the time that
// was assigned to it to get the dedupe hash of an event that came without one.
// No dimensions and empty dimensions are equal, and so are no metadata and {}.
//
// It fails with tag invalid, naming the field, when a text is not UTF-8 or the
// metadata is not a JSON object that [JSON] accepts.
func EventHash(e storage.Event) (storage.Hash, error) {
	return storage.Hash{}, sdk.Invalid("", "not built yet")
}

// CloudEvent is what [CloudEventHash] covers: the whole event as it came.
type CloudEvent struct {
	// Attributes holds every context attribute and extension except time, by
	// its lower-case name, in its canonical text.
	Attributes map[string]string
	// Time is the event's time; zero if it came without one.
	Time time.Time
	// Data is the JSON payload, Bytes any other; at most one is not nil.
	Data  json.RawMessage
	Bytes []byte
}

// CloudEventHash is the digest of a whole CloudEvent. It decides between
// duplicate and conflict and does not depend on any meter.
func CloudEventHash(e CloudEvent) (storage.Hash, error) {
	return storage.Hash{}, sdk.Invalid("", "not built yet")
}

// JSON returns the canonical text of one JSON value: no insignificant space,
// object keys sorted by their bytes, numbers by their exact value, strings with
// the fewest escapes and no Unicode normalisation.
//
// It refuses invalid UTF-8, lone surrogates, an object that repeats a key, more
// than 32 levels and anything after the value. Its errors never hold input.
func JSON(raw []byte) ([]byte, error) { return nil, sdk.Invalid("", "not built yet") }
