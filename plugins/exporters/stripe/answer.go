package stripe

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	stripego "github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/billing/meterevent"
	"github.com/stripe/stripe-go/v79/billing/metereventadjustment"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Codes of what an exchange came to, beside those of Stripe's own that pass
// through for refusals.
const (
	CodeNoAnswer         = "no_answer"          // sent, and no whole answer came back
	CodeUnreadableAnswer = "unreadable_answer"  // not Stripe's JSON
	CodeForeignAnswer    = "foreign_answer"     // success, but about another event
	CodeForeignDuplicate = "foreign_duplicate"  // "already exists", but another identifier
	CodeKeyTaken         = "key_taken"          // the key of the request was used with another body
	CodeModeMismatch     = "mode_mismatch"      // taken in live mode instead of test, or the reverse
	CodeAccountMismatch  = "account_mismatch"   // a message about another account
	CodeUnauthorized     = "unauthorized"       // 401
	CodeForbidden        = "forbidden"          // 403
	CodeEndpointMissing  = "endpoint_not_found" // 404
	CodeRateLimited      = "rate_limited"       // 429 without a code of Stripe's
	CodeRefused          = "refused"            // a final refusal without a code of Stripe's
	CodeUnknownRefusal   = "unknown_refusal"    // a refusal that means nothing to this version
)

// codeDuplicate is the documented code of a repeated identifier. API v1 has
// been seen to leave it out.
const codeDuplicate = "duplicate_meter_event"

// codeCancelled is ours for the refusal of a second cancellation.
const codeCancelled = "already_cancelled"

// judge says what an answer means for its item. Whatever leaves open whether
// the event was taken is a retry, because the same identifier settles it; only
// what no retry can settle is uncertain.
func (e *Exporter) judge(item *exporter.Item, r *capability.Response) exporter.ItemOutcome {
	switch r.Failure {
	case capability.FailureNone:
	case capability.FailureNotSent:
		return outcome(item, exporter.Retry, CodeNotSent, r.Reason)
	default:
		return outcome(item, exporter.Retry, CodeNoAnswer, r.Reason)
	}
	b := &backend{answer: r}
	named, err := b.replayed(cancels(item))
	if r.Status >= 200 && r.Status < 300 {
		if err != nil {
			return outcome(item, exporter.Retry, CodeUnreadableAnswer, "the answer is not what was asked for")
		}
		return taken(item, named, b.livemode)
	}
	var refusal *stripego.Error
	errors.As(err, &refusal) // nil if the body is not Stripe's
	switch r.Status {
	case http.StatusBadRequest:
		return refused(item, refusal)
	case http.StatusTooManyRequests:
		o := outcome(item, exporter.RateLimited, CodeRateLimited, "")
		o.RetryAfter = retryAfter(r.Headers)
		describe(&o, refusal)
		return o
	}
	o := outcome(item, exporter.Retry, statusCode(r.Status), "")
	o.RetryAfter = retryAfter(r.Headers)
	switch r.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		// Stripe's sentence repeats part of the key.
	default:
		describe(&o, refusal)
	}
	return o
}

func statusCode(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return CodeUnauthorized
	case http.StatusForbidden:
		return CodeForbidden
	case http.StatusNotFound:
		return CodeEndpointMissing
	}
	return "http_" + strconv.Itoa(status)
}

// describe puts Stripe's own code and sentence into an outcome.
func describe(o *exporter.ItemOutcome, refusal *stripego.Error) {
	if refusal == nil {
		return
	}
	if refusal.Code != "" {
		o.Code = short(string(refusal.Code))
	}
	o.Message = short(refusal.Msg)
}

// replayed reads an answer through stripe-go and returns the identifier that a
// success names.
func (b *backend) replayed(adjustment bool) (string, error) {
	if !adjustment {
		event, err := meterevent.Client{B: b}.New(nil)
		return event.Identifier, err
	}
	adjusted, err := metereventadjustment.Client{B: b}.New(nil)
	if adjusted.Cancel == nil || adjusted.Type != stripego.BillingMeterEventAdjustmentTypeCancel {
		return "", err
	}
	return adjusted.Cancel.Identifier, err
}

// told is the identifier that answers about an item name.
func told(item *exporter.Item) string {
	if cancels(item) {
		return item.Corrects.Identifier
	}
	return item.Identifier
}

// taken judges a success: it counts only if the body names our identifier. A
// proxy's 200, an empty body or another event prove nothing.
func taken(item *exporter.Item, named string, livemode *bool) exporter.ItemOutcome {
	if named != told(item) {
		return outcome(item, exporter.Retry, CodeForeignAnswer, "the answer is about another identifier")
	}
	if livemode != nil && *livemode != (item.Mode == modeLive) {
		return outcome(item, exporter.Uncertain, CodeModeMismatch, "Stripe took the event in the other mode: check the API key")
	}
	return exporter.ItemOutcome{ItemID: item.ID, Kind: exporter.Accepted, ProviderRef: named}
}

// refused judges a 400.
func refused(item *exporter.Item, refusal *stripego.Error) exporter.ItemOutcome {
	if refusal == nil {
		return outcome(item, exporter.Retry, CodeUnreadableAnswer, "the answer is no Stripe error")
	}
	code := string(refusal.Code)
	if cancels(item) {
		named, ok := strings.CutPrefix(refusal.Msg, cancelledPrefix)
		if named, _, ended := strings.Cut(named, cancelledSuffix); ok && ended && named == told(item) {
			o := outcome(item, exporter.AcceptedEarlier, codeCancelled, "")
			o.ProviderRef = named
			return o
		}
	}
	if named, ok := strings.CutPrefix(refusal.Msg, duplicatePrefix); ok || code == codeDuplicate {
		if ok && strings.TrimSuffix(named, ".") == item.Identifier {
			o := outcome(item, exporter.AcceptedEarlier, codeDuplicate, "")
			o.ProviderRef = item.Identifier
			return o
		}
		return outcome(item, exporter.Uncertain, CodeForeignDuplicate, "Stripe knows another identifier than the item's")
	}
	says := func(codes, sentences []string) bool {
		return slices.Contains(codes, code) ||
			slices.ContainsFunc(sentences, func(s string) bool { return strings.Contains(refusal.Msg, s) })
	}
	o := outcome(item, exporter.Retry, CodeUnknownRefusal, "")
	switch {
	case refusal.Type == stripego.ErrorTypeIdempotency:
		// About the Idempotency-Key and not about the event. Keys are made of the
		// identifier and bodies are frozen, so one that had another body was sent
		// by somebody else under our identifier: what is charged is theirs.
		if !cancels(item) && strings.Contains(refusal.Msg, keyTaken+keyNamed+item.Identifier+"-") {
			o.Kind, o.Code, o.Message = exporter.Conflict, CodeKeyTaken, "another body was sent under this identifier before"
			return o
		}
	case says(earlyCodes, earlySentences):
		o.Kind, o.Code, o.Mendable = exporter.Rejected, CodeRefused, true
	case says(refusedCodes, refusedSentences):
		o.Kind, o.Code = exporter.Rejected, CodeRefused
	case says(mendableCodes, mendableSentences):
		o.Kind, o.Code, o.Mendable = exporter.Rejected, CodeRefused, true
	}
	describe(&o, refusal)
	return o
}
