package stripedouble

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Phase says whether a fault happens before or after the effect.
type phase string

const (
	before phase = "before"
	after  phase = "after"
	late   phase = "late" // after a success
)

// Kinds of fault. A three-digit status of 400 to 599 is a kind too.
const (
	kindClose     = "close"     // the connection ends without an answer
	kindDup       = "dup"       // the answer's bytes come twice
	kindEmpty     = "empty"     // 200 without a body
	kindForeign   = "foreign"   // the answer names another identifier
	kindGzip      = "gzip"      // a small compressed body that expands to bytes
	kindHeaders   = "headers"   // bytes of header lines
	kindHTML      = "html"      // a proxy's page
	kindHuge      = "huge"      // the answer is padded to bytes
	kindLivemode  = "livemode"  // the answer says the other mode
	kindOmit      = "omit"      // late: no summary ever has the event
	kindRedirect  = "redirect"  // to another host
	kindRefuse    = "refuse"    // a parsed refusal of the value
	kindReject    = "reject"    // late: the event is not counted after all
	kindReset     = "reset"     // TCP reset
	kindSlow      = "slow"      // a pause of delay, then as usual
	kindSlowloris = "slowloris" // one byte every delay
	kindTruncate  = "truncate"  // half the announced body, then the end
	status500     = "500"
)

var lateCode = regexp.MustCompile(`^[a-z_]{1,100}$`)

var kinds = []string{
	kindClose, kindDup, kindEmpty, kindForeign, kindGzip, kindHeaders, kindHTML, kindHuge, kindLivemode, kindOmit,
	kindRedirect, kindRefuse, kindReject, kindReset, kindSlow, kindSlowloris, kindTruncate,
}

// Texts of Retry-After that a fault may send besides a number of seconds.
const (
	retryDate     = "date"     // an HTTP date two seconds ahead
	retryPast     = "past"     // an HTTP date an hour ago
	retryDay      = "day"      // 86400
	retryGarbage  = "garbage"  // no number and no date
	retryNegative = "negative" // -5
)

// Triggers that look at a text: of the identifier, which it is part of, of the
// customer or of the event name.
const (
	triggerID       = "id"
	triggerCustomer = "customer"
	triggerMeter    = "meter"
)

// Limits of a schedule's text.
const (
	maxFaultText  = 4096
	maxFaultRules = 32
	maxFaultBytes = 1 << 30
	maxFaultDelay = time.Hour
)

// Faults is a schedule of misbehaviour. The zero value is none. It is
// immutable and safe for concurrent use.
type Faults struct{ rules []rule }

type rule struct {
	phase   phase
	kind    string
	status  int // of a status kind, html and redirect
	retry   string
	to      string
	code    string // of reject
	delay   time.Duration
	bytes   int
	times   int64 // 0: without limit
	trigger trigger
}

// trigger says which requests a rule hits.
type trigger struct {
	kind string // "", p, n, every, first, id, customer, meter
	n    uint64
	p    string // as written, so that the text survives
	cut  uint64 // of p: fires if 53 random bits are below
	text string // of id, customer and meter
}

