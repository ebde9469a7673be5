package meter

import (
	"encoding/base64"
	"encoding/json"
	"mime"
	"strings"

	"github.com/fencepost/fencepost/engine/canon"
)

// CloudEventItem is one event of a batch, or what is wrong with it.
type CloudEventItem struct {
	Event CloudEvent
	Err   error // nil, or Errors naming "events[i].…"
}

// DecodeCloudEvent reads a structured event (application/cloudevents+json). A
// batch is refused, never taken for its first event.
func DecodeCloudEvent(body []byte) (CloudEvent, error) {
	if errs := CheckBatch(1, len(body)); errs != nil {
		return CloudEvent{}, errs
	}
	members, err := canon.Members(body)
	if err != nil {
		return CloudEvent{}, AsErrors(err)
	}
	var (
		e       CloudEvent
		errs    Errors
		payload payload
		version bool
	)
	for _, m := range members {
		if canon.KindOf(m.Value) == canon.Null {
			continue
		}
		switch m.Name {
		case "data":
			payload.data = m.Value
		case "data_base64":
			payload.base64 = m.Value
		default:
			if value, ok := attribute(&errs, m); ok {
				version = version || m.Name == "specversion"
				e.set(&errs, m.Name, value)
			}
		}
	}
	if !version {
		errs.add("specversion", `required, "1.0"`)
	}
	payload.into(&errs, &e)
	checkCloudEvent(&errs, e)
	if errs != nil {
		return CloudEvent{}, errs
	}
	return e, nil
}

// DecodeCloudEventBatch reads a batch (application/cloudevents-batch+json). The
// error concerns the batch as a whole; what is wrong with one event is in its
// item.
func DecodeCloudEventBatch(body []byte) ([]CloudEventItem, error) {
	elements, err := batch(body)
	if err != nil {
		return nil, err
	}
	items := make([]CloudEventItem, len(elements))
	for i, element := range elements {
		e, err := DecodeCloudEvent(element)
		items[i].Event = e
		if err != nil {
			items[i].Err = AsErrors(err).At(i)
		}
	}
	return items, nil
}

// attribute reads the canonical text of one attribute. Attributes of the
// specification are strings; extensions may be booleans and integers too.
func attribute(errs *Errors, m canon.Member) (string, bool) {
	if coreAttribute(m.Name) {
		value, ok := canon.Text(m.Value)
		if !ok {
			errs.add(m.Name, textRule)
		}
		return value, ok
	}
	value, ok := label(m.Value)
	if canon.KindOf(m.Value) == canon.Num && strings.ContainsAny(string(m.Value), ".eE") {
		ok = false
	}
	if !ok {
		errs.add(nameOr(m.Name, "extensions"), "a string, a boolean or an integer")
	}
	return value, ok
}

// payload is the data of a structured event before its content type is known.
type payload struct{ data, base64 json.RawMessage }

func (p payload) into(errs *Errors, e *CloudEvent) {
	switch {
	case p.data != nil && p.base64 != nil:
		errs.add("data", "either data or data_base64")
	case p.base64 != nil:
		p.decode(errs, e)
	case p.data == nil:
	case e.DataContentType == "":
		e.Data = p.data
		e.DataContentType = jsonType
	case isJSON(e.DataContentType):
		e.Data = p.data
	default:
		text, ok := canon.Text(p.data)
		if !ok {
			errs.add("data", "a JSON string, unless datacontenttype is JSON")
		}
		if text != "" {
			e.Bytes = []byte(text)
		}
	}
}

func (p payload) decode(errs *Errors, e *CloudEvent) {
	text, ok := canon.Text(p.base64)
	content, err := base64.StdEncoding.Strict().DecodeString(text)
	if !ok || err != nil || strings.ContainsAny(text, "\r\n") {
		errs.add("data_base64", "base64 in a JSON string")
		return
	}
	e.carry(content)
}

// isJSON reports whether a content type declares JSON.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	return strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}
