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
func (c *Client) classify(a answer, it CallItem, alone bool) exporter.Exchange {
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
	if a.read && it.ID != "" {
		return c.classifyRead(ex, a, it, alone)
	}
	if p, code, ok := c.match(a, it.Identifier, alone); ok {
		ex.Code, ex.Class, ex.Mendable = code, hostClass(p.Class), p.Class == exporter.AnswerMendable
		return ex
	}
	if c.cfg.Records != nil && it.ID != "" && a.status >= 200 && a.status < 300 && a.reason == "" {
		ex.Class, ex.Mendable, ex.Code = c.classifyRecord(a, it)
		ex.Message = sentences[ex.Code]
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

// classifyRead is for an item that was looked up. Nothing was handed over, so an
// answer accepts nothing and refuses nothing: it can only show that the provider
// has the item already, by its identifier. // P4.
func (c *Client) classifyRead(ex exporter.Exchange, a answer, it CallItem, alone bool) exporter.Exchange {
	if p, code, ok := c.match(a, it.Identifier, alone); ok && p.Class == exporter.AnswerDuplicate {
		ex.Code, ex.Class = code, exporter.ClassDuplicateOwn
		return ex
	}
	ex.Breaker = breakerStatus(a.status)
	if ex.Code == "" {
		ex.Code = "status_" + strconv.Itoa(a.status)
	}
	return ex
}

// reads reports whether a method has no effect by the rules of HTTP.
func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// hostClass is the class of an exchange that a pattern of a class fits. What
// was turned away unseen is throttled whatever the reason: definite, and to be
// sent again.
func hostClass(class exporter.AnswerClass) exporter.HostClass {
	switch class {
	case exporter.AnswerDuplicate:
		return exporter.ClassDuplicateOwn
	case exporter.AnswerRefused, exporter.AnswerMendable:
		return exporter.ClassRefused
	case exporter.AnswerAccepted:
		return exporter.ClassSuccess
	case exporter.AnswerAgain:
		return exporter.ClassThrottled
	}
	return exporter.ClassIndefinite
}

// breakerStatus reports whether a status concerns the destination rather than
// the item.
func breakerStatus(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// match returns the first pattern that the answer fits, and a code for it.
func (c *Client) match(a answer, identifier string, alone bool) (p *exporter.AnswerPattern, code string, ok bool) {
	for i := range c.cfg.Answers {
		p := &c.cfg.Answers[i]
		if p.Status != a.status || p.In != "" {
			continue
		}
		// What was turned away whole concerns every item of the request.
		naming := strings.Contains(p.Contains, identifierPlace)
		if naming && identifier == "" || !naming && !alone && p.Class != exporter.AnswerAgain {
			continue
		}
		if bare(p) {
			return p, "status_" + strconv.Itoa(a.status), true
		}
		if code, ok := fits(p, a.body, identifier); ok {
			return p, code, true
		}
	}
	return nil, "", false
}

// bare reports whether a pattern says nothing of what it wants to read.
func bare(p *exporter.AnswerPattern) bool { return len(p.Equals) == 0 && p.Contains == "" }

// fits compares a pattern with a document and returns a code for it.
func fits(p *exporter.AnswerPattern, doc []byte, identifier string) (string, bool) {
	value, found := lookup(doc, p.Path)
	switch {
	case bare(p):
		return string(p.Class), true
	case !found:
	case slices.Contains(p.Equals, value):
		return value, true
	case p.Contains != "" && containsText(value, p.Contains, identifier):
		return string(p.Class), true
	}
	return "", false
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
func checkPatterns(patterns []exporter.AnswerPattern, r *exporter.Records) error {
	for i := range patterns {
		p := &patterns[i]
		rule := statusRule(p)
		switch {
		case rule != "":
		case p.In != "":
			rule = listRule(p, r)
		default:
			rule = answerRule(p)
		}
		if _, ok := splitPointer(p.Path); !ok {
			rule = "a path that is a JSON pointer"
		}
		if slices.ContainsFunc(p.Equals, func(s string) bool { return s == "" || len(s) > 128 }) {
			rule = "equals of 1 to 128 bytes"
		}
		if rule != "" {
			return invalidAt("answers", i, rule)
		}
	}
	return nil
}

func statusRule(p *exporter.AnswerPattern) string {
	redirect := p.Status >= 300 && p.Status < 400
	switch s := p.Status; {
	case redirect && bare(p) && p.Class == exporter.AnswerMendable:
		return ""
	case s < 200 || redirect || s >= 500 || s == http.StatusRequestTimeout || s == http.StatusTooManyRequests:
		return "a status of 2xx or 4xx, and neither 408 nor 429: the others say nothing definite"
	case len(p.Equals) > 0 && p.Contains != "":
		return "either equals or contains"
	case bare(p) && p.Path != "":
		return "equals or contains, if it has a path"
	}
	return ""
}

// listRule is for patterns of an element of a list.
func listRule(p *exporter.AnswerPattern, r *exporter.Records) string {
	switch {
	case r == nil || !slices.ContainsFunc(r.Answers, func(a exporter.RecordAnswers) bool { return a.Path == p.In }):
		return "in one of the lists of records.answers"
	case p.Status >= 300:
		return "a status of 2xx, of a list in an answer"
	}
	switch p.Class {
	case exporter.AnswerAccepted, exporter.AnswerAgain, exporter.AnswerRefused, exporter.AnswerMendable:
		return ""
	case exporter.AnswerDuplicate:
	}
	return "class accepted, again, refused or mendable, of a list in an answer"
}

// answerRule is for patterns of an answer as a whole.
func answerRule(p *exporter.AnswerPattern) string {
	switch p.Class {
	case exporter.AnswerDuplicate:
		if breakerStatus(p.Status) {
			return "a duplicate, of a status that concerns the item: a server may repeat any request with 401, 403, 404 or 410"
		}
		if strings.Contains(p.Contains, identifierPlace) {
			return ""
		}
		return "a duplicate names our identifier: contains {identifier}"
	case exporter.AnswerMendable:
		if bare(p) && p.Status < 300 {
			return "either equals or contains"
		}
		return ""
	case exporter.AnswerRefused:
		if breakerStatus(p.Status) {
			return "refused, of a status that concerns the item: 401, 403, 404 and 410 concern the destination"
		}
		if !bare(p) {
			return ""
		}
		return "either equals or contains"
	case exporter.AnswerAgain:
		if p.Status >= 400 && !bare(p) && !breakerStatus(p.Status) {
			return ""
		}
		return "again, of a whole answer: 4xx that concerns the request, and equals or contains"
	case exporter.AnswerAccepted:
	}
	return "class duplicate, refused, mendable or again"
}
