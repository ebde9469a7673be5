package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Payload is the whole intent of an item as its exporter gets it: a pure
// function of the frozen item row, the immutable event and the immutable
// mapping, the same at every attempt but for Attempt.
//
// Attempt is the lease token, not the count of attempts: it rises with every
// claim and is never given back, so a request key made of it is never used for
// two sends.
//
// It fails with tag invalid if the mapping or a stored payload does not parse.
func Payload(c storage.ClaimedItem) (exporter.Item, error) {
	fields, err := MappingFields(c.Mapping)
	if err != nil {
		return exporter.Item{}, err
	}
	return payload(c, fields)
}

// payload is Payload with the mapping already read.
func payload(c storage.ClaimedItem, fields map[string]string) (exporter.Item, error) {
	item := exporter.Item{
		ID:         strconv.FormatInt(c.ItemID, 10),
		Identifier: IdentifierOf(c.Digest),
		Attempt:    int(c.LeaseToken),
		Kind:       string(c.Identity.SubjectKind),
		Account:    c.Identity.Account,
		Mode:       c.Identity.Mode,
		Customer:   c.Customer,
		Mapping:    fields,
	}
	if c.Payload != nil {
		if err := storedPayload(c.Payload, &item); err != nil {
			return item, err
		}
		if item.Corrects != nil {
			item.Corrects.Method = exporter.CorrectionMode(c.Method)
		}
		return item, nil
	}
	item.Feature = c.Event.Feature
	item.Value = c.Event.Quantity.String()
	item.Timestamp = c.Event.OccurredAt.UTC()
	item.PeriodStart = c.Event.PeriodStart.UTC()
	item.PeriodEnd = c.Event.PeriodEnd.UTC()
	return item, nil
}

// MappingFields reads a mapping's content. No content is no fields. It fails
// with tag invalid.
func MappingFields(m storage.Mapping) (map[string]string, error) {
	if len(m.Content) == 0 {
		return nil, nil
	}
	var fields map[string]string
	if err := strict(m.Content, &fields); err != nil {
		return nil, invalid("mapping", "a JSON object of strings")
	}
	return fields, nil
}

// frozen is the stored payload of an item that is not made of an event.
type frozen struct {
	Feature     string    `json:"feature"`
	Value       string    `json:"value"`
	Timestamp   time.Time `json:"timestamp"`
	PeriodStart time.Time `json:"period_start"`
	PeriodEnd   time.Time `json:"period_end"`
	Corrects    *corrects `json:"corrects,omitempty"`
}

// corrects is what a correction takes back.
type corrects struct {
	Method     string `json:"method,omitempty"` // shown, never stored here
	Identifier string `json:"identifier"`
	Value      string `json:"value"`
}

// FreezePayload is the stored payload of a correction or a window.
func FreezePayload(item exporter.Item) (json.RawMessage, error) {
	if _, err := decimal.ParseTotal(item.Value); err != nil {
		return nil, invalid("payload.value", err.Error())
	}
	f := frozen{
		Feature: item.Feature, Value: item.Value, Timestamp: item.Timestamp.UTC(),
		PeriodStart: item.PeriodStart.UTC(), PeriodEnd: item.PeriodEnd.UTC(),
	}
	if c := item.Corrects; c != nil {
		f.Corrects = &corrects{Identifier: c.Identifier, Value: c.Value}
	}
	return json.Marshal(f)
}

func storedPayload(raw json.RawMessage, item *exporter.Item) error {
	var f frozen
	if err := strict(raw, &f); err != nil {
		return invalid("payload", "feature, value, timestamp, period and what it corrects, nothing else")
	}
	value, err := decimal.ParseTotal(f.Value)
	if err != nil {
		return invalid("payload.value", err.Error())
	}
	item.Feature, item.Value = f.Feature, value.String()
	item.Timestamp, item.PeriodStart, item.PeriodEnd = f.Timestamp.UTC(), f.PeriodStart.UTC(), f.PeriodEnd.UTC()
	if c := f.Corrects; c != nil {
		of, err := decimal.ParseTotal(c.Value)
		if err != nil || c.Identifier == "" || c.Method != "" {
			return invalid("payload.corrects", "an identifier and a number")
		}
		item.Corrects = &exporter.Corrects{Identifier: c.Identifier, Value: of.String()}
	}
	return nil
}

// strict decodes exactly one JSON value, without unknown fields.
func strict(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

// display is a payload as people see it.
type display struct {
	Identifier  string            `json:"identifier"`
	Customer    string            `json:"customer"`
	Feature     string            `json:"feature"`
	Value       string            `json:"value"`
	Timestamp   string            `json:"timestamp"`
	PeriodStart string            `json:"period_start"`
	PeriodEnd   string            `json:"period_end"`
	Account     string            `json:"account"`
	Mode        string            `json:"mode"`
	Mapping     map[string]string `json:"mapping,omitempty"`
	Corrects    *corrects         `json:"corrects,omitempty"`
}

// PayloadJSON renders the payload of a stored item for people and the API.
func PayloadJSON(d storage.ItemDetail) (json.RawMessage, error) {
	c := storage.ClaimedItem{
		ItemID: d.Item.ItemID, Identity: d.Item.Identity, Digest: d.Item.Digest,
		Customer: d.Item.Customer, Payload: d.Payload, Mapping: d.Mapping, Method: d.Item.Method,
	}
	if d.Event != nil {
		c.Event = *d.Event
	}
	item, err := Payload(c)
	if err != nil {
		return nil, err
	}
	out := display{
		Identifier: item.Identifier, Customer: item.Customer, Feature: item.Feature, Value: item.Value,
		Timestamp: stamp(item.Timestamp), PeriodStart: stamp(item.PeriodStart), PeriodEnd: stamp(item.PeriodEnd),
		Account: item.Account, Mode: item.Mode, Mapping: item.Mapping,
	}
	if c := item.Corrects; c != nil {
		out.Corrects = &corrects{Method: string(c.Method), Identifier: c.Identifier, Value: c.Value}
	}
	return json.Marshal(out)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// SerialKey groups the items of one destination that the exporter wants sent
// one after another: those equal in every field that by names. Names are
// "customer", "feature", or keys of the mapping. No names, no key.
func SerialKey(dest Destination, by []string, item exporter.Item) string {
	if len(by) == 0 {
		return ""
	}
	fields := []string{dest.Exporter, dest.Account, dest.Mode}
	for _, name := range by {
		value := item.Mapping[name]
		switch name {
		case "customer":
			value = item.Customer
		case "feature":
			value = item.Feature
		}
		fields = append(fields, name, value)
	}
	return canon.Join(fields...)
}
