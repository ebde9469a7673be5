package stripedouble_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// The answer to a charge has the shape of Stripe's billing.meter_event, and
// livemode follows the key (Q15).
func TestChargeAnswersMeterEvent(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, c := range []struct {
		key  string
		live bool
	}{{testKey, false}, {"sk_live_abc", true}, {"rk_test_abc", false}, {"rk_live_abc", true}} {
		got := r.mustPost(200, event("id_1_"+c.key), "Authorization", "Bearer "+c.key)
		want := `{"object":"billing.meter_event","created":1796040000,"event_name":"llm_tokens","identifier":"id_1_` + c.key +
			`","livemode":` + map[bool]string{true: "true", false: "false"}[c.live] +
			`,"payload":{"stripe_customer_id":"cus_1","value":"25"},"timestamp":1796040000}`
		if string(got.body) != want {
			t.Errorf("body\n%s\nwant\n%s", got.body, want)
		}
		if !strings.HasPrefix(got.header.Get("Request-Id"), "req_") || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("headers %v", got.header)
		}
	}
	basic := r.mustPost(200, event("basic"), "Authorization", "Basic c2tfdGVzdF9hYmM6") // sk_test_abc:
	if basic.header.Get("Date") != "Mon, 30 Nov 2026 12:00:00 GMT" {
		t.Errorf("Date %q is not the double's clock", basic.header.Get("Date"))
	}
	noID := r.mustPost(200, event("", "identifier", "", "timestamp", ""))
	var made struct {
		Identifier string
		Timestamp  int64
	}
	if err := json.Unmarshal(noID.body, &made); err != nil || made.Identifier == "" || made.Timestamp != 1796040000 {
		t.Errorf("generated %+v, %v", made, err)
	}
}

// D2: a repeat inside the window is refused with 400, whatever its content,
// and charges nothing; it carries no code but says not to retry.
func TestRepeatIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.mustPost(200, event("id_1"))
	for _, form := range [][]string{{}, {"payload[value]", "26"}, {"payload[stripe_customer_id]", "cus_2"}, {"event_name", "other"}} {
		got := r.mustPost(400, event("id_1", form...))
		want := stripeError{Type: "invalid_request_error", Message: "An event already exists with identifier id_1."}
		e := got.error(t)
		e.RequestLogURL = ""
		if diff := cmp.Diff(want, e); diff != "" {
			t.Error(diff)
		}
		if got.header.Get("Stripe-Should-Retry") != "false" {
			t.Error("Stripe-Should-Retry is not false")
		}
	}
	// Another mode and another account are other books.
	r.mustPost(200, event("id_1"), "Authorization", "Bearer sk_live_abc")
	r.mustPost(200, event("id_1"), "Stripe-Account", "acct_other")
	r.mustPost(400, event("id_1"), "Stripe-Account", "acct_other")
	r.mustPost(400, event("id_1"), "Stripe-Account", stripedouble.DefaultAccount)
	e, ok := r.Entry("", false, "id_1")
	want := stripedouble.Entry{
		Identifier: "id_1", Account: stripedouble.DefaultAccount, EventName: "llm_tokens", Customer: "cus_1", Value: "25",
		Timestamp: 1796040000, FirstSeen: epoch, LastCharged: epoch, TimesSeen: 6, Charges: 1,
	}
	if diff := cmp.Diff(want, e); diff != "" || !ok {
		t.Error(diff)
	}
	if l := r.Ledger(); l.Events != 3 || l.Charges != 3 || l.DoubleCharges != 0 || l.DuplicatesRefused != 6 || l.ChargesTotal["llm_tokens"] != "75" {
		t.Errorf("ledger %+v", l)
	}
}

// F36, S-T1: past the window the identifier charges a second time and the
// ledger says so. The window counts from the last charge.
func TestRepeatAfterWindowChargesAgain(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) { c.DedupeWindow = 5 * time.Minute })
	advance := func(d time.Duration) {
		t.Helper()
		if err := r.Advance(d); err != nil {
			t.Fatal(err)
		}
	}
	r.mustPost(200, event("id_1", "payload[value]", "0.1"))
	advance(5*time.Minute - time.Microsecond)
	r.mustPost(400, event("id_1", "payload[value]", "0.1"))
	advance(time.Microsecond)
	r.mustPost(200, event("id_1", "payload[value]", "0.2"))
	r.mustPost(400, event("id_1"))
	l := r.Ledger()
	want := map[string]stripedouble.EventTotal{"llm_tokens": {Events: 1, Charges: 2, Total: "0.3", Net: "0.3"}}
	if diff := cmp.Diff(want, l.ByEventName); diff != "" {
		t.Error(diff)
	}
	if l.DoubleCharges != 1 || cmp.Diff([]string{"id_1"}, l.DoubleCharged) != "" {
		t.Errorf("double charge not seen: %+v", l)
	}
}

