package wirev1

import (
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// EncodeConfiguration encodes a ConfigureRequest.
func EncodeConfiguration(c exporter.Configuration) []byte {
	return encode(&ConfigureRequest{
		Name: c.Name, Account: c.Account, Mode: c.Mode, BaseUrl: c.BaseURL, Settings: c.Settings,
	})
}

// DecodeConfiguration decodes a ConfigureRequest.
func DecodeConfiguration(data []byte) (exporter.Configuration, error) {
	var m ConfigureRequest
	if err := decode("ConfigureRequest", data, boundsNone, &m); err != nil {
		return exporter.Configuration{}, err
	}
	return exporter.Configuration{
		Name: m.GetName(), Account: m.GetAccount(), Mode: m.GetMode(), BaseURL: m.GetBaseUrl(),
		Settings: blob(m.GetSettings()),
	}, nil
}

// EncodeDelivery encodes a DeliverRequest.
func EncodeDelivery(d exporter.Delivery) []byte {
	m := &DeliverRequest{Deadline: deadline(d.Deadline), Items: make([]*Item, len(d.Items))}
	items := make([]Item, len(d.Items))
	for i := range d.Items {
		itemMessage(&items[i], &d.Items[i])
		m.Items[i] = &items[i]
	}
	return encode(m)
}

// DecodeDelivery decodes a DeliverRequest.
func DecodeDelivery(data []byte) (exporter.Delivery, error) {
	var m DeliverRequest
	if err := decode("DeliverRequest", data, boundsDelivery, &m); err != nil {
		return exporter.Delivery{}, err
	}
	var out exporter.Delivery
	if m.GetDeadline() != 0 {
		out.Deadline = instant(m.GetDeadline())
	}
	if len(m.GetItems()) > 0 {
		out.Items = make([]exporter.Item, len(m.GetItems()))
	}
	for i, it := range m.GetItems() {
		out.Items[i] = itemValue(it)
	}
	return out, nil
}

func itemMessage(m *Item, it *exporter.Item) {
	m.Id, m.Identifier, m.Attempt, m.Kind = it.ID, it.Identifier, int64(it.Attempt), it.Kind
	m.Account, m.Mode, m.Customer, m.Feature = it.Account, it.Mode, it.Customer, it.Feature
	m.Value = it.Value
	m.Timestamp = it.Timestamp.UnixMicro()
	m.PeriodStart, m.PeriodEnd = it.PeriodStart.UnixMicro(), it.PeriodEnd.UnixMicro()
	m.Mapping = mappingMessages(it.Mapping)
	if c := it.Corrects; c != nil {
		m.Corrects = &Corrects{Method: correctionMessage(c.Method), Identifier: c.Identifier, Value: c.Value}
	}
}

func mappingMessages(mapping map[string]string) []*MappingEntry {
	var out []*MappingEntry
	for _, k := range slices.Sorted(maps.Keys(mapping)) {
		out = append(out, &MappingEntry{Key: k, Value: mapping[k]})
	}
	return out
}

func mappingValue(entries []*MappingEntry) map[string]string {
	if len(entries) == 0 {
		return nil
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		out[e.GetKey()] = e.GetValue()
	}
	return out
}

func itemValue(m *Item) exporter.Item {
	it := exporter.Item{
		ID: m.GetId(), Identifier: m.GetIdentifier(), Attempt: count(m.GetAttempt()), Kind: m.GetKind(),
		Account: m.GetAccount(), Mode: m.GetMode(), Customer: m.GetCustomer(), Feature: m.GetFeature(),
		Value:       m.GetValue(),
		Timestamp:   instant(m.GetTimestamp()),
		PeriodStart: instant(m.GetPeriodStart()),
		PeriodEnd:   instant(m.GetPeriodEnd()),
	}
	it.Mapping = mappingValue(m.GetMapping())
	if c := m.GetCorrects(); c != nil {
		// A method of a later version is none that this one could follow.
		method, _ := correctionValue(c.GetMethod())
		it.Corrects = &exporter.Corrects{Method: method, Identifier: c.GetIdentifier(), Value: c.GetValue()}
	}
	return it
}

var kinds = [...]exporter.OutcomeKind{
	OutcomeKind_OUTCOME_KIND_UNSPECIFIED:      "",
	OutcomeKind_OUTCOME_KIND_ACCEPTED:         exporter.Accepted,
	OutcomeKind_OUTCOME_KIND_ACCEPTED_EARLIER: exporter.AcceptedEarlier,
	OutcomeKind_OUTCOME_KIND_RETRY:            exporter.Retry,
	OutcomeKind_OUTCOME_KIND_RATE_LIMITED:     exporter.RateLimited,
	OutcomeKind_OUTCOME_KIND_REJECTED:         exporter.Rejected,
	OutcomeKind_OUTCOME_KIND_CONFLICT:         exporter.Conflict,
	OutcomeKind_OUTCOME_KIND_UNCERTAIN:        exporter.Uncertain,
}

// CodeUnknownOutcome is the code of an outcome whose kind this version does not
// know.
const CodeUnknownOutcome = "unknown_outcome"

// EncodeOutcomes encodes a DeliverAnswer.
func EncodeOutcomes(outcomes []exporter.ItemOutcome) []byte {
	m := &DeliverAnswer{Outcomes: make([]*ItemOutcome, len(outcomes))}
	for i, o := range outcomes {
		m.Outcomes[i] = &ItemOutcome{
			ItemId:      o.ItemID,
			Kind:        OutcomeKind(max(slices.Index(kinds[:], o.Kind), 0)),
			ProviderRef: text(o.ProviderRef),
			RetryAfter:  micros(max(o.RetryAfter, 0)),
			Code:        text(o.Code),
			Message:     text(o.Message),
			Mendable:    o.Mendable,
		}
	}
	return encode(m)
}

// DecodeOutcomes decodes a DeliverAnswer. A kind that is missing or that this
// version does not know is uncertain, with code [CodeUnknownOutcome]: it says
// nothing about the other items. Negative delays count as none.
func DecodeOutcomes(data []byte) ([]exporter.ItemOutcome, error) {
	var m DeliverAnswer
	if err := decode("DeliverAnswer", data, boundsOutcomes, &m); err != nil {
		return nil, err
	}
	out := make([]exporter.ItemOutcome, len(m.GetOutcomes()))
	for i, o := range m.GetOutcomes() {
		out[i] = exporter.ItemOutcome{
			ItemID:      o.GetItemId(),
			ProviderRef: text(o.GetProviderRef()),
			RetryAfter:  max(duration(o.GetRetryAfter()), time.Duration(0)),
			Code:        text(o.GetCode()),
			Message:     text(o.GetMessage()),
			Mendable:    o.GetMendable(),
		}
		if k := int(o.GetKind()); k > 0 && k < len(kinds) {
			out[i].Kind = kinds[k]
		} else {
			out[i].Kind, out[i].Code = exporter.Uncertain, CodeUnknownOutcome
		}
	}
	return out, nil
}
