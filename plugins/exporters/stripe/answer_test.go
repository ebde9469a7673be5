package stripe_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

func refusal(code, message string) string {
	return `{"error":{"type":"invalid_request_error","code":"` + code + `","message":"` + message + `"}}`
}

// otherBody is the answer to a key that was used with another body before.
func otherBody(key string) string {
	return `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same ` +
		`parameters they were first used with. Try using a key other than '` + key + `' if you meant to execute a different request."}}`
}

type expectation struct {
	answer func(capability.Request) capability.Response
	want   exporter.ItemOutcome // without ItemID; Message compared only if set
}

// Q9, Q10, D2, F29-F34: what each answer means.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const good = `{"object":"billing.meter_event","created":1796040001,"event_name":"llm_tokens","identifier":"fencepost_1",` +
		`"livemode":false,"payload":{"stripe_customer_id":"cus_1","value":"12.5"},"timestamp":1796040000}`
	accepted := exporter.ItemOutcome{Kind: exporter.Accepted, ProviderRef: "fencepost_1"}
	earlier := exporter.ItemOutcome{Kind: exporter.AcceptedEarlier, ProviderRef: "fencepost_1", Code: "duplicate_meter_event"}
	retry := func(code string) exporter.ItemOutcome { return exporter.ItemOutcome{Kind: exporter.Retry, Code: code} }
	cases := map[string]expectation{
		"200":                          {answer(200, good), accepted},
		"200 without livemode":         {answer(200, `{"identifier":"fencepost_1"}`), accepted},
		"200 with unknown fields":      {answer(200, strings.Replace(good, `{`, `{"new":[1],`, 1)), accepted},
		"200 empty":                    {answer(200, ""), retry(stripe.CodeUnreadableAnswer)},
		"200 null":                     {answer(200, "null"), retry(stripe.CodeForeignAnswer)},
		"200 cut off":                  {answer(200, good[:len(good)-9]), retry(stripe.CodeUnreadableAnswer)},
		"200 HTML":                     {answer(200, "<html>"), retry(stripe.CodeUnreadableAnswer)},
		"200 about another":            {answer(200, strings.Replace(good, "fencepost_1", "fencepost_2", 1)), retry(stripe.CodeForeignAnswer)},
		"200 with an error body":       {answer(200, refusal("x", "y")), retry(stripe.CodeForeignAnswer)},
		"204":                          {answer(204, ""), retry(stripe.CodeUnreadableAnswer)},
		"Q15 live answer":              {answer(200, strings.Replace(good, "false", "true", 1)), exporter.ItemOutcome{Kind: exporter.Uncertain, Code: stripe.CodeModeMismatch}},
		"301":                          {answer(301, "", "Location", "https://evil"), retry("http_301")},
		"F34 401":                      {answer(401, refusal("", "Invalid API Key provided: sk_test_****1234")), retry(stripe.CodeUnauthorized)},
		"F34 403":                      {answer(403, refusal("account_invalid", "x")), retry(stripe.CodeForbidden)},
		"F34 404":                      {answer(404, "not here"), retry(stripe.CodeEndpointMissing)},
		"404 of Stripe":                {answer(404, refusal("url_invalid", "Unrecognized request URL")), exporter.ItemOutcome{Kind: exporter.Retry, Code: "url_invalid", Message: "Unrecognized request URL"}},
		"402":                          {answer(402, ""), retry("http_402")},
		"408":                          {answer(408, ""), retry("http_408")},
		"409 in use":                   {answer(409, refusal("idempotency_key_in_use", "busy")), retry("idempotency_key_in_use")},
		"409 of somebody":              {answer(409, ""), retry("http_409")},
		"F30 500":                      {answer(500, refusal("", "An unknown error occurred")), retry("http_500")},
		"F31 502 HTML":                 {answer(502, "<html>"), retry("http_502")},
		"503 with Retry-After":         {answer(503, "", "retry-after", "7"), exporter.ItemOutcome{Kind: exporter.Retry, Code: "http_503", RetryAfter: 7 * time.Second}},
		"400 empty":                    {answer(400, ""), retry(stripe.CodeUnreadableAnswer)},
		"400 HTML":                     {answer(400, "<html>400"), retry(stripe.CodeUnreadableAnswer)},
		"400 null error":               {answer(400, `{"error":null}`), retry(stripe.CodeUnreadableAnswer)},
		"400 empty error":              {answer(400, `{"error":{}}`), retry(stripe.CodeUnreadableAnswer)},
		"400 error of another shape":   {answer(400, `{"error":"bad"}`), retry(stripe.CodeUnreadableAnswer)},
		"400 unknown":                  {answer(400, refusal("", "Something new")), exporter.ItemOutcome{Kind: exporter.Retry, Code: stripe.CodeUnknownRefusal, Message: "Something new"}},
		"400 about the key":            {answer(400, `{"error":{"type":"idempotency_error","message":"The value in the event payload"}}`), retry(stripe.CodeUnknownRefusal)},
		"F32 the key had another body": {answer(400, otherBody("fencepost_1-1")), exporter.ItemOutcome{Kind: exporter.Conflict, Code: stripe.CodeKeyTaken}},
		"another's key had another":    {answer(400, otherBody("fencepost_10-1")), retry(stripe.CodeUnknownRefusal)},
		"D2 duplicate":                 {answer(400, `{"error":{"message":"An event already exists with identifier fencepost_1.","type":"invalid_request_error"}}`), earlier},
		"duplicate without a stop":     {answer(400, refusal("", "An event already exists with identifier fencepost_1")), earlier},
		"duplicate with a code":        {answer(400, refusal("duplicate_meter_event", "An event already exists with identifier fencepost_1.")), earlier},
		"F32 duplicate of another":     {answer(400, refusal("", "An event already exists with identifier fencepost_10.")), exporter.ItemOutcome{Kind: exporter.Uncertain, Code: stripe.CodeForeignDuplicate}},
		"duplicate that names nobody":  {answer(400, refusal("duplicate_meter_event", "duplicate")), exporter.ItemOutcome{Kind: exporter.Uncertain, Code: stripe.CodeForeignDuplicate}},
		"not sent":                     {failure(capability.FailureNotSent, "deadline"), exporter.ItemOutcome{Kind: exporter.Retry, Code: stripe.CodeNotSent, Message: "deadline"}},
		"no answer":                    {failure(capability.FailureUnknown, "reset"), exporter.ItemOutcome{Kind: exporter.Retry, Code: stripe.CodeNoAnswer, Message: "reset"}},
		"a failure of a later host":    {failure("other", ""), retry(stripe.CodeNoAnswer)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := deliver(t, open(t, &host{answer: c.answer}, testMode()), item())[0]
			c.want.ItemID = "item-1"
			if c.want.Message == "" {
				got.Message = ""
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func failure(f capability.Failure, reason string) func(capability.Request) capability.Response {
	return func(capability.Request) capability.Response {
		return capability.Response{Failure: f, Reason: reason}
	}
}

// Q10: final refusals reject, mendable ones too but marked. With a code, or
// with the sentence alone, as API v1 answers. F25: what comes too early is mended by
// time, and not refused for good.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body     string
		code     string
		mendable bool
	}{
		"invalid value":       {refusal("meter_event_invalid_value", "x"), "meter_event_invalid_value", false},
		"too many digits":     {refusal("meter_event_value_too_many_digits", "x"), "meter_event_value_too_many_digits", false},
		"too old":             {refusal("timestamp_too_far_in_past", "x"), "timestamp_too_far_in_past", false},
		"too new":             {refusal("timestamp_in_future", "x"), "timestamp_in_future", true},
		"digits, sentence":    {refusal("", "The value in the event payload can have at most 15 digits. Received 1234567890123456."), stripe.CodeRefused, false},
		"too old, sentence":   {refusal("", "The event timestamp cannot be more than 35 days in past. Expected a timestamp greater than or equal to 1758141836."), stripe.CodeRefused, false},
		"too new, sentence":   {refusal("", "The event timestamp cannot be more than 5 minutes in future."), stripe.CodeRefused, true},
		"customer":            {refusal("resource_missing", "No such customer: 'cus_1'"), "resource_missing", true},
		"customer, sentence":  {refusal("", "No such customer: 'cus_1'"), stripe.CodeRefused, true},
		"no meter":            {refusal("no_meter", "x"), "no_meter", true},
		"archived meter":      {refusal("archived_meter", "x"), "archived_meter", true},
		"meter, sentence":     {refusal("", `No active meter found for event name 'x'.`), stripe.CodeRefused, true},
		"no customer":         {refusal("meter_event_no_customer_defined", "x"), "meter_event_no_customer_defined", true},
		"a dimension is gone": {refusal("missing_dimension_payload_keys", "x"), "missing_dimension_payload_keys", true},
		"parameter":           {refusal("parameter_unknown", "Received unknown parameter: x"), "parameter_unknown", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := deliver(t, open(t, &host{answer: answer(400, c.body)}, testMode()), item())[0]
			if o.Kind != exporter.Rejected || o.Code != c.code || o.Mendable != c.mendable {
				t.Errorf("got %+v", o)
			}
			// The host must come to the same by the manifest alone.
			want := exporter.AnswerRefused
			if c.mendable {
				want = exporter.AnswerMendable
			}
			if got := match(t, 400, c.body, "fencepost_1"); got != want {
				t.Errorf("the manifest's patterns say %q, want %q", got, want)
			}
		})
	}
	if got := match(t, 400, refusal("", "An event already exists with identifier fencepost_1."), "fencepost_1"); got != exporter.AnswerDuplicate {
		t.Errorf("duplicate: the patterns say %q", got)
	}
	// F32: the host must see, too, that it was not this body that was taken.
	if got := match(t, 400, otherBody("fencepost_1-1"), "fencepost_1"); got != exporter.AnswerDuplicate {
		t.Errorf("the key had another body: the patterns say %q", got)
	}
	if got := match(t, 400, otherBody("other-1"), "fencepost_1"); got != exporter.AnswerRefused {
		t.Errorf("another's key had another body: the patterns say %q", got)
	}
	for _, body := range []string{
		refusal("", "An event already exists with identifier other."), refusal("", "Something new"), "", "<html>",
	} {
		if got := match(t, 400, body, "fencepost_1"); got != "" {
			t.Errorf("%s: the patterns say %q", body, got)
		}
	}
}

