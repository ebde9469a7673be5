package meterline

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// What the provider says of an item that nobody, or an operator, can mend.
var (
	refusedCodes  = []string{"invalid_value", "timestamp_too_old"}
	mendableCodes = []string{"no_such_customer", "no_such_meter"}
)

// manifest is what the host checks answers by, too.
func manifest() exporter.Manifest {
	return exporter.Manifest{
		Name: "meterline", Version: "1.0.0",
		IdentifierMaxLength: maxIdentifier, IdentifierHorizon: 7 * 24 * time.Hour,
		WindowPast: 30 * 24 * time.Hour, WindowFuture: 5 * time.Minute,
		Values:   exporter.ValueDomain{SignificantDigits: 38, MaxDecimals: -1, Negative: true, Zero: true},
		MaxBatch: 100, Rate: 100, Concurrency: 8,
		Corrections:  exporter.CorrectNegative,
		Capabilities: []capability.Name{capability.HTTPName},
		Hosts:        []string{"api.meterline.example"},
		Secrets:      []exporter.Secret{{Name: "token", Header: "Authorization", Prefix: "Bearer "}},
		MappingKeys:  []string{keyMeter},
		Answers: []exporter.AnswerPattern{
			{Class: exporter.AnswerDuplicate, Status: 409, Path: "/error/id", Contains: "{identifier}"},
			{Class: exporter.AnswerRefused, Status: 400, Path: "/error/code", Equals: refusedCodes},
			{Class: exporter.AnswerRefused, Status: 422, Path: "/error/code", Equals: refusedCodes},
			{Class: exporter.AnswerMendable, Status: 400, Path: "/error/code", Equals: mendableCodes},
			{Class: exporter.AnswerMendable, Status: 422, Path: "/error/code", Equals: mendableCodes},
		},
	}
}

// judge says what an answer means for its item. Whatever leaves open whether the
// item was taken is a retry: the same identifier settles it.
func judge(item *exporter.Item, r *capability.Response) exporter.ItemOutcome {
	o := exporter.ItemOutcome{ItemID: item.ID, Kind: exporter.Retry}
	switch r.Failure {
	case capability.FailureNone:
	case capability.FailureNotSent:
		o.Code = "not_sent"
		return o
	default:
		o.Code = "no_answer"
		return o
	}
	switch r.Status {
	case 200, 201:
		if id, ok := textAt(r.Body, "id"); ok && id == item.Identifier {
			o.Kind, o.ProviderRef = exporter.Accepted, item.Identifier
			return o
		}
		o.Code = "foreign_answer"
	case 409:
		duplicate(item, r.Body, &o)
	case 400, 422:
		code, _ := textAt(r.Body, "error", "code")
		o.Code = "unknown_refusal"
		if slices.Contains(refusedCodes, code) {
			o.Kind, o.Code = exporter.Rejected, code
		} else if slices.Contains(mendableCodes, code) {
			o.Kind, o.Code, o.Mendable = exporter.Rejected, code, true
		}
	case 429:
		o.Kind, o.Code, o.RetryAfter = exporter.RateLimited, "rate_limited", retryAfter(r.Headers)
	default:
		o.Code, o.RetryAfter = "http_"+strconv.Itoa(r.Status), retryAfter(r.Headers)
	}
	return o
}

// duplicate judges a 409, which counts only for the identifier that it names.
func duplicate(item *exporter.Item, body []byte, o *exporter.ItemOutcome) {
	code, _ := textAt(body, "error", "code")
	id, named := textAt(body, "error", "id")
	switch {
	case code != "duplicate" || !named:
		o.Code = "unknown_refusal"
	case id == item.Identifier:
		o.Kind, o.Code, o.ProviderRef = exporter.AcceptedEarlier, "duplicate", item.Identifier
	default:
		o.Kind, o.Code = exporter.Uncertain, "foreign_duplicate"
	}
}

// textAt returns the string below these keys of a JSON document.
func textAt(body []byte, keys ...string) (string, bool) {
	var at any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // a number out of range is no reason to mistrust the rest
	if err := d.Decode(&at); err != nil {
		return "", false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", false
	}
	for _, k := range keys {
		object, _ := at.(map[string]any)
		at = object[k]
	}
	s, ok := at.(string)
	return s, ok
}

// retryAfter reads seconds; anything else is zero, and the host decides.
func retryAfter(headers []capability.Header) time.Duration {
	for _, h := range headers {
		if strings.EqualFold(h.Name, "Retry-After") {
			seconds, err := strconv.ParseUint(strings.Trim(h.Value, " \t"), 10, 31)
			if err != nil {
				return 0
			}
			return time.Duration(seconds) * time.Second
		}
	}
	return 0
}

// quote writes a JSON string. Its bytes are the same in every language of the
// sample, which no library's choice of what to escape would be.
func quote(s string) []byte {
	const digits = "0123456789abcdef"
	b := []byte{'"'}
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, `\u00`...)
			b = append(b, digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