// D4, F27, F34: every refusal that doc.go lists, with its exact form, and
// nothing charged by any of them.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *stripedouble.Config) {
		c.Keys = []string{testKey, "sk_live_abc"}
		c.Accounts = []string{"acct_1"}
		c.Meters = map[string]stripedouble.MeterStatus{"llm_tokens": stripedouble.MeterActive, "old": stripedouble.MeterArchived}
		c.Customers = []string{"cus_1"}
	})
	long := strings.Repeat("é", 101)
	for _, c := range []struct {
		name    string
		form    []string
		header  []string
		status  int
		code    string
		param   string
		message string // a part
	}{
		{"no key", nil, []string{"Authorization", ""}, 401, "", "", "You did not provide an API key."},
		{"wrong key", nil, []string{"Authorization", "Bearer sk_test_wrong"}, 401, "", "", "Invalid API Key provided: sk_test_****"},
		{"no mode in key", nil, []string{"Authorization", "Bearer hunter2"}, 401, "", "", "Invalid API Key provided: ****"},
		{"unknown account", nil, []string{"Stripe-Account", "acct_2"}, 403, "account_invalid", "", "'acct_2'"},
		{"no event name", []string{"event_name", ""}, nil, 400, "parameter_missing", "event_name", "Missing required param: event_name."},
		{"no payload", []string{"payload[value]", "", "payload[stripe_customer_id]", ""}, nil, 400, "parameter_missing", "payload", "Missing required param: payload."},
		{"unknown parameter", []string{"colour", "red"}, nil, 400, "parameter_unknown", "colour", "Received unknown parameter: colour"},
		{"long event name", []string{"event_name", long}, nil, 400, "", "event_name", "at most 100 characters"},
		{"long identifier", []string{"identifier", long}, nil, 400, "", "identifier", "at most 100 characters"},
		{"timestamp no integer", []string{"timestamp", "2026-11-30"}, nil, 400, "parameter_invalid_integer", "timestamp", "Invalid integer"},
		{"payload no object", []string{"payload", "x"}, nil, 400, "", "payload", "Invalid object"},
		{"no customer", []string{"payload[stripe_customer_id]", ""}, nil, 400, "meter_event_no_customer_defined", "payload[stripe_customer_id]", "no customer"},
		{"no value", []string{"payload[value]", ""}, nil, 400, "meter_event_invalid_value", "payload[value]", "not a decimal"},
		{"exponent", []string{"payload[value]", "1e3"}, nil, 400, "meter_event_invalid_value", "payload[value]", "not a decimal"},
		{"NaN", []string{"payload[value]", "NaN"}, nil, 400, "meter_event_invalid_value", "payload[value]", "not a decimal"},
		{"thousands", []string{"payload[value]", "1,000"}, nil, 400, "meter_event_invalid_value", "payload[value]", "not a decimal"},
		{"13 decimals", []string{"payload[value]", "0.0000000000001"}, nil, 400, "meter_event_invalid_value", "payload[value]", "not a decimal"},
		{"16 digits", []string{"payload[value]", "1234567890123456"}, nil, 400, "meter_event_value_too_many_digits", "payload[value]", "at most 15 digits. Received 1234567890123456."},
		{"16 digits with point", []string{"payload[value]", "1234567890.123456"}, nil, 400, "meter_event_value_too_many_digits", "payload[value]", "at most 15 digits"},
		{"27 digits", []string{"payload[value]", "100000000000000000000000000"}, nil, 400, "meter_event_value_too_many_digits", "payload[value]", "at most 15 digits"},
		{"35 days and a second", []string{"timestamp", "1793015999"}, nil, 400, "timestamp_too_far_in_past", "timestamp", "cannot be more than 35 days in past. Expected a timestamp greater than or equal to 1793016000."},
		{"5 minutes and a second", []string{"timestamp", "1796040301"}, nil, 400, "timestamp_in_future", "timestamp", "less than or equal to 1796040300."},
		{"no such meter", []string{"event_name", "nope"}, nil, 400, "no_meter", "event_name", `No active meter found for event name "nope".`},
		{"archived meter", []string{"event_name", "old"}, nil, 400, "archived_meter", "event_name", `No active meter found for event name "old".`},
		{"no such customer", []string{"payload[stripe_customer_id]", "cus_2"}, nil, 400, "resource_missing", "payload[stripe_customer_id]", "No such customer: 'cus_2'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := r.mustPost(c.status, event("refused "+c.name, c.form...), c.header...)
			e := got.error(t)
			if e.Type != "invalid_request_error" || e.Code != c.code || e.Param != c.param || !strings.Contains(e.Message, c.message) {
				t.Errorf("got %+v", e)
			}
			if (e.DocURL != "") != (c.code != "") || !strings.HasPrefix(e.RequestLogURL, "https://dashboard.stripe.com/test/logs/req_") {
				t.Errorf("urls %q %q", e.DocURL, e.RequestLogURL)
			}
		})
	}
	t.Cleanup(func() {
		if n := len(r.Entries()); n != 0 {
			t.Errorf("refusals charged %d events", n)
		}
	})
}

