// Package stripe exports usage to Stripe as v1 billing meter events.
//
// It uses stripe-go's types and encoding, but not its HTTP client: requests are
// recorded, sent by the host as one batch, and the answers handed back to
// stripe-go to decode. Nothing here retries, measures or sends by itself.
//
// Two keys guard each event. The identifier in the body is the same at every
// attempt and is what Stripe refuses to bill twice. The Idempotency-Key header
// differs per attempt, because Stripe replays a stored answer for a repeated
// key, a 500 included, and no later attempt could ever succeed.
//
// A correction is told by cancelling the original's event, or by an event of the
// negative value with an identifier of its own; the host decides which. What
// Stripe counted is read back as the sums of a customer at a meter, and what it
// refuses late is read from its error reports.
//
// # Settings
//
//	connected: true   the account is a connected account of the key's own: every
//	                  request carries Stripe-Account with the item's account.
//	                  Without it the key must belong to the account itself.
//
// # Mapping of a feature
//
//	event_name     the meter's event name; required
//	customer_key   payload key of the customer, default stripe_customer_id
//	value_key      payload key of the value, default value
package stripe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// DefaultBaseURL is where usage goes if the configuration names no other place.
const DefaultBaseURL = "https://api.stripe.com"

// New builds the exporter on the host's HTTP capability. It is an
// [exporter.New].
func New(host capability.Host) exporter.Exporter { return &Exporter{http: host.HTTP} }

// Exporter reports items as meter events. Make it with [New]; the zero value
// can only describe itself. It is not for use from two goroutines at once.
type Exporter struct {
	http          capability.HTTP
	configuration exporter.Configuration
	settings      settings
	configured    bool
	meters        map[string]string // ids by event name, as far as they are known
}

type settings struct {
	Connected bool `json:"connected"`
}

// Describe returns the manifest.
func (*Exporter) Describe(context.Context) (exporter.Manifest, error) { return manifest(), nil }

// Configure checks and takes the operator's settings. Its errors are tagged
// invalid and name the field.
func (e *Exporter) Configure(_ context.Context, c exporter.Configuration) error {
	if e.http == nil {
		return &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "capability_missing", Field: "http",
			Rule: "the capability http", Hint: "grant http to this plugin",
		}
	}
	if c.Mode != modeTest && c.Mode != modeLive {
		return sdk.Invalid("mode", "test or live")
	}
	base, err := baseURL(c.BaseURL)
	if err != nil {
		return err
	}
	c.BaseURL = base
	s, err := parseSettings(c.Settings)
	if err != nil {
		return err
	}
	if s.Connected && !strings.HasPrefix(c.Account, accountPrefix) {
		return sdk.Invalid("account", `an account id ("acct_…"), because settings.connected is true`)
	}
	e.configuration, e.settings, e.configured, e.meters = c, s, true, nil
	return nil
}

// Close has nothing to release.
func (*Exporter) Close(context.Context) error { return nil }

// accountPrefix is how Stripe's ids of accounts begin.
const accountPrefix = "acct_"

const (
	modeTest = "test"
	modeLive = "live"
)

// baseURL checks and trims the address that requests are built on.
func baseURL(s string) (string, error) {
	if s == "" {
		return DefaultBaseURL, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", sdk.Invalid("base_url", `an https address without user, query and fragment, such as "https://api.stripe.com"`)
	}
	return strings.TrimRight(s, "/"), nil
}

func parseSettings(raw json.RawMessage) (settings, error) {
	var s settings
	if len(raw) == 0 {
		return s, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, sdk.Invalid("settings", "a JSON object that may have: connected (true or false)")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return s, sdk.Invalid("settings", "one JSON object")
	}
	return s, nil
}
