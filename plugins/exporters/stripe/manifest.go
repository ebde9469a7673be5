package stripe

import (
	"net/http"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Version of this exporter.
const Version = "1.1.0"

// SecretAPIKey is the name of the secret that holds Stripe's API key.
const SecretAPIKey = "api_key"

// SecretWebhook is the name of the secret that Stripe signs its messages with.
const SecretWebhook = "webhook_secret"

// Keys of a feature's mapping.
const (
	keyEventName   = "event_name"
	keyCustomerKey = "customer_key"
	keyValueKey    = "value_key"
)

const (
	maxIdentifier        = 100
	maxSignificantDigits = 15
	maxDecimals          = 12

	pointerMessage = "/error/message"
	pointerCode    = "/error/code"

	duplicatePrefix = "An event already exists with identifier "

	// A request whose Idempotency-Key had another body before. It is not executed.
	keyTaken = "Keys for idempotent requests can only be used with the same parameters they were first used with"
	keyNamed = ". Try using a key other than '"

	// What a second cancellation is answered. No documentation tells; another
	// sentence is a retry, and uncertain once the time to cancel is over.
	cancelledPrefix = "The meter event with identifier "
	cancelledSuffix = " has already been canceled"
)

// cancelWithin is below the 24 hours from receipt in which Stripe cancels.
const cancelWithin = 23 * time.Hour

// summaryLag is how long a summary may lack what was accepted. Stripe does not
// say how long that is, only that summaries lag.
const summaryLag = time.Hour

// What Stripe says of an event that no operator can mend. API v1 answers with a
// sentence and not always with a code; the codes are those of its asynchronous
// error reports.
var (
	refusedCodes = []string{
		"meter_event_invalid_value", "meter_event_value_too_many_digits",
		"timestamp_too_far_in_past",
	}
	refusedSentences = []string{
		"The event timestamp cannot be more than",
		"The value in the event payload",
	}
)

// What time mends: a host whose clock is ahead dated the event. It is looked for
// before what is refused for good, of which the sentence begins in the same way.
var (
	earlyCodes     = []string{"timestamp_in_future"}
	earlySentences = []string{"The event timestamp cannot be more than 5 minutes in"}
)

// What an operator can mend: the customer, the meter or the mapping.
var (
	mendableCodes = []string{
		"resource_missing", "no_meter", "archived_meter",
		"meter_event_customer_not_found", "meter_event_no_customer_defined",
		"missing_dimension_payload_keys", "meter_event_dimension_count_too_high",
		"parameter_missing", "parameter_unknown", "parameter_invalid_empty",
		"parameter_invalid_string_blank", "parameter_invalid_string_empty",
	}
	mendableSentences = []string{
		"No such customer",
		"No active meter found",
		"The event payload has no customer",
		// A cancellation that cannot be: the correction waits for a person.
		"No such meter event",
		"You can only cancel events within",
	}
)

func manifest() exporter.Manifest {
	return exporter.Manifest{
		Name:                "stripe",
		Version:             Version,
		IdentifierMaxLength: maxIdentifier,
		// Stripe promises "at least 24 hours".
		IdentifierHorizon: 23 * time.Hour,
		// Stripe takes 35 calendar days. The day between covers an item that
		// waits and backs off after the check, clocks that differ, and the
		// hour by which calendar days can be shorter than 24 hours.
		WindowPast:   34 * 24 * time.Hour,
		WindowFuture: 5 * time.Minute,
		Values: exporter.ValueDomain{
			SignificantDigits: maxSignificantDigits,
			MaxDecimals:       maxDecimals,
			Negative:          true,
			Zero:              false,
		},
		MaxBatch: 100,
		// What Stripe allows meter events in live mode. In test mode they count
		// against the basic limit, which is the operator's setting, and the
		// host's default.
		Rate:        1000,
		Concurrency: 16,
		// One call at a time per customer and meter; more answer 429.
		SerialBy:     []string{"customer", keyEventName},
		Corrections:  exporter.CorrectCancel,
		CancelWithin: cancelWithin,
		ReadBack: exporter.ReadBack{
			Sums: true, Lag: summaryLag, Granularity: time.Minute, Evidence: []string{"sum_present", "error_report"},
		},
		Webhook: &exporter.WebhookSignature{
			Scheme: "t=,v1=", Header: "Stripe-Signature", Secret: SecretWebhook, Tolerance: 5 * time.Minute,
		},
		Capabilities: []capability.Name{capability.HTTPName},
		Hosts:        []string{"api.stripe.com"},
		Secrets: []exporter.Secret{{
			Name: SecretAPIKey, Header: "Authorization", Prefix: "Bearer ",
			// Secret and restricted keys. Stripe itself takes a key of either
			// mode, and says which it was only after the event is counted.
			TestPrefixes: []string{"sk_test_", "rk_test_"},
			LivePrefixes: []string{"sk_live_", "rk_live_"},
		}},
		MappingKeys: []string{keyEventName},
		Answers:     answerPatterns(),
	}
}

func answerPatterns() []exporter.AnswerPattern {
	patterns := []exporter.AnswerPattern{{
		Class: exporter.AnswerDuplicate, Status: http.StatusBadRequest,
		Path: pointerMessage, Contains: duplicatePrefix + "{identifier}",
	}, {
		Class: exporter.AnswerDuplicate, Status: http.StatusBadRequest,
		Path: pointerMessage, Contains: cancelledPrefix + "{identifier}" + cancelledSuffix,
	}, {
		// The key is made of our identifier, which another body had before.
		Class: exporter.AnswerDuplicate, Status: http.StatusBadRequest,
		Path: pointerMessage, Contains: keyTaken + keyNamed + "{identifier}-",
	}, {
		// Naming no key of ours it still says that nothing was done.
		Class: exporter.AnswerRefused, Status: http.StatusBadRequest,
		Path: pointerMessage, Contains: keyTaken,
	}}
	add := func(class exporter.AnswerClass, codes, sentences []string) {
		patterns = append(patterns, exporter.AnswerPattern{
			Class: class, Status: http.StatusBadRequest, Path: pointerCode, Equals: codes,
		})
		for _, s := range sentences {
			patterns = append(patterns, exporter.AnswerPattern{
				Class: class, Status: http.StatusBadRequest, Path: pointerMessage, Contains: s,
			})
		}
	}
	add(exporter.AnswerMendable, earlyCodes, earlySentences)
	add(exporter.AnswerRefused, refusedCodes, refusedSentences)
	add(exporter.AnswerMendable, mendableCodes, mendableSentences)
	return patterns
}