// ParseFaults reads a schedule: rules separated by semicolons, each
//
//	phase:kind(name=value,…)@trigger
//
// Phase is before (nothing was charged), after (it was) or late (it was, and
// something comes of it afterwards). Kind is a status (400 to 599, with Stripe's
// error body) or one of
//
//	refuse            a parsed refusal of the value, whatever the value
//	reset             a TCP reset
//	close             the connection ends without an answer
//	truncate          half of the body that Content-Length announces
//	empty             200 without a body
//	html              a proxy's HTML page; status (502)
//	slow              a pause, then as usual; delay (1s)
//	slowloris         the answer byte by byte; delay between bytes (100ms)
//	dup               the answer twice on one connection
//	redirect          to another host; to, status (307)
//	huge              the answer padded with blanks; bytes (67108864)
//	gzip              the same, compressed; bytes (67108864)
//	headers           the answer after useless headers; bytes (16777216)
//	livemode          the answer with the other livemode
//	foreign           the answer about another identifier
//	reject            late only: the event is not counted after all and an error
//	                  report tells of it; code (meter_event_customer_not_found),
//	                  delay by the double's clock (0s)
//	omit              late only: the event is charged and no summary ever has it
//
// Status kinds take retry_after: a number of seconds, or date (an HTTP date two
// seconds ahead), past, day (86400), garbage or negative. Every kind takes
// times, the most it fires. The trigger is one of p0.1 (a probability, decided
// by the seed and the number of the request), n7 (the seventh request), every13,
// first3, id=TEXT (identifiers that contain TEXT), and of late faults
// customer=ID and meter=EVENT_NAME; without one, every request is hit. Requests are counted from the moment the schedule is set. What an
// adjustment is matched by is "cancel:" and the identifier that it cancels. Reads
// are not counted, and only rules with id= hit them: their text is
// "summaries:CUSTOMER", "meters" or "event:ID".
//
// Before faults other than 500 and slow happen instead of any check, and
// nothing is stored under the Idempotency-Key. 500 and slow happen during the
// execution: a 500 is stored under the key, before the effect or after. After
// faults other than 500 spoil an answer on its way, be it a success, a refusal by
// execution or a replay; the true answer is what is stored. Of the rules that hit
// a request, the first of each place counts.
//
// Errors name the rule's number and what is wrong with it.
func ParseFaults(s string) (Faults, error) {
	var f Faults
	if len(s) > maxFaultText {
		return f, fmt.Errorf("faults: at most %d bytes", maxFaultText)
	}
	if strings.TrimSpace(s) == "" {
		return f, nil
	}
	for i, text := range strings.Split(strings.TrimSuffix(strings.TrimSpace(s), ";"), ";") {
		r, err := parseRule(strings.TrimSpace(text))
		if err != nil {
			return Faults{}, fmt.Errorf("faults: rule %d: %w", i+1, err)
		}
		f.rules = append(f.rules, r)
	}
	if len(f.rules) > maxFaultRules {
		return Faults{}, fmt.Errorf("faults: at most %d rules", maxFaultRules)
	}
	return f, nil
}

// Rules is the number of rules.
func (f Faults) Rules() int { return len(f.rules) }

// String is the schedule as [ParseFaults] reads it.
func (f Faults) String() string {
	parts := make([]string, len(f.rules))
	for i, r := range f.rules {
		parts[i] = r.String()
	}
	return strings.Join(parts, "; ")
}

func parseRule(s string) (rule, error) {
	var r rule
	ph, rest, ok := strings.Cut(s, ":")
	r.phase = phase(ph)
	if !ok || (r.phase != before && r.phase != after && r.phase != late) {
		return r, errors.New("the phase, before, after or late, and a colon come first")
	}
	end := strings.IndexAny(rest, "(@")
	if end < 0 {
		end = len(rest)
	}
	if err := r.setKind(rest[:end]); err != nil {
		return r, err
	}
	if (r.phase == late) != (r.kind == kindReject || r.kind == kindOmit) {
		return r, errors.New("late goes with reject and omit, and they with nothing else")
	}
	rest = rest[end:]
	if strings.HasPrefix(rest, "(") {
		params, tail, closed := strings.Cut(rest[1:], ")")
		if !closed {
			return r, errors.New("parameters need a closing bracket")
		}
		for p := range strings.SplitSeq(params, ",") {
			if err := r.setParam(strings.TrimSpace(p)); err != nil {
				return r, err
			}
		}
		rest = tail
	}
	if rest == "" {
		return r, nil
	}
	if rest[0] != '@' {
		return r, errors.New("unexpected text before the trigger")
	}
	if err := r.trigger.parse(rest[1:]); err != nil {
		return r, err
	}
	if r.trigger.ofCharge() && r.phase != late {
		return r, errors.New("trigger customer= and meter= go with late")
	}
	return r, nil
}

func (r *rule) setKind(kind string) error {
	r.kind = kind
	if n, err := strconv.Atoi(kind); err == nil && len(kind) == 3 && n >= 400 && n <= 599 {
		r.status = n
		return nil
	}
	if !slices.Contains(kinds, kind) {
		return errors.New("unknown kind; known are a status of 400 to 599, " + strings.Join(kinds, ", "))
	}
	switch kind {
	case kindHTML:
		r.status = 502
	case kindRedirect:
		r.status, r.to = 307, "https://elsewhere.invalid/v1/billing/meter_events"
	case kindReject:
		r.code = codeCustomerNotFound
	case kindSlow:
		r.delay = time.Second
	case kindSlowloris:
		r.delay = 100 * time.Millisecond
	case kindHuge, kindGzip:
		r.bytes = 64 << 20
	case kindHeaders:
		r.bytes = 16 << 20 // more than Go's client takes
	}
	return nil
}

// isStatus reports whether the kind is a bare status.
func (r *rule) isStatus() bool { return r.kind[0] >= '4' && r.kind[0] <= '5' }

