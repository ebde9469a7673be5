package awsmarketplace

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Codes of outcomes, beside AWS's own and http_STATUS.
const (
	CodeNotSent     = "not_sent"
	CodeNoAnswer    = "no_answer"      // sent, and no whole answer came back
	CodeUnsuited    = "not_a_window"   // an item that cannot be a record: nothing is sent
	CodeMissing     = "record_missing" // the answer does not say once what became of it
	CodeUnprocessed = "unprocessed"    // AWS did not get to it
	CodeThrottled   = "throttled"
)

// record is a UsageRecord.
type record struct {
	Timestamp json.Number `json:"Timestamp"` // seconds since 1970
	Customer  string      `json:"CustomerAWSAccountId"`
	Dimension string      `json:"Dimension"`
	Quantity  int64       `json:"Quantity"`
}

type request struct {
	ProductCode  string   `json:"ProductCode"`
	UsageRecords []record `json:"UsageRecords"`
}

type answer struct {
	Results []struct {
		UsageRecord record
		Status      string
		ID          string `json:"MeteringRecordId"`
	}
	UnprocessedRecords []record
}

// delivery is one Deliver on its way.
type delivery struct {
	*Exporter
	outcomes map[string]exporter.ItemOutcome
}

// Deliver reports windows in requests of 25 records. A request that is refused
// because of one of its records is sent again record by record.
func (e *Exporter) Deliver(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	if e.url == "" {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "not_configured", Rule: "Configure before Deliver"}
	}
	w := &delivery{Exporter: e, outcomes: make(map[string]exporter.ItemOutcome, len(d.Items))}
	var items []*exporter.Item
	for i := range d.Items {
		if it := &d.Items[i]; suited(it) {
			items = append(items, it)
		} else {
			w.outcomes[it.ID] = exporter.ItemOutcome{ItemID: it.ID, Kind: exporter.Retry, Code: CodeUnsuited}
		}
	}
	alone, err := w.send(ctx, apart(items))
	if err != nil {
		return nil, err
	}
	singles := make([][]*exporter.Item, len(alone))
	for i, it := range alone {
		singles[i] = []*exporter.Item{it}
	}
	if _, err := w.send(ctx, singles); err != nil {
		return nil, err
	}
	out := make([]exporter.ItemOutcome, 0, len(d.Items))
	for i := range d.Items {
		out = append(out, w.outcomes[d.Items[i].ID])
	}
	return out, nil
}

// suited reports whether an item can be a record. The host sees to it that
// others do not come; what comes all the same is not sent.
func suited(it *exporter.Item) bool {
	n, err := strconv.ParseInt(it.Value, 10, 64)
	return err == nil && n >= 0 && n <= quantityMax && it.Kind == "usage_window" && it.Corrects == nil &&
		it.Timestamp.Equal(it.Timestamp.Truncate(manifest().Every))
}

// apart makes requests of at most 25 records, none of which has one of the same
// customer, dimension and hour twice.
func apart(items []*exporter.Item) [][]*exporter.Item {
	var batches [][]*exporter.Item
	for _, it := range items {
		fits := func(batch []*exporter.Item) bool {
			return len(batch) < recordsMax && !slices.ContainsFunc(batch, func(other *exporter.Item) bool { return sameRecord(it, other) })
		}
		if i := slices.IndexFunc(batches, fits); i >= 0 {
			batches[i] = append(batches[i], it)
		} else {
			batches = append(batches, []*exporter.Item{it})
		}
	}
	return batches
}

func sameRecord(a, b *exporter.Item) bool {
	return a.Customer == b.Customer && a.Mapping[keyDimension] == b.Mapping[keyDimension] && a.Timestamp.Equal(b.Timestamp)
}

// send sends requests, judges their records, and returns those that are to be
// sent by themselves.
func (w *delivery) send(ctx context.Context, batches [][]*exporter.Item) (alone []*exporter.Item, err error) {
	if len(batches) == 0 {
		return nil, nil
	}
	requests := make([]capability.Request, len(batches))
	for i, items := range batches {
		body := request{ProductCode: w.settings.ProductCode}
		for _, it := range items {
			body.UsageRecords = append(body.UsageRecords, recordOf(it))
			requests[i].Items = append(requests[i].Items, it.ID)
		}
		text, err := json.Marshal(body)
		if err != nil {
			return nil, sdk.Invalid("items", "texts that JSON has").At(i)
		}
		r := &requests[i]
		r.Method, r.URL, r.Body = http.MethodPost, w.url, text
		r.Headers = []capability.Header{
			{Name: "Content-Type", Value: "application/x-amz-json-1.1"},
			{Name: "X-Amz-Target", Value: "AWSMPMeteringService.BatchMeterUsage"},
		}
		r.Secrets, r.SigningScope = []string{SecretKey}, w.settings.Region+"/aws-marketplace"
	}
	responses, err := w.http.Send(ctx, requests)
	if err != nil {
		return nil, err //nolint:wrapcheck // the host's own refusal says it all
	}
	for i, items := range batches {
		alone = append(alone, w.judge(items, &responses[i])...)
	}
	return alone, nil
}

