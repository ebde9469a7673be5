package stripe

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/billing/meterevent"
	"github.com/stripe/stripe-go/v79/billing/metereventadjustment"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Codes of items that this exporter did not send.
const (
	CodeNotSent           = "not_sent"
	CodeAccountNotServed  = "account_not_served"
	CodeModeNotServed     = "mode_not_served"
	CodeMappingIncomplete = "mapping_incomplete"
	CodeCustomerMissing   = "customer_missing"
	CodeIdentifierInvalid = "identifier_invalid"
	CodeValueInvalid      = "value_invalid"
	CodeMethodUnknown     = "correction_method_unknown"
)

// Deliver sends each item as one meter event, or, for a correction that cancels,
// as one adjustment, all in one batch of requests, and answers one outcome per item, in order. An item that cannot be a meter event
// at all is not sent and answered with retry and the code that says why: only
// the provider may reject.
func (e *Exporter) Deliver(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	if !e.configured {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "not_configured", Rule: "Configure before Deliver"}
	}
	outcomes := make([]exporter.ItemOutcome, len(d.Items))
	requests := make([]capability.Request, 0, len(d.Items))
	sent := make([]int, 0, len(d.Items)) // sent[i]: the item of requests[i]
	for i := range d.Items {
		item := &d.Items[i]
		if code, why := e.unsendable(item); code != "" {
			outcomes[i] = outcome(item, exporter.Retry, code, why)
			continue
		}
		request, err := e.request(item)
		if err != nil {
			return nil, err
		}
		requests, sent = append(requests, request), append(sent, i)
	}
	if len(requests) == 0 {
		return outcomes, nil
	}
	responses, err := e.http.Send(ctx, requests)
	for n, i := range sent {
		item := &d.Items[i]
		switch {
		case err != nil:
			outcomes[i] = outcome(item, exporter.Retry, CodeNotSent, "the host refused the batch: "+err.Error())
		case len(responses) != len(requests):
			outcomes[i] = outcome(item, exporter.Retry, CodeNoAnswer, "the host answered another number of requests")
		default:
			outcomes[i] = e.judge(item, &responses[n])
		}
	}
	return outcomes, nil
}

// unsendable says why an item must not be sent, or nothing. The engine keeps
// such items back by the manifest; this is the last line before money moves.
func (e *Exporter) unsendable(item *exporter.Item) (code, why string) {
	switch {
	case item.Mode != e.configuration.Mode:
		return CodeModeNotServed, "the item's mode is not the one of this exporter's key"
	case item.Account != e.configuration.Account && !e.settings.Connected,
		e.settings.Connected && item.Account == "":
		return CodeAccountNotServed, "the item's account is not the one of this exporter's key"
	case item.Mapping[keyEventName] == "":
		return CodeMappingIncomplete, "the mapping has no event_name"
	case !goodIdentifier(item.Identifier):
		return CodeIdentifierInvalid, "an identifier has 1 to 100 characters"
	case cancels(item) && !goodIdentifier(item.Corrects.Identifier):
		return CodeIdentifierInvalid, "the original's identifier has 1 to 100 characters"
	case cancels(item):
		return "", "" // neither customer nor value is told
	case item.Corrects != nil && item.Corrects.Method != exporter.CorrectNegative:
		return CodeMethodUnknown, "a correction is a cancellation or a negative event"
	case payloadKey(item, keyCustomerKey, defaultCustomerKey) == payloadKey(item, keyValueKey, defaultValueKey):
		return CodeMappingIncomplete, "customer_key and value_key are the same"
	case item.Customer == "":
		return CodeCustomerMissing, "the item has no customer"
	case !plainDecimal(item.Value):
		return CodeValueInvalid, "a value is a plain decimal other than 0 of at most 15 significant digits and 12 decimals"
	}
	return "", ""
}

// cancels reports whether the item is told by cancelling another event.
func cancels(item *exporter.Item) bool {
	return item.Corrects != nil && item.Corrects.Method == exporter.CorrectCancel
}