func (r *rule) setParam(p string) error {
	name, value, ok := strings.Cut(p, "=")
	if !ok || value == "" {
		return errors.New("a parameter is name=value")
	}
	allowed := name == "times"
	switch name {
	case "retry_after":
		allowed = r.isStatus()
	case "delay":
		allowed = r.kind == kindSlow || r.kind == kindSlowloris || r.kind == kindReject
	case "code":
		allowed = r.kind == kindReject
	case "bytes":
		allowed = r.bytes > 0
	case "to":
		allowed = r.kind == kindRedirect
	case "status":
		allowed = r.kind == kindHTML || r.kind == kindRedirect
	}
	if !allowed {
		return fmt.Errorf("parameter does not apply to %s", r.kind)
	}
	return r.assign(name, value)
}

func (r *rule) assign(name, value string) error {
	switch name {
	case "retry_after":
		words := []string{retryDate, retryPast, retryDay, retryGarbage, retryNegative}
		if n, err := strconv.ParseUint(value, 10, 31); !slices.Contains(words, value) && (err != nil || strconv.FormatUint(n, 10) != value) {
			return errors.New("retry_after is a number of seconds or one of " + strings.Join(words, ", "))
		}
		r.retry = value
	case "code":
		if !lateCode.MatchString(value) {
			return errors.New("code is of lower-case letters and underscores")
		}
		r.code = value
	case "delay":
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 || d > maxFaultDelay {
			return errors.New("delay is a duration of at most 1h, such as 250ms")
		}
		r.delay = d
	case "to":
		if !strings.HasPrefix(value, "https://") && !strings.HasPrefix(value, "http://") {
			return errors.New("to is an absolute URL")
		}
		if strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
			return errors.New("to is printable ASCII")
		}
		r.to = value
	default:
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil || n == 0 || n > maxFaultBytes {
			return fmt.Errorf("%s is a whole number from 1", name)
		}
		switch name {
		case "bytes":
			r.bytes = int(n)
		case "times":
			r.times = int64(n)
		case "status":
			if (r.kind == kindRedirect && (n < 300 || n > 399)) || (r.kind == kindHTML && (n < 200 || n > 599)) {
				return errors.New("status does not suit the kind")
			}
			r.status = int(n)
		}
	}
	return nil
}

// ofCharge reports whether the trigger looks at what is charged.
func (t *trigger) ofCharge() bool { return t.kind == triggerCustomer || t.kind == triggerMeter }

func (t *trigger) parse(s string) error {
	for _, kind := range []string{triggerID, triggerCustomer, triggerMeter} {
		text, ok := strings.CutPrefix(s, kind+"=")
		if !ok {
			continue
		}
		if text == "" {
			return fmt.Errorf("trigger %s= needs a text", kind)
		}
		t.kind, t.text = kind, text
		return nil
	}
	for _, kind := range []string{"every", "first", "n"} {
		digits, ok := strings.CutPrefix(s, kind)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 31)
		if err != nil || n == 0 {
			return errors.New("trigger needs a whole number from 1")
		}
		t.kind, t.n = kind, n
		return nil
	}
	if text, ok := strings.CutPrefix(s, "p"); ok {
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(p) || p <= 0 || p > 1 {
			return errors.New("trigger p needs a probability above 0 and up to 1")
		}
		t.kind, t.p, t.cut = "p", text, uint64(p*(1<<53))
		return nil
	}
	return errors.New("unknown trigger; known are p0.1, n7, every13, first3, id=TEXT, customer=ID, meter=NAME")
}

// String is the rule as [ParseFaults] reads it, defaults left out.
func (r *rule) String() string {
	plain := rule{phase: r.phase}
	_ = plain.setKind(r.kind) // a rule's kind is known
	var params []string
	add := func(name, value string, differs bool) {
		if differs {
			params = append(params, name+"="+value)
		}
	}
	add("retry_after", r.retry, r.retry != "")
	add("status", strconv.Itoa(r.status), r.status != plain.status)
	add("to", r.to, r.to != plain.to)
	add("code", r.code, r.code != plain.code)
	add("delay", r.delay.String(), r.delay != plain.delay)
	add("bytes", strconv.Itoa(r.bytes), r.bytes != plain.bytes)
	add("times", strconv.FormatInt(r.times, 10), r.times != 0)
	s := string(r.phase) + ":" + r.kind
	if len(params) > 0 {
		s += "(" + strings.Join(params, ",") + ")"
	}
	switch r.trigger.kind {
	case "":
	case triggerID, triggerCustomer, triggerMeter:
		s += "@" + r.trigger.kind + "=" + r.trigger.text
	case "p":
		s += "@p" + r.trigger.p
	default:
		s += "@" + r.trigger.kind + strconv.FormatUint(r.trigger.n, 10)
	}
	return s
}
