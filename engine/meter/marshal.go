package meter

import (
	"encoding/json"
	"fmt"
	"time"
)

// MarshalJSON writes e as a structured CloudEvent. Reading it back with
// [DecodeCloudEvent] gives an equal event, except that an extension is its
// canonical text whatever its type was.
func (e CloudEvent) MarshalJSON() ([]byte, error) {
	doc := map[string]any{"specversion": "1.0", "id": e.ID, "source": e.Source, "type": e.Type, "subject": e.Subject}
	for name, value := range e.Extensions {
		doc[name] = value
	}
	for name, value := range map[string]string{"datacontenttype": e.DataContentType, "dataschema": e.DataSchema} {
		if value != "" {
			doc[name] = value
		}
	}
	if !e.Time.IsZero() {
		doc["time"] = e.Time.UTC().Format(time.RFC3339Nano)
	}
	switch {
	case e.Data != nil:
		doc["data"] = e.Data
	case e.Bytes != nil:
		doc["data_base64"] = e.Bytes
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode CloudEvent: %w", err)
	}
	return b, nil
}
