package meter

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// CloudEvent is a CloudEvent 1.0 as it came in, in any of its three modes. The
// subject is the tenant. A decoded one keeps every limit of this package except
// those that need a clock; see [Rules.CloudEvent].
//
// The same event decodes to the same value in every mode: an extension is its
// canonical text ("true", "42"), JSON data without a content type has
// "application/json", and a null attribute is an absent one.
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
	// one is not nil; an empty payload is none. They may be parts of the body
	// that was decoded, which must not change afterwards.
	Data  json.RawMessage
	Bytes []byte
}

// ReceiptID is the id of the event's receipt within its tenant.
func (e CloudEvent) ReceiptID() string { return canon.ReceiptID(e.Source, e.ID) }

// EventID is the id of the event that e leads to for a feature.
func (e CloudEvent) EventID(feature string) string { return canon.EventID(e.Source, e.ID, feature) }

// DedupeHash is the canonical hash of the whole event, absent time as absent.
// It fails only for an event that [Rules.CloudEvent] refuses.
func (e CloudEvent) DedupeHash() (storage.Hash, error) {
	attributes := make(map[string]string, len(e.Extensions)+7)
	maps.Copy(attributes, e.Extensions)
	attributes["specversion"] = specVersion
	attributes["id"] = e.ID
	attributes["source"] = e.Source
	attributes["type"] = e.Type
	attributes["subject"] = e.Subject
	if e.DataContentType != "" {
		attributes["datacontenttype"] = e.DataContentType
	}
	if e.DataSchema != "" {
		attributes["dataschema"] = e.DataSchema
	}
	return canon.CloudEventHash(canon.CloudEvent{Attributes: attributes, Time: e.Time, Data: e.Data, Bytes: e.Bytes})
}

const specVersion = "1.0"

const jsonType = "application/json"

// coreAttribute reports whether a name may not be an extension's.
func coreAttribute(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", "data_base64":
		return true
	}
	return false
}

// attributeName reports whether a name is one that CloudEvents allows.
func attributeName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// set gives e the attribute of a name, which is not data; problems go to errs.
func (e *CloudEvent) set(errs *Errors, name, value string) {
	switch name {
	case "specversion":
		if value != specVersion {
			errs.add("specversion", `"1.0"`)
		}
	case "id":
		e.ID = value
	case "source":
		e.Source = value
	case "type":
		e.Type = value
	case "subject":
		e.Subject = value
	case "time":
		t, ok := parseTime(value)
		if !ok {
			errs.add("time", timeRule)
		}
		e.Time = t
	case "datacontenttype":
		e.DataContentType = value
	case "dataschema":
		e.DataSchema = value
	default:
		if e.Extensions == nil {
			e.Extensions = make(map[string]string)
		}
		e.Extensions[name] = value
	}
}

// carry gives e a payload of bytes, as its content type says; none is no data.
func (e *CloudEvent) carry(content []byte) {
	switch {
	case len(content) == 0:
	case isJSON(e.DataContentType):
		e.Data = content
	default:
		e.Bytes = content
	}
}
