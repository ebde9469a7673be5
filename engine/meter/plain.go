package meter

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// PlainEvent is an event in the project's own JSON form.
type PlainEvent struct {
	ID       string
	Tenant   string
	Feature  string
	Quantity decimal.Decimal
	// Time is in UTC, cut to microseconds towards the past; zero if the event
	// came without one.
	Time       time.Time
	Dimensions map[string]string // nil if there are none
	// Metadata is the caller's text of a JSON object, or nil. It may be a part
	// of the body that was decoded, which must not change afterwards.
	Metadata json.RawMessage
}

// DedupeHash is the canonical hash of e as it came, absent time as absent.
// It fails only for an event that [Rules.Plain] refuses.
func (e PlainEvent) DedupeHash() (storage.Hash, error) {
	return canon.EventHash(storage.Event{
		Feature: e.Feature, Quantity: e.Quantity, Kind: storage.Usage, OccurredAt: e.Time,
		Dimensions: e.Dimensions, Metadata: e.Metadata,
	})
}

// PlainItem is one event of a batch, or what is wrong with it.
type PlainItem struct {
	Event PlainEvent
	Err   error // nil, or Errors naming "events[i].…"
}

// DecodePlain reads one event. Unknown fields are errors; a null is a field that
// is absent. The result keeps every limit of this package except those that need
// a clock or a feature's settings; see [Rules.Plain].
func DecodePlain(body []byte) (PlainEvent, error) {
	if errs := CheckBatch(1, len(body)); errs != nil {
		return PlainEvent{}, errs
	}
	members, err := canon.Members(body)
	if err != nil {
		return PlainEvent{}, AsErrors(err)
	}
	var (
		e    PlainEvent
		errs Errors
		seen bool // a quantity
	)
	for _, m := range members {
		if canon.KindOf(m.Value) == canon.Null {
			if !plainField(m.Name) {
				errs.add(nameOr(m.Name, ""), unknownRule)
			}
			continue
		}
		switch m.Name {
		case "id":
			e.ID = text(&errs, m)
		case "tenant":
			e.Tenant = text(&errs, m)
		case "feature":
			e.Feature = text(&errs, m)
		case "quantity":
			seen = true
			e.Quantity, err = quantity(m.Value)
			errs.note("quantity", err)
		case "time":
			e.Time = instant(&errs, m)
		case "dimensions":
			e.Dimensions = dimensions(&errs, m.Value)
		case "metadata":
			e.Metadata = m.Value
		default:
			errs.add(nameOr(m.Name, ""), unknownRule)
		}
	}
	if !seen {
		errs.add("quantity", "required")
	}
	checkPlain(&errs, e)
	if errs != nil {
		return PlainEvent{}, errs
	}
	return e, nil
}

const unknownRule = "one of the fields id, tenant, feature, quantity, time, dimensions, metadata"

func plainField(name string) bool {
	switch name {
	case "id", "tenant", "feature", "quantity", "time", "dimensions", "metadata":
		return true
	}
	return false
}

// DecodePlainBatch reads a JSON array of events. The error concerns the batch as
// a whole; what is wrong with one event is in its item.
func DecodePlainBatch(body []byte) ([]PlainItem, error) {
	elements, err := batch(body)
	if err != nil {
		return nil, err
	}
	items := make([]PlainItem, len(elements))
	for i, element := range elements {
		e, err := DecodePlain(element)
		items[i].Event = e
		if err != nil {
			items[i].Err = AsErrors(err).At(i)
		}
	}
	return items, nil
}

// batch splits a batch, whatever form its events have.
func batch(body []byte) ([]json.RawMessage, error) {
	if errs := CheckBatch(0, len(body)); errs != nil {
		return nil, errs
	}
	elements, err := canon.Elements(body, MaxBatchEvents)
	if errors.Is(err, canon.ErrTooMany) {
		return nil, CheckBatch(MaxBatchEvents+1, 0)
	}
	if err != nil {
		return nil, AsErrors(err)
	}
	return elements, nil
}

func text(errs *Errors, m canon.Member) string {
	value, ok := canon.Text(m.Value)
	if !ok {
		errs.add(m.Name, textRule)
	}
	return value
}

func instant(errs *Errors, m canon.Member) time.Time {
	t, ok := time.Time{}, false
	if value, isText := canon.Text(m.Value); isText {
		t, ok = parseTime(value)
	}
	if !ok {
		errs.add(m.Name, timeRule)
	}
	return t
}

func dimensions(errs *Errors, raw json.RawMessage) map[string]string {
	if canon.KindOf(raw) != canon.Object {
		errs.add("dimensions", "a JSON object")
		return nil
	}
	members, err := canon.Members(raw)
	if err != nil {
		errs.note("dimensions", err)
		return nil
	}
	if len(members) > MaxDimensions {
		errs.add("dimensions", "at most 32 dimensions")
		return nil
	}
	var out map[string]string
	for _, m := range members {
		if canon.KindOf(m.Value) == canon.Null {
			continue
		}
		value, ok := label(m.Value)
		if !ok {
			errs.add("dimensions"+dotted(m.Name), labelRule)
			continue
		}
		if out == nil {
			out = make(map[string]string, len(members))
		}
		out[m.Name] = value
	}
	return out
}

// dotted is the name as a further part of a field, if an error may repeat it.
func dotted(name string) string {
	if canon.Nameable(name) {
		return "." + name
	}
	return ""
}