func goodIdentifier(s string) bool { return s != "" && len(s) <= maxIdentifier }

const (
	defaultCustomerKey = "stripe_customer_id"
	defaultValueKey    = "value"
)

func payloadKey(item *exporter.Item, mappingKey, fallback string) string {
	if k := item.Mapping[mappingKey]; k != "" {
		return k
	}
	return fallback
}

// plainDecimal reports whether s can be sent as it is: Stripe keeps values in
// double precision, so more than 15 significant digits would be billed wrong.
func plainDecimal(s string) bool {
	s = strings.TrimPrefix(s, "-")
	whole, fraction, point := strings.Cut(s, ".")
	if whole == "" || (point && fraction == "") || len(fraction) > maxDecimals {
		return false
	}
	all := whole + fraction
	for i := range len(all) {
		if all[i] < '0' || all[i] > '9' {
			return false
		}
	}
	significant := strings.Trim(all, "0")
	return significant != "" && len(significant) <= maxSignificantDigits
}

// request builds the request of one item through stripe-go.
func (e *Exporter) request(item *exporter.Item) (capability.Request, error) {
	b := &backend{base: e.configuration.BaseURL}
	var err error
	if cancels(item) {
		params := &stripego.BillingMeterEventAdjustmentParams{
			EventName: new(item.Mapping[keyEventName]),
			Type:      new(string(stripego.BillingMeterEventAdjustmentTypeCancel)),
			Cancel:    &stripego.BillingMeterEventAdjustmentCancelParams{Identifier: new(item.Corrects.Identifier)},
		}
		e.address(item, &params.Params)
		_, err = metereventadjustment.Client{B: b}.New(params)
	} else {
		params := &stripego.BillingMeterEventParams{
			EventName:  new(item.Mapping[keyEventName]),
			Identifier: new(item.Identifier),
			Payload: map[string]string{
				payloadKey(item, keyCustomerKey, defaultCustomerKey): item.Customer,
				payloadKey(item, keyValueKey, defaultValueKey):       item.Value,
			},
			Timestamp: new(item.Timestamp.Unix()),
		}
		e.address(item, &params.Params)
		_, err = meterevent.Client{B: b}.New(params)
	}
	if !errors.Is(err, errRecorded) || b.request == nil {
		return capability.Request{}, sdk.Unavailable("request_not_built", err)
	}
	b.request.Items = []string{item.ID}
	return *b.request, nil
}

// address sets the key of this very request and the account. The key is made of
// the item's own identifier, also where another event is cancelled.
func (e *Exporter) address(item *exporter.Item, params *stripego.Params) {
	params.SetIdempotencyKey(item.Identifier + "-" + strconv.Itoa(item.Attempt))
	if e.settings.Connected {
		params.SetStripeAccount(item.Account)
	}
}

func outcome(item *exporter.Item, kind exporter.OutcomeKind, code, message string) exporter.ItemOutcome {
	return exporter.ItemOutcome{ItemID: item.ID, Kind: kind, Code: code, Message: short(message)}
}

// short bounds a message for people.
func short(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "")
}

// retryAfter reads a Retry-After header: seconds, or a date, which is compared
// with the answer's own Date so that no clock of ours matters. Anything else is
// zero, and the host decides.
func retryAfter(headers []capability.Header) time.Duration {
	value := strings.TrimSpace(header(headers, "Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	until, err := time.Parse(httpDate, value)
	if err != nil {
		return 0
	}
	now, err := time.Parse(httpDate, strings.TrimSpace(header(headers, "Date")))
	if err != nil {
		return 0
	}
	return max(until.Sub(now), 0)
}

const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"

// header returns the first field of that name, or nothing.
func header(headers []capability.Header, name string) string {
	for _, h := range headers {
		if strings.EqualFold(h.Name, name) {
			return h.Value
		}
	}
	return ""
}
