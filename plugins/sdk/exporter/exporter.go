// Package exporter is the contract of an exporter: what it says of itself, what
// it is handed, and what it may answer. See docs/write-an-exporter.md.
package exporter

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Exporter turns usage into requests to one provider.
//
// The host calls Describe, then Configure once, then Deliver any number of
// times, then Close. It never calls one instance from two goroutines at once.
type Exporter interface {
	// Describe returns the manifest. It uses no capability, works before
	// Configure and always answers the same.
	Describe(ctx context.Context) (Manifest, error)
	// Configure takes the operator's settings. It fails with tag invalid,
	// naming the field and the rule.
	Configure(ctx context.Context, c Configuration) error
	// Deliver reports items and answers one outcome for each. An item
	// without an answer, or with two, is uncertain. It must not change an
	// item's identifier, nor derive one from time or randomness. Problems of
	// the provider are outcomes, never errors.
	Deliver(ctx context.Context, d Delivery) ([]ItemOutcome, error)
	// Close releases what the instance holds.
	Close(ctx context.Context) error
}

// Prober is implemented by exporters that can read back what the provider
// counted. Declared by Manifest.ReadBack.
type Prober interface {
	// Probe answers one sum for each question, in order, or says why it
	// cannot. Problems of the provider are answers, never errors.
	Probe(ctx context.Context, p Probe) ([]ProbeAnswer, error)
}

// WebhookReceiver is implemented by exporters to which the provider reports
// late. Declared by Manifest.Webhook.
type WebhookReceiver interface {
	// Webhook reads a message whose signature the host has verified. What it
	// does not know is no evidence, and no error. It must be the same for the
	// same message, however often it comes.
	Webhook(ctx context.Context, w Webhook) (WebhookAnswer, error)
}

// New builds an exporter on the capabilities that it was granted.
type New func(host capability.Host) Exporter

// CorrectionMode says how a provider takes back usage.
type CorrectionMode string

// Correction modes.
const (
	CorrectNone     CorrectionMode = "none"
	CorrectCancel   CorrectionMode = "cancel"
	CorrectNegative CorrectionMode = "negative"
	CorrectTotal    CorrectionMode = "replace_total"
)

// Manifest is what an exporter declares. Limits here and in the operator's
// configuration are both obeyed: the smaller counts.
type Manifest struct {
	Name    string
	Version string

	// IdentifierMaxLength is the provider's limit in characters.
	IdentifierMaxLength int
	// IdentifierHorizon is how long the provider promises to recognise a
	// repeated identifier, less a margin. Zero: for ever.
	IdentifierHorizon time.Duration

	// Window bounds the age of what the provider accepts. Zero: unbounded.
	WindowPast   time.Duration
	WindowFuture time.Duration

	Values ValueDomain

	MaxBatch int // items in one Deliver; 1 to 500
	// Rate is requests per second to one destination, Concurrency requests
	// in flight there.
	Rate        int
	Concurrency int
	// SerialBy names the item fields of which equal combinations are sent
	// one after another: "customer", "event_name". Empty: no such limit.
	SerialBy []string

	Corrections CorrectionMode
	// CancelWithin is how long after an item's first attempt it may be
	// cancelled. Of CorrectCancel; such an exporter takes negative values
	// where a cancel is not possible if Values.Negative is set.
	CancelWithin time.Duration

	// ReadBack says how the provider can be asked for what it counted; the
	// zero value: not at all.
	ReadBack ReadBack
	// Webhook says how its messages are signed; nil: it sends none.
	Webhook *WebhookSignature

	// Capabilities are what the plugin asks of the host.
	Capabilities []capability.Name
	// Hosts are the host names, "api.stripe.com", that it calls over https.
	Hosts   []string
	Secrets []Secret

	// MappingKeys are the keys that a feature's mapping must have.
	MappingKeys []string
	// NeedsAccount is set if an item cannot be sent without an account.
	NeedsAccount bool

	// Answers are the patterns by which the host itself recognises what an
	// answer means. First match counts.
	Answers []AnswerPattern
	// Records is set if the provider has no identifiers and answers for each
	// record of a request.
	Records *Records

	// Every restricts the exporter to windows of counters, of which it gets at
	// most one for each customer and feature in each span of this length in
	// UTC; the window's time is the start of the span in which it was staged.
	// For providers that recognise a value by customer, dimension and hour.
	// Zero: no such limit.
	Every time.Duration
}

// Records says how a request carries several items to a provider that
// recognises a repetition by what a record says and not by an identifier. The
// host then looks for the key and not for the identifier.
type Records struct {
	// Path is a JSON pointer to the list in the request's body. Record i is
	// that of Request.Items[i].
	Path string
	// Key is what the provider recognises a record by.
	Key []RecordKey
	// Answers are the lists of an answer that speak of records. A record that
	// is in none or in two of them is uncertain.
	Answers []RecordAnswers
}

