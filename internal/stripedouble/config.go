package stripedouble

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
)

// MeterStatus is the state of a meter.
type MeterStatus string

// The states of a meter.
const (
	MeterActive   MeterStatus = "active"
	MeterArchived MeterStatus = "archived"
)

// Codes says which refusals carry an error code beside their sentence.
type Codes string

// The choices of [Config.Codes]. They concern the refusals about an event;
// errors of authentication, rate and idempotency always carry their code.
const (
	CodesDefault Codes = ""     // all but that of a repeated identifier
	CodesNone    Codes = "none" // sentences only
	CodesAll     Codes = "all"  // a repeated identifier has duplicate_meter_event
)

// Defaults of a [Config].
const (
	DefaultListen       = "127.0.0.1:0"
	DefaultAccount      = "acct_double"
	DefaultDedupeWindow = 24 * time.Hour
	DefaultSamples      = 2
)

// RepeatedCancel says what a second cancellation of one event is answered.
type RepeatedCancel string

// The choices of [Config.RepeatedCancel].
const (
	RepeatedCancelRefused RepeatedCancel = ""   // 400, with a sentence
	RepeatedCancelTaken   RepeatedCancel = "ok" // 200, as the first
)

// Config says how a [Server] behaves. Only Dir is required.
type Config struct {
	// Dir holds the ledger and the CA. It is created if missing and belongs to
	// one running server.
	Dir string
	// Listen is the address to serve. Empty: [DefaultListen], a free port.
	Listen string
	// Sync makes every answer wait until the ledger is on the disk. Without it
	// the ledger survives the end of the process, but not that of the machine.
	Sync bool

	// Seed decides probabilistic faults and generated ids.
	Seed uint64
	// Now is the clock. Nil: time.Now. ClockOffset is added to it, and so is
	// every advance made through /__clock.
	Now         func() time.Time
	ClockOffset time.Duration

	// Meters are the event names that exist. Nil: every one, active.
	Meters map[string]MeterStatus
	// Customers are those that exist. Nil: every id that starts with cus_.
	Customers []string
	// Account owns the keys: what a request without a Stripe-Account header
	// reports to. Empty: [DefaultAccount].
	Account string
	// Accounts are the connected accounts that Stripe-Account may name. Nil:
	// every id that starts with acct_.
	Accounts []string
	// Keys are the API keys that are accepted; sk_test_ and rk_test_ mean test
	// mode, sk_live_ and rk_live_ live mode. Nil: every key of such a form.
	Keys []string

	// Latency is how long an execution takes at least.
	Latency time.Duration
	// RateLimit is the number of requests a second beyond which 429 is
	// answered. Zero: unlimited.
	RateLimit int
	// SerialLimit is how many requests for one customer and meter may execute
	// at a time. Zero: one, as at Stripe. Negative: unlimited.
	SerialLimit int
	// DedupeWindow is how long an identifier is recognised. Zero:
	// [DefaultDedupeWindow].
	DedupeWindow time.Duration
	// Codes says which refusals carry a code.
	Codes Codes

	// RepeatedCancel is how a second cancellation is answered.
	RepeatedCancel RepeatedCancel
	// SummaryLag is how long after its acceptance a summary lacks an event, and
	// after its cancellation still has it.
	SummaryLag time.Duration
	// WebhookURL receives error reports, signed with WebhookSecret. Both can be
	// set later, see [Server.SetWebhook]. Empty: they wait at /__reports.
	WebhookURL    string
	WebhookSecret string
	// Samples is how many victims an error report names for each code. Zero:
	// [DefaultSamples]. Negative: none.
	Samples int
	// FullReports are delivered with their data. Otherwise they are thin, as at
	// Stripe: the data is to be had from GET /v2/core/events/ID.
	FullReports bool

	// Faults is the schedule to start with.
	Faults Faults
	// CertificateHost makes the server present a certificate for this host
	// instead of its own, to see clients refuse it.
	CertificateHost string
	// Logger receives lifecycle and faults, never keys or payloads. Nil:
	// nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Account == "" {
		c.Account = DefaultAccount
	}
	if c.SerialLimit == 0 {
		c.SerialLimit = 1
	}
	if c.DedupeWindow == 0 {
		c.DedupeWindow = DefaultDedupeWindow
	}
	if c.Samples == 0 {
		c.Samples = DefaultSamples
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if c.Dir == "" {
		return errors.New("stripe double: dir: must name a directory")
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("stripe double: listen: must be host:port: %w", err)
	}
	if c.Latency < 0 || c.RateLimit < 0 || c.DedupeWindow < 0 || c.SummaryLag < 0 {
		return errors.New("stripe double: latency, rate limit, dedupe window and summary lag: must not be negative")
	}
	if c.RepeatedCancel != RepeatedCancelRefused && c.RepeatedCancel != RepeatedCancelTaken {
		return errors.New("stripe double: repeated cancel: must be empty or ok")
	}
	switch c.Codes {
	case CodesDefault, CodesNone, CodesAll:
	default:
		return errors.New("stripe double: codes: must be empty, none or all")
	}
	for name, status := range c.Meters {
		if name == "" || len(name) > maxNameLength {
			return errors.New("stripe double: meters: an event name has 1 to 100 characters")
		}
		if status != MeterActive && status != MeterArchived {
			return errors.New("stripe double: meters: a meter is active or archived")
		}
	}
	for _, k := range c.Keys {
		if _, ok := keyMode(k); !ok {
			return errors.New("stripe double: keys: must start with sk_test_, rk_test_, sk_live_ or rk_live_")
		}
	}
	return nil
}

// keyMode reads the mode from the form of an API key.
func keyMode(key string) (live, ok bool) {
	for _, prefix := range []string{"sk_", "rk_"} {
		rest, found := strings.CutPrefix(key, prefix)
		if !found {
			continue
		}
		if s, isTest := strings.CutPrefix(rest, "test_"); isTest && s != "" {
			return false, true
		}
		if s, isLive := strings.CutPrefix(rest, "live_"); isLive && s != "" {
			return true, true
		}
	}
	return false, false
}
