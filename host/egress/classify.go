package egress

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// identifierPlace stands for the item's identifier in a pattern.
const identifierPlace = "{identifier}"

// classify decides what an answer means for one item; alone says that the
// request covered no other. See [Client.Send] for the order.
func (c *Client) classify(a answer, identifier string, alone bool) exporter.Exchange {
	ex := exporter.Exchange{
		Class: exporter.ClassIndefinite, Status: a.status, Code: a.reason, Message: sentences[a.reason],
		RequestID: a.requestID, RetryAfter: a.retryAfter, StartedAt: a.started, FinishedAt: a.finished,
	}
	switch a.failure {
	case capability.FailureNotSent:
		ex.Class = exporter.ClassNotSent
		return ex
	case capability.FailureNone:
	case capability.FailureUnknown:
		ex.Breaker = breakerStatus(a.status)
		return ex
	default:
		return ex
	}
	if a.status == http.StatusTooManyRequests {
		ex.Class, ex.Code = exporter.ClassThrottled, reasonThrottled
		ex.Message = ""
		return ex
	}
	if p, code, ok := c.match(a, identifier, alone); ok {
		ex.Code = code
		switch p.Class {
		case exporter.AnswerDuplicate:
			ex.Class = exporter.ClassDuplicateOwn
		case exporter.AnswerRefused, exporter.AnswerMendable:
			ex.Class, ex.Mendable = exporter.ClassRefused, p.Class == exporter.AnswerMendable
		}
		return ex
	}
	if a.status >= 200 && a.status < 300 && a.reason == "" {
		ex.Class = exporter.ClassSuccess
		return ex
	}
	ex.Breaker = breakerStatus(a.status)
	if ex.Code == "" {
		ex.Code = "status_" + strconv.Itoa(a.status)
	}
	return ex
}

// breakerStatus reports whether a status concerns the destination rather than
// the item.
func breakerStatus(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound
}

// match returns the first pattern that the answer fits, and a code for it.
func (c *Client) match(a answer, identifier string, alone bool) (p *exporter.AnswerPattern, code string, ok bool) {
	for i := range c.cfg.Answers {
		p := &c.cfg.Answers[i]
		if p.Status != a.status {
			continue
		}
		naming := strings.Contains(p.Contains, identifierPlace)
		if naming && identifier == "" || !naming && !alone {
			continue
		}
		value, found := lookup(a.body, p.Path)
		if !found {
			continue
		}
		if slices.Contains(p.Equals, value) {
			return p, value, true
		}
		if p.Contains != "" && containsText(value, p.Contains, identifier) {
			return p, string(p.Class), true
		}
	}
	return nil, "", false
}

// containsText reports whether value holds text with the identifier in its
// place, the identifier being a word of its own.
func containsText(value, text, identifier string) bool {
	want := strings.ReplaceAll(text, identifierPlace, identifier)
	if !strings.Contains(text, identifierPlace) {
		return strings.Contains(value, want)
	}
	startsWord, endsWord := strings.HasPrefix(text, identifierPlace), strings.HasSuffix(text, identifierPlace)
	for at := 0; ; at++ {
		i := strings.Index(value[at:], want)
		if i < 0 {
			return false
		}
		at += i
		end := at + len(want)
		if (!startsWord || at == 0 || !wordByte(value[at-1])) && (!endsWord || end == len(value) || !wordByte(value[end])) {
			return true
		}
	}
}

// checkPatterns refuses patterns by which a plugin could turn ignorance into
// evidence (P4).
func checkPatterns(patterns []exporter.AnswerPattern) error {
	for i, p := range patterns {
		switch s := p.Status; {
		case s < 200 || s >= 300 && s < 400 || s >= 500 || s == http.StatusRequestTimeout || s == http.StatusTooManyRequests:
			return invalidAt("answers", i, "a status of 2xx or 4xx, and neither 408 nor 429: the others say nothing definite")
		case p.Class != exporter.AnswerDuplicate && p.Class != exporter.AnswerRefused && p.Class != exporter.AnswerMendable:
			return invalidAt("answers", i, "class duplicate, refused or mendable")
		case (len(p.Equals) > 0) == (p.Contains != ""):
			return invalidAt("answers", i, "either equals or contains")
		case p.Class == exporter.AnswerDuplicate && !strings.Contains(p.Contains, identifierPlace):
			return invalidAt("answers", i, "a duplicate names our identifier: contains {identifier}")
		case slices.ContainsFunc(p.Equals, func(s string) bool { return s == "" || len(s) > 128 }):
			return invalidAt("answers", i, "equals of 1 to 128 bytes")
		}
		if _, ok := splitPointer(p.Path); !ok {
			return invalidAt("answers", i, "a path that is a JSON pointer")
		}
	}
	return nil
}