// RecordKey is one part of a key. The host takes the value from the item,
// compares it with the request, and finds the record in the answer by it.
type RecordKey struct {
	// Field of the item: "customer", "timestamp" (seconds since 1970), "value"
	// or "mapping.NAME".
	Field string
	// Path is a JSON pointer inside the record.
	Path string
}

// RecordAnswers is a list in an answer.
type RecordAnswers struct {
	Path   string // JSON pointer to the list
	Record string // and, inside an element of it, to the record; "" is the element
}

// ReadBack is how a provider is asked for sums.
type ReadBack struct {
	// Sums: it answers the sum of a customer's usage at one meter.
	Sums bool
	// Lag is how long after an acceptance a sum may still lack it.
	Lag time.Duration
	// Granularity is what From and To of a probe are multiples of.
	Granularity time.Duration
	// Evidence lists what settles an uncertain item: "sum_present" (a sum that
	// can only be explained if it was taken), "error_report".
	Evidence []string
}

// WebhookSignature is how the host verifies a message before the plugin sees it.
type WebhookSignature struct {
	// Scheme is "t=,v1=": a header of "t=SECONDS,v1=HEX" with HMAC-SHA256 over
	// "SECONDS.BODY", any of several v1 counting.
	Scheme    string
	Header    string
	Secret    string // the name of a secret, which has no Header of its own
	Tolerance time.Duration
}

// Probe is a set of questions to the provider.
type Probe struct {
	Questions []ProbeQuestion
	Deadline  time.Time
}

// ProbeQuestion asks for the sum of one customer's usage in [From, To).
type ProbeQuestion struct {
	Customer string
	Feature  string
	Mapping  map[string]string
	From     time.Time
	To       time.Time
}

// ProbeAnswer is what the provider says. Sum is nil if it did not say; Code and
// Message tell why.
type ProbeAnswer struct {
	Sum     *string // exact decimal, plain notation
	Meter   string  // the provider's name for the meter
	Code    string
	Message string
}

// Webhook is one message of the provider.
type Webhook struct {
	Body       []byte
	ReceivedAt time.Time
}

// WebhookAnswer is what a message says of items.
type WebhookAnswer struct {
	// ID is the provider's name for the message.
	ID       string
	Evidence []Evidence
	// Counted is how many items the message concerns if it does not name all
	// of them; 0: unknown.
	Counted int
	// Code is the message's own, for an operator.
	Code string
}

// Evidence is what the provider says of one item, by the identifier that the
// item was sent with.
type Evidence struct {
	Identifier string
	// Refused: it was not counted after all.
	Refused bool
	Code    string
	Message string
}

// ValueDomain is the set of numbers that the provider can express.
type ValueDomain struct {
	SignificantDigits int // 0: unlimited
	MaxDecimals       int // -1: unlimited
	Negative          bool
	Zero              bool
}

// Secret is a value that the host adds to requests; the plugin only names it.
type Secret struct {
	Name string
	// Scheme says what the host does with the value; empty: it goes into
	// Header.
	Scheme SecretScheme
	// Header receives Prefix + value: "Authorization", "Bearer ".
	Header string
	Prefix string
	// TestPrefixes and LivePrefixes tell the values of the two modes apart: if
	// set, the operator's value must begin with one of those of the exporter's
	// mode, so that a live key never sends test items nor the reverse. If only
	// the other mode's are set, it must begin with none of those. The host
	// checks this before the plugin may send. An empty prefix matches nothing.
	// Both empty: any value will do.
	TestPrefixes []string
	LivePrefixes []string
}

// SecretScheme is a way to use a secret.
type SecretScheme string

// Schemes of secrets.
const (
	// SecretHeader puts the value into a header.
	SecretHeader SecretScheme = ""
	// SecretAWS signs with Signature Version 4 of AWS. The value is
	// "ACCESS_KEY_ID:SECRET_ACCESS_KEY", or with ":SESSION_TOKEN" after it.
	// The request names a SigningScope.
	SecretAWS SecretScheme = "aws_sigv4"
	// SecretWebhook signs as Standard Webhooks 1.0.0: the host adds
	// webhook-timestamp and webhook-signature, the plugin webhook-id. The
	// value is "whsec_" and base64 of the key; several, separated by spaces,
	// while a key is replaced.
	SecretWebhook SecretScheme = "standard_webhooks"
)

// AnswerClass is what an answer pattern recognises.
type AnswerClass string

// Classes of an answer.
const (
	AnswerDuplicate AnswerClass = "duplicate" // our own identifier was taken before
	AnswerRefused   AnswerClass = "refused"   // refused for good: nothing can mend this event
	AnswerMendable  AnswerClass = "mendable"  // refused until an operator mends something
	AnswerAccepted  AnswerClass = "accepted"  // taken; of a list in an answer only
	// AnswerAgain: not taken, and may be sent again. Of a list, or of a 4xx to
	// a request that the provider takes whole or not at all: it then says so of
	// every item of the request.
	AnswerAgain AnswerClass = "again"
)

