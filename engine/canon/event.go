package canon

import (
	"encoding/json"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// The first fields of what is hashed: kind and version of the form.
const (
	eventForm      = "fencepost-event-v1"
	cloudEventForm = "fencepost-cloudevent-v1"
)

// timeForm has exactly six decimals; formatting cuts, it does not round.
const timeForm = "2006-01-02T15:04:05.000000Z"

// EventHash is the digest of an event's content: feature, quantity, time, kind,
// original event id, dimensions and metadata. Tenant and event id are not part
// of it, because it is only ever compared within one identity; nor is anything
// that was computed or assigned later (period, plan, seq).
//
// A zero OccurredAt is hashed as absent: pass the event without the time that
// was assigned to it to get the dedupe hash of an event that came without one.
// No dimensions and empty dimensions are equal, and so are no metadata and {}.
// The empty kind is usage.
//
// It fails with tag invalid, naming the field, when a text is not UTF-8 or the
// metadata is not a JSON object that [JSON] accepts.
func EventHash(e storage.Event) (storage.Hash, error) {
	kind := e.Kind
	if kind == "" {
		kind = storage.Usage
	}
	for _, text := range []struct{ field, value string }{
		{"feature", e.Feature}, {"kind", string(kind)}, {"original_event_id", e.OriginalEventID},
	} {
		if !utf8.ValidString(text.value) {
			return storage.Hash{}, sdk.Invalid(text.field, "valid UTF-8")
		}
	}
	dimensions, err := object("dimensions", e.Dimensions)
	if err != nil {
		return storage.Hash{}, err
	}
	metadata, err := metadataText(e.Metadata)
	if err != nil {
		return storage.Hash{}, err
	}
	return Digest(eventForm, e.Feature, e.Quantity.String(), timeText(e.OccurredAt), string(kind),
		e.OriginalEventID, string(dimensions), metadata), nil
}

// metadataText is the canonical text of metadata; none is {}.
func metadataText(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "{}", nil
	}
	metadata, err := JSON(raw)
	if err != nil {
		return "", within("metadata", err)
	}
	if KindOf(metadata) != Object {
		return "", sdk.Invalid("metadata", "a JSON object")
	}
	return string(metadata), nil
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
// duplicate and conflict and does not depend on any meter. A zero time is
// hashed as absent; absent data differs from empty data.
//
// It fails with tag invalid, naming the field, when a text is not UTF-8 or the
// data is not JSON that [JSON] accepts.
func CloudEventHash(e CloudEvent) (storage.Hash, error) {
	attributes, err := object("attributes", e.Attributes)
	if err != nil {
		return storage.Hash{}, err
	}
	kind, data := "none", ""
	switch {
	case e.Data != nil:
		canonical, err := JSON(e.Data)
		if err != nil {
			return storage.Hash{}, within("data", err)
		}
		kind, data = "json", string(canonical)
	case e.Bytes != nil:
		kind, data = "bytes", string(e.Bytes)
	}
	return Digest(cloudEventForm, string(attributes), timeText(e.Time), kind, data), nil
}

// timeText is the canonical text of a time, empty for an absent one.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeForm)
}

// object is the canonical JSON object of texts.
func object(field string, texts map[string]string) ([]byte, error) {
	keys := make([]string, 0, len(texts))
	size := 2
	for key, text := range texts {
		keys = append(keys, key)
		size += len(key) + len(text) + len(`"":"",`)
	}
	slices.Sort(keys)
	out := append(make([]byte, 0, size), '{')
	for i, key := range keys {
		if !utf8.ValidString(key) || !utf8.ValidString(texts[key]) {
			return nil, sdk.Invalid(field, "valid UTF-8")
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = appendString(out, key)
		out = append(out, ':')
		out = appendString(out, texts[key])
	}
	return append(out, '}'), nil
}

// within names the field that an error of this package is about.
func within(field string, err error) error {
	var e *sdk.Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	named.Field = field
	return &named
}
