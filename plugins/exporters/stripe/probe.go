package stripe

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	stripego "github.com/stripe/stripe-go/v79"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Codes of questions without an answer, beside those of Deliver.
const (
	CodeWindowUnaligned = "window_unaligned" // From and To are no whole minutes
	CodeMeterUnknown    = "meter_unknown"    // Stripe lists no meter of that event name
	CodeTooManyPages    = "too_many_pages"
)

const (
	metersPath = "/v1/billing/meters"
	pageLimit  = 100
	pagesMax   = 50
)

// Probe answers the sums that Stripe shows for customers at meters. It lists the
// meters when an event name is new to this instance, and asks for the summary of
// each question, all in one batch.
func (e *Exporter) Probe(ctx context.Context, p exporter.Probe) ([]exporter.ProbeAnswer, error) {
	if !e.configured {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "not_configured", Rule: "Configure before Probe"}
	}
	run := probe{exporter: e, questions: p.Questions, answers: make([]exporter.ProbeAnswer, len(p.Questions))}
	run.check()
	if missing := run.missing(); missing {
		if code, why := e.listMeters(ctx); code != "" {
			run.failMissing(code, why)
		}
	}
	run.ask(ctx)
	return run.answers, nil
}

// probe is one run of Probe.
type probe struct {
	exporter  *Exporter
	questions []exporter.ProbeQuestion
	answers   []exporter.ProbeAnswer
}

func (p *probe) fail(i int, code, why string) {
	p.answers[i] = exporter.ProbeAnswer{Meter: p.answers[i].Meter, Code: code, Message: short(why)}
}

// check answers what cannot be asked.
func (p *probe) check() {
	for i, q := range p.questions {
		switch {
		case q.Mapping[keyEventName] == "":
			p.fail(i, CodeMappingIncomplete, "the mapping has no event_name")
		case q.Customer == "":
			p.fail(i, CodeCustomerMissing, "the question has no customer")
		case !wholeMinutes(q.From) || !wholeMinutes(q.To) || !q.From.Before(q.To):
			p.fail(i, CodeWindowUnaligned, "from and to are whole minutes, from before to")
		}
	}
}

func wholeMinutes(t time.Time) bool { return t.Nanosecond() == 0 && t.Unix()%60 == 0 }

// missing reports whether a question asks for a meter that is not known yet.
func (p *probe) missing() bool {
	for i, q := range p.questions {
		if _, known := p.exporter.meters[q.Mapping[keyEventName]]; !known && p.answers[i].Code == "" {
			return true
		}
	}
	return false
}

func (p *probe) failMissing(code, why string) {
	for i, q := range p.questions {
		if _, known := p.exporter.meters[q.Mapping[keyEventName]]; !known && p.answers[i].Code == "" {
			p.fail(i, code, why)
		}
	}
}

// listMeters reads every meter. Of several with one event name the active one
// counts. It returns why it could not.
func (e *Exporter) listMeters(ctx context.Context) (code, why string) {
	found, active := map[string]string{}, map[string]bool{}
	after := ""
	for range pagesMax {
		query := url.Values{"limit": {strconv.Itoa(pageLimit)}}
		if after != "" {
			query.Set("starting_after", after)
		}
		r, code, why := e.get(ctx, metersPath, query)
		if code != "" {
			return code, why
		}
		var page struct {
			Data []struct {
				ID        string `json:"id"`
				EventName string `json:"event_name"`
				Status    string `json:"status"`
				Livemode  *bool  `json:"livemode"`
			} `json:"data"`
			HasMore *bool `json:"has_more"`
		}
		if json.Unmarshal(r.Body, &page) != nil || page.HasMore == nil || (*page.HasMore && len(page.Data) == 0) {
			return CodeUnreadableAnswer, "the answer is no list of meters"
		}
		for _, m := range page.Data {
			if m.Livemode != nil && *m.Livemode != (e.configuration.Mode == modeLive) {
				return CodeModeMismatch, "the meters are of the other mode: check the API key"
			}
			if found[m.EventName] == "" || !active[m.EventName] {
				found[m.EventName], active[m.EventName] = m.ID, m.Status == "active"
			}
			after = m.ID
		}
		if !*page.HasMore {
			e.meters = found
			return "", ""
		}
	}
	return CodeTooManyPages, "Stripe lists too many meters"
}

// asking is a question under way.
type asking struct {
	index int
	sum   decimal.Decimal
	after string // the last summary seen
}

// ask reads the summaries, page by page, all questions in one batch.
func (p *probe) ask(ctx context.Context) {
	var open []*asking
	for i, q := range p.questions {
		if p.answers[i].Code != "" {
			continue
		}
		meter := p.exporter.meters[q.Mapping[keyEventName]]
		if meter == "" {
			p.fail(i, CodeMeterUnknown, "Stripe has no meter of this event name")
			continue
		}
		p.answers[i].Meter = meter
		open = append(open, &asking{index: i})
	}
	for range pagesMax {
		if len(open) == 0 {
			return
		}
		open = p.page(ctx, open)
	}
	for _, a := range open {
		p.fail(a.index, CodeTooManyPages, "Stripe answers too many summaries")
	}
}