// AnswerPattern recognises an answer by its status and a field of its JSON
// body. A duplicate must name our identifier: "{identifier}" in Contains stands
// for the identifier of the item, and a duplicate without it is refused. So is
// a pattern on a status that says nothing about an item: below 200, 3xx, 408,
// 429, and 500 or above. A pattern without Path, Equals and Contains fits every
// element of In; without In it fits the status alone, which may then be 3xx, and
// is mendable: a person looks.
type AnswerPattern struct {
	Class  AnswerClass
	Status int
	// In is the path of one of Records.Answers: Path then is inside an element
	// of that list. Empty: the answer as a whole.
	In string
	// Path is a JSON pointer (RFC 6901) into the body, "/error/code".
	Path string
	// Equals matches if the value at Path is one of these; Contains if it
	// holds this text. One is set at most.
	Equals   []string
	Contains string
}

// Configuration is what the operator set for one exporter.
type Configuration struct {
	// Name is the exporter's name in the configuration.
	Name    string
	Account string
	Mode    string // test or live
	BaseURL string // empty: the provider's own
	// Settings are further settings of this plugin as a JSON object, or nil.
	Settings json.RawMessage
}

// Delivery is a batch to report.
type Delivery struct {
	Items []Item
	// Deadline is when the host stops waiting. What is not sent by then is
	// taken back and tried again.
	Deadline time.Time
}

// Item is one thing to report: a whole, frozen financial intent. Every field
// but Attempt is the same at every attempt.
type Item struct {
	ID         string // echo it in the outcome
	Identifier string // the provider's idempotency key
	Attempt    int    // from 1
	Kind       string // event, correction or usage_window
	Account    string
	Mode       string
	Customer   string
	Feature    string
	Value      string // exact decimal, plain notation
	Timestamp  time.Time
	// PeriodStart and PeriodEnd bound the billing period, half-open.
	PeriodStart time.Time
	PeriodEnd   time.Time
	// Mapping is how this feature is expressed at the provider.
	Mapping map[string]string
	// Corrects is set for a correction, nil otherwise.
	Corrects *Corrects
}

// Corrects says what a correction takes back and how it is to be told. Method
// never changes from one attempt to the next. A cancel tells neither value nor
// time; a replaced total tells the original's value plus the item's.
type Corrects struct {
	Method     CorrectionMode // cancel, negative or replace_total
	Identifier string         // with which the original was sent
	Value      string         // of the original
}

// OutcomeKind is what became of an item.
type OutcomeKind string

// The outcomes.
const (
	Accepted        OutcomeKind = "accepted"
	AcceptedEarlier OutcomeKind = "accepted_earlier" // the provider knows the identifier, same content
	Retry           OutcomeKind = "retry"
	RateLimited     OutcomeKind = "rate_limited"
	Rejected        OutcomeKind = "rejected"
	Conflict        OutcomeKind = "conflict" // same identifier, other content
	Uncertain       OutcomeKind = "uncertain"
)

// OutcomeKinds lists them all.
var OutcomeKinds = [...]OutcomeKind{Accepted, AcceptedEarlier, Retry, RateLimited, Rejected, Conflict, Uncertain}

// ItemOutcome answers one item.
type ItemOutcome struct {
	ItemID      string
	Kind        OutcomeKind
	ProviderRef string        // the provider's name for it, if it gave one
	RetryAfter  time.Duration // of retry and rate_limited; zero: the host decides
	Code        string        // short, for programs
	Message     string        // short, for people; sanitised by the host
	// Mendable marks a rejection that an operator can mend (no such
	// customer, meter missing). The item is then quarantined, not rejected.
	Mendable bool
}

// HostClass is what the host saw of an item's exchange, whatever the plugin
// says of it.
type HostClass string

// The classes of an exchange.
const (
	ClassNotSent      HostClass = "not_sent"
	ClassSuccess      HostClass = "success"
	ClassDuplicateOwn HostClass = "duplicate_own"
	ClassRefused      HostClass = "refused"
	ClassThrottled    HostClass = "throttled"
	ClassIndefinite   HostClass = "indefinite"
)

// HostClasses lists them all.
var HostClasses = [...]HostClass{ClassNotSent, ClassSuccess, ClassDuplicateOwn, ClassRefused, ClassThrottled, ClassIndefinite}

// Exchange is the host's record of one request that covered an item.
type Exchange struct {
	Class HostClass
	// Mendable accompanies refused.
	Mendable   bool
	Status     int
	Code       string
	Message    string
	RequestID  string
	RetryAfter time.Duration
	StartedAt  time.Time
	FinishedAt time.Time
	// Breaker is set for answers that concern the destination and not the
	// item: 401, 403, 404, 410 of the endpoint.
	Breaker bool
}
