package stripedouble

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// The types of a report.
const (
	typeErrorReport  = "v1.billing.meter.error_report_triggered"
	typeNoMeterFound = "v1.billing.meter.no_meter_found"
)

// lateCharge is a charge that will not be counted after all.
type lateCharge struct {
	entry *Entry
	code  string
	at    time.Time
}

// report is an error report.
type report struct {
	id        string
	account   string
	live      bool
	body      string // with its data
	delivered bool
}

// settle rejects what is due and makes the reports of it. The lock is held.
func (b *book) settle() {
	if len(b.late) == 0 {
		return
	}
	now := b.clock.now()
	var due []lateCharge
	for _, c := range b.late {
		if !c.at.After(now) {
			due = append(due, c)
		}
	}
	b.conclude(due, now)
}

// conclude rejects charges and makes one report for each meter. The lock is
// held.
func (b *book) conclude(due []lateCharge, now time.Time) {
	type group struct {
		account, eventName string
		live, noMeter      bool
	}
	groups := map[group][]lateCharge{}
	var order []group
	for _, c := range due {
		e := c.entry
		g := group{e.Account, e.EventName, e.Livemode, c.code == codeNoMeter}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], c)
		b.commit(record{
			Op: opReject, At: now.UnixMicro(), Account: e.Account, Live: e.Livemode, Identifier: e.Identifier, Code: c.code,
		})
	}
	for _, g := range order {
		id, body := b.reportBody(groups[g], now)
		b.commit(record{Op: opReport, At: now.UnixMicro(), Account: g.account, Live: g.live, Identifier: id, Body: body})
	}
}

// reject takes a charge back as one that was never counted. A report of a
// repeated identifier takes nothing back. r passed [record.check].
func (b *book) reject(r record) {
	e := b.entries[owned{r.Account, r.Live, r.Identifier}]
	if e == nil {
		return
	}
	b.late = slices.DeleteFunc(b.late, func(c lateCharge) bool { return c.entry == e })
	if r.Code == codeDuplicate || e.Charges == 0 {
		return
	}
	e.Rejected, e.RejectedAt = r.Code, time.UnixMicro(r.At).UTC()
	v, _ := parseValue(e.Value) // checked before
	t := b.totals[e.EventName]
	e.Charges--
	t.charges--
	b.charges--
	b.rejected++
	t.sum = t.sum.Sub(v)
	if e.CancelledAt.IsZero() {
		t.net = t.net.Sub(v)
	}
}

type reportJSON struct {
	ID            string          `json:"id"`
	Object        string          `json:"object"`
	Context       *string         `json:"context"`
	Created       time.Time       `json:"created"`
	Data          *reportData     `json:"data,omitempty"`
	Livemode      bool            `json:"livemode"`
	Reason        json.RawMessage `json:"reason"`
	RelatedObject *relatedObject  `json:"related_object,omitempty"`
	Type          string          `json:"type"`
}

type relatedObject struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	URL  string `json:"url"`
}

type reportData struct {
	Summary string       `json:"developer_message_summary"`
	Reason  reportReason `json:"reason"`
	Start   time.Time    `json:"validation_start"`
	End     time.Time    `json:"validation_end"`
}

type reportReason struct {
	ErrorCount int         `json:"error_count"`
	ErrorTypes []errorType `json:"error_types"`
}

type errorType struct {
	Code       string        `json:"code"`
	ErrorCount int           `json:"error_count"`
	Samples    []sampleError `json:"sample_errors"`
}

type sampleError struct {
	Message string        `json:"error_message"`
	Request sampleRequest `json:"request"`
}

type sampleRequest struct {
	Identifier string `json:"identifier"`
}