// F29: the delay is taken as it is; the host bounds it.
func TestRateLimited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		headers []string
		want    time.Duration
	}{
		"without":              {nil, 0},
		"seconds":              {[]string{"Retry-After", "30"}, 30 * time.Second},
		"a day":                {[]string{"Retry-After", " 86400 "}, 24 * time.Hour},
		"garbage":              {[]string{"Retry-After", "soon"}, 0},
		"negative":             {[]string{"Retry-After", "-5"}, 0},
		"beyond 31 bits":       {[]string{"Retry-After", "99999999999999999999"}, 0},
		"date":                 {[]string{"Retry-After", "Mon, 30 Nov 2026 12:01:30 GMT", "Date", "Mon, 30 Nov 2026 12:00:00 GMT"}, 90 * time.Second},
		"date gone by":         {[]string{"Retry-After", "Mon, 30 Nov 2026 11:00:00 GMT", "Date", "Mon, 30 Nov 2026 12:00:00 GMT"}, 0},
		"date without our own": {[]string{"Retry-After", "Mon, 30 Nov 2026 12:01:30 GMT"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := deliver(t, open(t, &host{answer: answer(429, refusal("rate_limit", "slow down"), c.headers...)}, testMode()), item())[0]
			if o.Kind != exporter.RateLimited || o.RetryAfter != c.want || o.Code != "rate_limit" {
				t.Errorf("got %+v, want %s", o, c.want)
			}
		})
	}
	if o := deliver(t, open(t, &host{answer: answer(429, "<html>")}, testMode()), item())[0]; o.Kind != exporter.RateLimited || o.Code != stripe.CodeRateLimited {
		t.Errorf("429 of a proxy: %+v", o)
	}
}

