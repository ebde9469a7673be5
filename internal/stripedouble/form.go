package stripedouble

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Limits of a meter event.
const (
	maxNameLength  = 100
	maxValueDigits = 15
	windowPast     = 35 * 24 * time.Hour
	windowFuture   = 5 * time.Minute
)

// meterEvent is a request whose parameters are good.
type meterEvent struct {
	eventName  string
	identifier string // empty: to be generated
	customer   string
	value      string // canonical
	timestamp  int64
	payload    map[string]string
	cancels    bool // an adjustment: identifier is that of the event to cancel
}

// named is what the triggers of faults see of it.
func (ev *meterEvent) named() string {
	if ev.cancels {
		return cancelTrigger + ev.identifier
	}
	return ev.identifier
}

// parseForm reads parameters as Stripe's clients encode them. Of a parameter
// given twice the last counts.
func parseForm(query, body string) (map[string]string, error) {
	params := map[string]string{}
	for _, part := range []string{query, body} {
		for part != "" {
			var pair string
			pair, part, _ = strings.Cut(part, "&")
			if pair == "" {
				continue
			}
			k, v, _ := strings.Cut(pair, "=")
			key, err := url.QueryUnescape(k)
			if err != nil {
				return nil, errors.New("invalid escape in a parameter name")
			}
			value, err := url.QueryUnescape(v)
			if err != nil {
				return nil, errors.New("invalid escape in a parameter")
			}
			if !utf8.ValidString(key) || !utf8.ValidString(value) || strings.ContainsRune(key+value, 0) {
				return nil, errors.New("parameters must be UTF-8 without NUL")
			}
			params[key] = value
		}
	}
	return params, nil
}

// parseEvent checks the parameters that need no look-up.
func parseEvent(params map[string]string, now time.Time) (meterEvent, *apiError) {
	ev := meterEvent{payload: map[string]string{}, timestamp: now.Unix()}
	keys := make([]string, 0, len(params))
	for k := range params {
		keys = append(keys, k)
	}
	slices.Sort(keys) // the first complaint is always the same
	for _, k := range keys {
		if err := ev.set(k, params[k]); err != nil {
			return ev, err
		}
	}
	if _, ok := params[paramEventName]; !ok {
		return ev, invalid(codeParameterMissing, paramEventName, "Missing required param: event_name.")
	}
	if len(ev.payload) == 0 {
		return ev, invalid(codeParameterMissing, paramPayload, "Missing required param: payload.")
	}
	return ev, ev.check(now)
}

func (ev *meterEvent) set(key, value string) *apiError {
	switch key {
	case paramEventName, paramIdentifier:
		if value == "" {
			return invalid(codeParameterEmpty, key, "You passed an empty string for '"+key+"'. We assume empty values are an attempt to unset a parameter; however '"+key+"' cannot be unset.")
		}
		if utf8.RuneCountInString(value) > maxNameLength {
			return invalid("", key, "Invalid string: must be at most 100 characters")
		}
		if key == paramEventName {
			ev.eventName = value
		} else {
			ev.identifier = value
		}
		return nil
	case paramTimestamp:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return invalid(codeParameterInteger, paramTimestamp, "Invalid integer: "+value)
		}
		ev.timestamp = n
		return nil
	case paramPayload:
		return invalid("", paramPayload, "Invalid object")
	}
	if name, ok := nested(key, paramPayload); ok {
		if name == "" || strings.ContainsAny(name, "[]") {
			return invalid("", key, "Invalid string: payload values are strings")
		}
		ev.payload[name] = value
		return nil
	}
	if _, ok := nested(key, "expand"); ok {
		return nil
	}
	return invalid(codeParameterUnknown, key, "Received unknown parameter: "+key)
}

// nested splits "outer[name]".
func nested(key, outer string) (string, bool) {
	rest, ok := strings.CutPrefix(key, outer+"[")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "]")
}

func (ev *meterEvent) check(now time.Time) *apiError {
	ev.customer = ev.payload[payloadCustomer]
	if ev.customer == "" {
		return eventRefused(codeNoCustomer, paramPayloadCustomer, "The event payload has no customer. It must contain stripe_customer_id.")
	}
	text := ev.payload[payloadValue]
	v, err := parseValue(text)
	if errors.Is(err, errTooManyDigits) {
		return tooManyDigits(text)
	}
	if err != nil {
		return eventRefused(codeInvalidValue, paramPayloadValue, "The value in the event payload is not a decimal number. It must be digits with at most 12 decimals.")
	}
	ev.value = v.String()
	if oldest := now.Add(-windowPast); ev.timestamp < oldest.Unix() {
		return tooOld(oldest)
	}
	if newest := now.Add(windowFuture); ev.timestamp > newest.Unix() {
		return tooNew(newest)
	}
	return nil
}

var errTooManyDigits = errors.New("at most 15 significant digits")

// parseValue reads a value: plain decimal text without exponent.
func parseValue(s string) (decimal.Decimal, error) {
	if strings.ContainsAny(s, "eE") {
		return decimal.Decimal{}, decimal.ErrSyntax
	}
	v, err := decimal.Parse(s)
	if errors.Is(err, decimal.ErrIntegerDigits) {
		return v, errTooManyDigits
	}
	if err != nil {
		return v, err
	}
	if v.SignificantDigits() > maxValueDigits {
		return v, errTooManyDigits
	}
	return v, nil
}

type eventBody struct {
	Object     string            `json:"object"`
	Created    int64             `json:"created"`
	EventName  string            `json:"event_name"`
	Identifier string            `json:"identifier"`
	Livemode   bool              `json:"livemode"`
	Payload    map[string]string `json:"payload"`
	Timestamp  int64             `json:"timestamp"`
}

// accepted renders the answer to an event that was charged.
func (ev meterEvent) accepted(now time.Time, live bool) answer {
	body, err := json.Marshal(eventBody{
		Object: "billing.meter_event", Created: now.Unix(), EventName: ev.eventName,
		Identifier: ev.identifier, Livemode: live, Payload: ev.payload, Timestamp: ev.timestamp,
	})
	if err != nil { // strings and integers always encode
		return statusError(500).answer(CodesDefault, "", live)
	}
	return answer{status: 200, body: body}
}
