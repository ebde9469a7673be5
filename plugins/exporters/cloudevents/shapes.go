package cloudevents

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// openMeter takes an array of CloudEvents. It knows an id of a source again,
// for as long as it is configured to, and does not say that it did.
type openMeter struct{ source string }

// event is a CloudEvent in JSON, version 1.0.
type event struct {
	SpecVersion     string            `json:"specversion"`
	ID              string            `json:"id"`
	Source          string            `json:"source"`
	Type            string            `json:"type"`
	Subject         string            `json:"subject"`
	Time            time.Time         `json:"time"`
	DataContentType string            `json:"datacontenttype"`
	Data            map[string]string `json:"data"`
}

func (o openMeter) request(items []*exporter.Item) (path, contentType string, body []byte, err error) {
	events := make([]event, len(items))
	for i, it := range items {
		events[i] = event{
			SpecVersion: "1.0", ID: it.Identifier, Source: o.source, Type: it.Mapping[keyType], Subject: it.Customer,
			Time: it.Timestamp.UTC(), DataContentType: "application/json", Data: map[string]string{valueKey(it): it.Value},
		}
	}
	body, err = json.Marshal(events)
	return "/api/v1/events", "application/cloudevents-batch+json", body, err
}

// refuses reads a problem (RFC 9457) that repeats its status.
func (openMeter) refuses(status int, body []byte) bool {
	var problem struct{ Status int }
	return status == http.StatusBadRequest && json.Unmarshal(body, &problem) == nil && problem.Status == status
}

func (openMeter) faulty(n int, _ []byte) []verdict { return make([]verdict, n) }

func (openMeter) lookup(*exporter.Item) string { return "" }

func (openMeter) same(*exporter.Item, []byte) (found, same bool) { return false, false }

// lago takes a batch whole or not at all, and knows a transaction_id for ever.
type lago struct{}

// transaction is one of Lago's events.
type transaction struct {
	TransactionID  string                     `json:"transaction_id"`
	SubscriptionID string                     `json:"external_subscription_id"`
	Code           string                     `json:"code"`
	Timestamp      json.RawMessage            `json:"timestamp"` // seconds; read back it is text
	Properties     map[string]json.RawMessage `json:"properties"`
}

func (lago) request(items []*exporter.Item) (path, contentType string, body []byte, err error) {
	list := make([]transaction, len(items))
	for i, it := range items {
		list[i] = transaction{
			TransactionID: it.Identifier, SubscriptionID: it.Customer, Code: it.Mapping[keyType],
			// To the microsecond, in digits: as a float it would be rounded.
			Timestamp:  json.RawMessage(strconv.FormatInt(it.Timestamp.Unix(), 10) + "." + it.Timestamp.Format("000000")),
			Properties: map[string]json.RawMessage{valueKey(it): json.RawMessage(strconv.Quote(it.Value))},
		}
	}
	body, err = json.Marshal(map[string][]transaction{"events": list})
	return "/api/v1/events/batch", "application/json", body, err
}

func (lago) refuses(status int, body []byte) bool {
	var refusal struct{ Code string }
	return status == http.StatusUnprocessableEntity && json.Unmarshal(body, &refusal) == nil && refusal.Code == codeValidation
}

// faulty reads error_details, whose members are positions in the batch.
func (lago) faulty(n int, body []byte) []verdict {
	var refusal struct {
		Details map[string]struct {
			TransactionID []string `json:"transaction_id"`
		} `json:"error_details"`
	}
	out := make([]verdict, n)
	if json.Unmarshal(body, &refusal) != nil {
		return out
	}
	for at, d := range refusal.Details {
		i, err := strconv.Atoi(at)
		if err != nil || i < 0 || i >= n {
			continue
		}
		out[i] = verdictFaulty
		if len(d.TransactionID) == 1 && d.TransactionID[0] == codeExists {
			out[i] = verdictExists
		}
	}
	return out
}

func (lago) lookup(item *exporter.Item) string {
	return "/api/v1/events/" + url.PathEscape(item.Identifier)
}

func (lago) same(item *exporter.Item, body []byte) (found, same bool) {
	var answer struct {
		Event transaction `json:"event"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Event.TransactionID != item.Identifier {
		return false, false
	}
	e := answer.Event
	have, err := decimal.ParseTotal(string(bytes.Trim(e.Properties[valueKey(item)], `"`)))
	want, wrong := decimal.ParseTotal(item.Value)
	return true, err == nil && wrong == nil && have.Equal(want) && e.SubscriptionID == item.Customer && e.Code == item.Mapping[keyType]
}