func recordOf(it *exporter.Item) record {
	n, _ := strconv.ParseInt(it.Value, 10, 64) // suited has read it
	return record{
		Timestamp: json.Number(strconv.FormatInt(it.Timestamp.Unix(), 10)), Customer: it.Customer,
		Dimension: it.Mapping[keyDimension], Quantity: n,
	}
}

// judge says what the answer to a request means for each of its records.
func (w *delivery) judge(items []*exporter.Item, r *capability.Response) (alone []*exporter.Item) {
	o := exporter.ItemOutcome{Kind: exporter.Uncertain, Code: "http_" + strconv.Itoa(r.Status)}
	switch {
	case r.Failure == capability.FailureNotSent:
		o.Kind, o.Code, o.Message = exporter.Retry, CodeNotSent, r.Reason
	case r.Failure != capability.FailureNone:
		o.Code, o.Message = CodeNoAnswer, r.Reason
	case r.Status == http.StatusOK:
		w.records(items, r.Body)
		return nil
	case r.Status == http.StatusTooManyRequests:
		o.Kind, o.Code = exporter.RateLimited, CodeThrottled
	case r.Status == http.StatusBadRequest:
		name := exception(r.Body)
		switch {
		case name == "":
		case name == throttling:
			o.Kind, o.Code = exporter.RateLimited, CodeThrottled
		case !slices.Contains(mendable, name) && !slices.Contains(final, name):
			o.Code = name
		case len(items) == 1:
			o.Kind, o.Code, o.Mendable = exporter.Rejected, name, slices.Contains(mendable, name)
		default:
			o.Kind, o.Code, alone = exporter.Retry, name, items
		}
	}
	for _, it := range items {
		o.ItemID = it.ID
		w.outcomes[it.ID] = o
	}
	return alone
}

// exception is the name of the exception in an answer, or "".
func exception(body []byte) string {
	var e struct {
		Type string `json:"__type"`
	}
	if json.Unmarshal(body, &e) != nil {
		return ""
	}
	name := e.Type
	if i := strings.LastIndexByte(name, '#'); i >= 0 {
		name = name[i+1:]
	}
	return name
}

// records reads what became of each record. What is not named once is uncertain.
func (w *delivery) records(items []*exporter.Item, body []byte) {
	var a answer
	readable := json.Unmarshal(body, &a) == nil
	for _, it := range items {
		o := exporter.ItemOutcome{ItemID: it.ID, Kind: exporter.Uncertain, Code: CodeMissing}
		found := 0
		if readable {
			for _, r := range a.Results {
				if isOf(r.UsageRecord, it) {
					found++
					o.Kind, o.Code = status(r.Status)
					if o.Kind == exporter.Accepted {
						o.ProviderRef = r.ID
					}
				}
			}
			for _, r := range a.UnprocessedRecords {
				if isOf(r, it) {
					found++
					o.Kind, o.Code, o.ProviderRef = exporter.Retry, CodeUnprocessed, ""
				}
			}
		}
		if found != 1 {
			o = exporter.ItemOutcome{ItemID: it.ID, Kind: exporter.Uncertain, Code: CodeMissing}
		}
		w.outcomes[it.ID] = o
	}
}

func status(s string) (kind exporter.OutcomeKind, code string) {
	switch s {
	case "Success":
		return exporter.Accepted, ""
	case "CustomerNotSubscribed":
		return exporter.Rejected, s
	case "DuplicateRecord":
		return exporter.Conflict, s
	}
	return exporter.Uncertain, "status_unknown"
}

// isOf reports whether a record of an answer is that of an item. AWS writes
// times as numbers of its own spelling.
func isOf(r record, it *exporter.Item) bool {
	want := recordOf(it)
	at, err := r.Timestamp.Float64() // whole seconds: exact
	return err == nil && int64(at) == it.Timestamp.Unix() && r.Customer == want.Customer && r.Dimension == want.Dimension && r.Quantity == want.Quantity
}