// reportBody renders the report of charges of one meter.
func (b *book) reportBody(due []lateCharge, now time.Time) (id, body string) {
	first := due[0].entry
	id = "evt_" + fingerprint(first.Account, first.Identifier, map[string]string{"n": strconv.Itoa(len(b.reports)), "at": now.String()})
	data := reportData{
		Summary: fmt.Sprintf("There are %d invalid events", len(due)),
		Reason:  reportReason{ErrorCount: len(due)}, Start: now.Add(-10 * time.Second), End: now,
	}
	for _, c := range due {
		types := &data.Reason.ErrorTypes
		i := slices.IndexFunc(*types, func(t errorType) bool { return t.Code == c.code })
		if i < 0 {
			*types = append(*types, errorType{Code: c.code, Samples: []sampleError{}})
			i = len(*types) - 1
		}
		t := &(*types)[i]
		if t.ErrorCount++; len(t.Samples) < b.cfg.Samples {
			t.Samples = append(t.Samples, sampleError{
				Message: "The event was not counted: " + c.code + ".", Request: sampleRequest{c.entry.Identifier},
			})
		}
	}
	slices.SortFunc(data.Reason.ErrorTypes, func(a, c errorType) int { return cmp.Compare(a.Code, c.Code) })
	r := reportJSON{
		ID: id, Object: "v2.core.event", Created: now, Data: &data, Livemode: first.Livemode,
		Reason: json.RawMessage("null"), Type: typeErrorReport,
	}
	if first.Account != b.cfg.Account {
		r.Context = &first.Account
	}
	if due[0].code == codeNoMeter {
		r.Type = typeNoMeterFound
	} else {
		meter := meterID(first.EventName)
		r.RelatedObject = &relatedObject{ID: meter, Type: "billing.meter", URL: metersPath + "/" + meter}
	}
	encoded, err := json.Marshal(r)
	if err != nil { // strings, numbers and times of this century always encode
		return id, "{}"
	}
	return id, string(encoded)
}

// thin is a report as it is delivered: without its data unless full.
func (m report) thin(full bool) []byte {
	var r reportJSON
	if full || json.Unmarshal([]byte(m.body), &r) != nil {
		return []byte(m.body)
	}
	r.Data = nil
	body, err := json.Marshal(r)
	if err != nil {
		return []byte(m.body)
	}
	return body
}

// Reject takes accepted events back now, as if Stripe had found them wrong
// later, and reports it with this code. An identifier that is not charged is
// an error, and nothing is changed. Account "" is [Config.Account].
func (s *Server) Reject(account string, livemode bool, code string, identifiers ...string) error {
	b, err := s.running()
	if err != nil {
		return err
	}
	if account == "" {
		account = s.cfg.Account
	}
	if !lateCode.MatchString(code) || len(identifiers) == 0 {
		return errors.New("reject: a code of lower-case letters and underscores, and at least one identifier")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := s.clock.now()
	var due []lateCharge
	for _, id := range identifiers {
		e := b.entries[owned{account, livemode, id}]
		if e == nil || e.Charges == 0 {
			return errors.New("reject: " + quoted(id) + " is not charged")
		}
		due = append(due, lateCharge{entry: e, code: code, at: now})
	}
	b.conclude(due, now)
	return nil
}

// Report is an error report as it is delivered.
type Report struct {
	ID        string          `json:"id"`
	Delivered bool            `json:"delivered"`
	Body      json.RawMessage `json:"body"`
	// Signature is the Stripe-Signature header for Body, made now; empty
	// without a secret.
	Signature string `json:"signature"`
}

// Reports returns every error report so far, in order.
func (s *Server) Reports() []Report { return s.reports(func(*report) bool { return true }) }

func (s *Server) reports(which func(*report) bool) []Report {
	b, err := s.running()
	if err != nil {
		return nil
	}
	_, secret := s.hook.get()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
	out := []Report{}
	for _, m := range b.reports {
		if !which(m) {
			continue
		}
		body := m.thin(s.cfg.FullReports)
		out = append(out, Report{ID: m.id, Delivered: m.delivered, Body: body, Signature: Sign(secret, s.clock.now(), body)})
	}
	return out
}