// page asks for one page of each and returns those that have more.
func (p *probe) page(ctx context.Context, open []*asking) []*asking {
	requests := make([]capability.Request, len(open))
	for n, a := range open {
		q := p.questions[a.index]
		query := url.Values{
			"customer": {q.Customer}, "limit": {strconv.Itoa(pageLimit)},
			"start_time": {strconv.FormatInt(q.From.Unix(), 10)}, "end_time": {strconv.FormatInt(q.To.Unix(), 10)},
		}
		if a.after != "" {
			query.Set("starting_after", a.after)
		}
		path := metersPath + "/" + url.PathEscape(p.answers[a.index].Meter) + "/event_summaries"
		requests[n] = p.exporter.reading(path, query)
	}
	responses, err := p.exporter.http.Send(ctx, requests)
	var more []*asking
	for n, a := range open {
		switch {
		case err != nil:
			p.fail(a.index, CodeNotSent, "the host refused the batch: "+err.Error())
		case len(responses) != len(requests):
			p.fail(a.index, CodeNoAnswer, "the host answered another number of requests")
		default:
			if p.read(a, &responses[n]) {
				more = append(more, a)
			}
		}
	}
	return more
}

// read adds one page of summaries and reports whether there are more. With the
// last page the sum becomes the answer.
func (p *probe) read(a *asking, r *capability.Response) (more bool) {
	q := p.questions[a.index]
	if code, why := readable(r); code != "" {
		p.fail(a.index, code, why)
		return false
	}
	var page struct {
		Data []struct {
			ID       string      `json:"id"`
			Value    json.Number `json:"aggregated_value"`
			Start    int64       `json:"start_time"`
			End      int64       `json:"end_time"`
			Meter    string      `json:"meter"`
			Livemode *bool       `json:"livemode"`
		} `json:"data"`
		HasMore *bool `json:"has_more"`
	}
	if json.Unmarshal(r.Body, &page) != nil || page.HasMore == nil || (*page.HasMore && len(page.Data) == 0) {
		p.fail(a.index, CodeUnreadableAnswer, "the answer is no list of summaries")
		return false
	}
	for _, s := range page.Data {
		value, err := exact(s.Value.String())
		switch {
		case err != nil:
			p.fail(a.index, CodeUnreadableAnswer, "a sum is no number: "+err.Error())
			return false
		case s.Meter != p.answers[a.index].Meter || s.Start < q.From.Unix() || s.End > q.To.Unix():
			p.fail(a.index, CodeForeignAnswer, "a summary is of another meter or time")
			return false
		case s.Livemode != nil && *s.Livemode != (p.exporter.configuration.Mode == modeLive):
			p.fail(a.index, CodeModeMismatch, "the summaries are of the other mode: check the API key")
			return false
		}
		a.sum, a.after = a.sum.Add(value), s.ID
	}
	if *page.HasMore {
		return true
	}
	sum := a.sum.String()
	p.answers[a.index].Sum = &sum
	return false
}

// get performs one read.
func (e *Exporter) get(ctx context.Context, path string, query url.Values) (r capability.Response, code, why string) {
	responses, err := e.http.Send(ctx, []capability.Request{e.reading(path, query)})
	switch {
	case err != nil:
		return r, CodeNotSent, "the host refused the batch: " + err.Error()
	case len(responses) != 1:
		return r, CodeNoAnswer, "the host answered another number of requests"
	}
	code, why = readable(&responses[0])
	return responses[0], code, why
}

// reading builds a request without an effect.
func (e *Exporter) reading(path string, query url.Values) capability.Request {
	r := capability.Request{
		Method: http.MethodGet, URL: e.configuration.BaseURL + path,
		Headers: []capability.Header{{Name: "Stripe-Version", Value: stripego.APIVersion}},
		Secrets: []string{SecretAPIKey},
	}
	if len(query) > 0 {
		r.URL += "?" + query.Encode()
	}
	if e.settings.Connected {
		r.Headers = append(r.Headers, capability.Header{Name: "Stripe-Account", Value: e.configuration.Account})
	}
	return r
}

// readable says why an answer to a read cannot be used, or nothing.
func readable(r *capability.Response) (code, why string) {
	switch r.Failure {
	case capability.FailureNone:
	case capability.FailureNotSent:
		return CodeNotSent, r.Reason
	default:
		return CodeNoAnswer, r.Reason
	}
	if r.Status >= 200 && r.Status < 300 {
		return "", ""
	}
	code = statusCode(r.Status)
	if r.Status == http.StatusTooManyRequests {
		code = CodeRateLimited
	}
	var envelope errorEnvelope
	if r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden || json.Unmarshal(r.Body, &envelope) != nil || envelope.Error == nil {
		return code, "" // Stripe's sentence about a key repeats part of it
	}
	if envelope.Error.Code != "" {
		code = short(string(envelope.Error.Code))
	}
	return code, short(envelope.Error.Msg)
}