// Q15, in both directions, and a batch that the host refused or answered badly.
func TestLiveModeAndHost(t *testing.T) {
	t.Parallel()
	live := item()
	live.Mode = "live"
	c := exporter.Configuration{Mode: "live"}
	if o := deliver(t, open(t, &host{answer: answer(200, `{"identifier":"fencepost_1","livemode":false}`)}, c), live)[0]; o.Kind != exporter.Uncertain {
		t.Errorf("a live item taken in test mode: %+v", o)
	}
	if o := deliver(t, open(t, &host{answer: answer(200, `{"identifier":"fencepost_1","livemode":true}`)}, c), live)[0]; o.Kind != exporter.Accepted {
		t.Errorf("a live item: %+v", o)
	}
	if o := deliver(t, open(t, &host{err: errors.New("no grant")}, testMode()), item())[0]; o.Kind != exporter.Retry || o.Code != stripe.CodeNotSent {
		t.Errorf("refused batch: %+v", o)
	}
	if o := deliver(t, open(t, &host{short: true, answer: answer(200, `{"identifier":"fencepost_1"}`)}, testMode()), item())[0]; o.Kind != exporter.Retry || o.Code != stripe.CodeNoAnswer {
		t.Errorf("missing answer: %+v", o)
	}
}

// A long or broken sentence of the provider's stays short and valid, and part
// of a key never passes.
func TestMessages(t *testing.T) {
	t.Parallel()
	o := deliver(t, open(t, &host{answer: answer(400, refusal("", strings.Repeat("é", 500)))}, testMode()), item())[0]
	if len(o.Message) > 210 || !strings.HasSuffix(o.Message, "…") || bytes.Contains([]byte(o.Message), []byte{0xff}) {
		t.Errorf("message of %d bytes: %q", len(o.Message), o.Message)
	}
	o = deliver(t, open(t, &host{answer: answer(401, refusal("", "Invalid API Key provided: sk_test_****1234"))}, testMode()), item())[0]
	if strings.Contains(o.Message, "1234") {
		t.Errorf("message: %q", o.Message)
	}
}