// F27, D4: what lies just inside each limit is charged.
func TestLimitsAreInclusive(t *testing.T) {
	t.Parallel()
	r := start(t)
	for i, form := range [][]string{
		{"payload[value]", "123456789012345"},
		{"payload[value]", "-1234567.12345678"},
		{"payload[value]", "0"},
		{"payload[value]", "12345678901234500000000000"}, // 15 significant digits in 26
		{"payload[value]", "0.000000000001"},
		{"timestamp", "1793016000"},
		{"timestamp", "1796040300"},
		{"event_name", strings.Repeat("é", 100)},
		{"payload[model]", "m1"},
	} {
		r.mustPost(200, event(strings.Repeat("é", 99)+string(rune('a'+i)), form...))
	}
	// 123456789012345 − 1234567.12345678 + 12345678901234500000000000 +
	// 0.000000000001 + 25 + 25 + 25, by hand; the long name has its own sum.
	if got, want := r.Ledger().ChargesTotal["llm_tokens"], "12345678901357956787777852.876543220001"; got != want {
		t.Errorf("total %s, want %s", got, want)
	}
}

// The two other forms in which a refusal about an event may come.
func TestCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		codes             stripedouble.Codes
		duplicate, digits string
	}{
		{stripedouble.CodesDefault, "", "meter_event_value_too_many_digits"},
		{stripedouble.CodesNone, "", ""},
		{stripedouble.CodesAll, "duplicate_meter_event", "meter_event_value_too_many_digits"},
	} {
		t.Run("codes "+string(c.codes), func(t *testing.T) {
			t.Parallel()
			r := start(t, func(cfg *stripedouble.Config) { cfg.Codes = c.codes })
			r.mustPost(200, event("id_1"))
			if e := r.mustPost(400, event("id_1")).error(t); e.Code != c.duplicate {
				t.Errorf("duplicate has code %q", e.Code)
			}
			if e := r.mustPost(400, event("id_2", "payload[value]", "1234567890123456")).error(t); e.Code != c.digits {
				t.Errorf("digits have code %q", e.Code)
			}
			if e := r.mustPost(403, event("id_3"), "Stripe-Account", "nonsense").error(t); e.Code != "account_invalid" {
				t.Errorf("account has code %q", e.Code)
			}
		})
	}
}

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, c := range [][2]string{{http.MethodGet, "/v1/billing/meter_events"}, {http.MethodPost, "/v1/billing/meters"}, {http.MethodGet, "/"}} {
		req, err := http.NewRequestWithContext(t.Context(), c[0], r.URL()+c[1], http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		got := r.do(req)
		if e := got.error(t); got.status != 404 || e.Code != "url_invalid" || !strings.Contains(e.Message, c[0]+": "+c[1]) {
			t.Errorf("%v: %d %+v", c, got.status, e)
		}
	}
}

// F29: more than RateLimit a second is refused without effect, and time heals.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	m := newMovable()
	r := start(t, func(c *stripedouble.Config) { c.Now, c.RateLimit = m.now, 2 })
	r.mustPost(200, event("id_1"))
	r.mustPost(200, event("id_2"))
	got := r.mustPost(429, event("id_3"), "Idempotency-Key", "k")
	if e := got.error(t); e.Code != "rate_limit" || got.header.Get("Stripe-Rate-Limited-Reason") != "global-rate" {
		t.Errorf("got %+v %v", e, got.header)
	}
	m.move(time.Second)
	// D3: 429 is not stored under the key.
	if got := r.mustPost(200, event("id_3"), "Idempotency-Key", "k"); got.header.Get("Idempotent-Replayed") != "" {
		t.Error("a 429 was stored")
	}
}
