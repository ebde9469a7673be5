package stripedouble

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

const (
	metersPath = "/v1/billing/meters"
	eventsPath = "/v2/core/events"
)

// meterID is the id of the meter of an event name.
func meterID(eventName string) string {
	return "mtr_" + fingerprint("meter", eventName, nil)[:24]
}

func (s *Server) readRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+metersPath, func(w http.ResponseWriter, r *http.Request) {
		s.reading(w, r, "meters", s.listMeters)
	})
	mux.HandleFunc("GET "+metersPath+"/{id}/event_summaries", func(w http.ResponseWriter, r *http.Request) {
		s.reading(w, r, "summaries:"+r.URL.Query().Get("customer"), s.summaries)
	})
	mux.HandleFunc("GET "+eventsPath+"/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.reading(w, r, "event:"+r.PathValue("id"), s.coreEvent)
	})
}

// reading answers a request without an effect.
func (s *Server) reading(w http.ResponseWriter, r *http.Request, name string, answer func(*request) answer) {
	rq := &request{Request: r, id: s.newID("req_"), turn: turn{s: s.faults.current.Load()}, book: s.book, read: name}
	s.stats.reads.Add(1)
	rq.params, rq.badForm = parseForm(r.URL.RawQuery, "")
	if f := rq.turn.fire(onArrival, name); f != nil {
		s.misbehave(w, rq, f, s.refuse(rq, statusError(500)))
		return
	}
	if f := rq.turn.fire(beforePause, name); f != nil {
		s.pause(f.delay)
	}
	a := s.judgeRead(rq, answer)
	if f := rq.turn.fire(onReply, name); f != nil {
		s.misbehave(w, rq, f, a)
		return
	}
	s.send(w, rq, a)
}

func (s *Server) judgeRead(rq *request, answer func(*request) answer) answer {
	if e := s.authenticate(rq); e != nil {
		return s.refuse(rq, e)
	}
	if s.limiter != nil && !s.limiter.AllowN(s.clock.now(), 1) {
		return s.refuse(rq, rateLimited())
	}
	if rq.badForm != nil {
		return s.refuse(rq, invalid("", "", "Invalid request: "+rq.badForm.Error()))
	}
	return answer(rq)
}

type meterJSON struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	EventName string            `json:"event_name"`
	Livemode  bool              `json:"livemode"`
	Status    string            `json:"status"`
	Formula   map[string]string `json:"default_aggregation"`
}

type listJSON[T any] struct {
	Object  string `json:"object"`
	Data    []T    `json:"data"`
	HasMore bool   `json:"has_more"`
	URL     string `json:"url"`
}

// paged cuts a list as limit and starting_after ask for.
func paged[T any](rq *request, all []T, id func(T) string) ([]T, bool, *apiError) {
	limit := 10
	if text := rq.params["limit"]; text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 {
			return nil, false, invalid(codeParameterInteger, "limit", "Invalid integer: "+text)
		}
		limit = n
	}
	if after := rq.params["starting_after"]; after != "" {
		i := slices.IndexFunc(all, func(v T) bool { return id(v) == after })
		if i < 0 {
			return nil, false, invalid(codeResourceMissing, "starting_after", "No such object: "+quoted(after))
		}
		all = all[i+1:]
	}
	return all[:min(limit, len(all))], len(all) > limit, nil
}

func (s *Server) listMeters(rq *request) answer {
	rq.book.mu.Lock()
	rq.book.settle()
	known := maps.Clone(s.cfg.Meters)
	if known == nil { // every name is a meter; those that were used can be listed
		known = map[string]MeterStatus{}
		for name := range rq.book.totals {
			known[name] = MeterActive
		}
	}
	rq.book.mu.Unlock()
	var all []meterJSON
	for _, name := range slices.Sorted(maps.Keys(known)) {
		m := meterJSON{
			ID: meterID(name), Object: "billing.meter", EventName: name, Livemode: rq.live, Status: "active",
			Formula: map[string]string{"formula": "sum"},
		}
		if known[name] == MeterArchived {
			m.Status = "inactive"
		}
		if want := rq.params["status"]; want == "" || want == m.Status {
			all = append(all, m)
		}
	}
	page, more, e := paged(rq, all, func(m meterJSON) string { return m.ID })
	if e != nil {
		return s.refuse(rq, e)
	}
	return s.list(rq, listJSON[meterJSON]{Object: "list", Data: page, HasMore: more, URL: metersPath})
}

type summaryJSON struct {
	ID       string      `json:"id"`
	Object   string      `json:"object"`
	Value    json.Number `json:"aggregated_value"`
	Start    int64       `json:"start_time"`
	End      int64       `json:"end_time"`
	Livemode bool        `json:"livemode"`
	Meter    string      `json:"meter"`
}

// summaries sums what was charged to a customer at a meter. Stretches without
// usage have no summary.
func (s *Server) summaries(rq *request) answer {
	eventName := s.eventNameOf(rq)
	if eventName == "" {
		e := invalid(codeResourceMissing, "id", "No such billing meter: "+quoted(rq.PathValue("id")))
		e.status = http.StatusNotFound
		return s.refuse(rq, e)
	}
	start, end, step, e := window(rq)
	if e == nil && rq.params["customer"] == "" {
		e = invalid(codeParameterMissing, "customer", "Missing required param: customer.")
	}
	if e == nil && rq.book.customers != nil && !rq.book.customers[rq.params["customer"]] {
		e = noSuchCustomer(rq.params["customer"])
	}
	if e != nil {
		return s.refuse(rq, e)
	}
	sums := s.sums(rq, eventName, start, end, step)
	all := make([]summaryJSON, 0, len(sums))
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(sums))) {
		// Stripe keeps sums in double precision, and its JSON shows it.
		f, _ := strconv.ParseFloat(sums[at].String(), 64)
		number, _ := json.Marshal(f)
		until := end
		if step > 0 {
			until = at + step
		}
		all = append(all, summaryJSON{
			ID:     "mtrusg_" + fingerprint(eventName, rq.params["customer"], map[string]string{"at": strconv.FormatInt(at, 10)})[:24],
			Object: "billing.meter_event_summary", Value: json.Number(number),
			Start: at, End: until, Livemode: rq.live, Meter: rq.PathValue("id"),
		})
	}
	page, more, e := paged(rq, all, func(m summaryJSON) string { return m.ID })
	if e != nil {
		return s.refuse(rq, e)
	}
	return s.list(rq, listJSON[summaryJSON]{
		Object: "list", Data: page, HasMore: more, URL: metersPath + "/" + rq.PathValue("id") + "/event_summaries",
	})
}

func (s *Server) eventNameOf(rq *request) string {
	names := maps.Keys(s.cfg.Meters)
	if s.cfg.Meters == nil {
		rq.book.mu.Lock()
		defer rq.book.mu.Unlock()
		names = maps.Keys(rq.book.totals)
	}
	for name := range names {
		if meterID(name) == rq.PathValue("id") {
			return name
		}
	}
	return ""
}

// window reads the stretch and the grouping; a step of 0 is no grouping.
func window(rq *request) (start, end, step int64, e *apiError) {
	align := int64(60)
	switch rq.params["value_grouping_window"] {
	case "":
	case "hour":
		align, step = 3600, 3600
	case "day":
		align, step = 86400, 86400
	default:
		return 0, 0, 0, invalid("", "value_grouping_window", "Invalid value_grouping_window: must be one of day or hour")
	}
	for _, bound := range []struct {
		name string
		at   *int64
	}{{"start_time", &start}, {"end_time", &end}} {
		name := bound.name
		text := rq.params[name]
		if text == "" {
			return 0, 0, 0, invalid(codeParameterMissing, name, "Missing required param: "+name+".")
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, 0, 0, invalid(codeParameterInteger, name, "Invalid integer: "+text)
		}
		if n%align != 0 {
			return 0, 0, 0, invalid("", name, "The "+strings.ReplaceAll(name, "_", " ")+" must align with minute, hour or day boundaries.")
		}
		*bound.at = n
	}
	if start >= end {
		return 0, 0, 0, invalid("", "end_time", "The end time must be after the start time.")
	}
	return start, end, step, nil
}

// sums adds what a summary has by now, by the beginning of each stretch.
func (s *Server) sums(rq *request, eventName string, start, end, step int64) map[int64]decimal.Decimal {
	b, now := rq.book, s.clock.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
	out := map[int64]decimal.Decimal{}
	for _, e := range b.places[lockKey{rq.account, rq.params["customer"], eventName, rq.live}] {
		if e.Timestamp < start || e.Timestamp >= end || e.Omitted || !b.visible(e, now) {
			continue
		}
		at := start
		if step > 0 {
			at += (e.Timestamp - start) / step * step
		}
		v, _ := parseValue(e.Value) // checked before
		for range e.Charges {
			out[at] = out[at].Add(v)
		}
	}
	return out
}

// visible reports whether a summary has the charge by now. The lock is held.
func (b *book) visible(e *Entry, now time.Time) bool {
	lag := b.cfg.SummaryLag
	cancelled := !e.CancelledAt.IsZero() && now.Sub(e.CancelledAt) >= lag
	return e.Charges > 0 && now.Sub(e.FirstSeen) >= lag && !cancelled
}

// coreEvent answers a report with its data.
func (s *Server) coreEvent(rq *request) answer {
	rq.book.mu.Lock()
	defer rq.book.mu.Unlock()
	for _, m := range rq.book.reports {
		if m.id == rq.PathValue("id") && m.account == rq.account && m.live == rq.live {
			return answer{status: http.StatusOK, body: []byte(m.body), reached: true}
		}
	}
	e := invalid(codeResourceMissing, "id", "No such event: "+quoted(rq.PathValue("id")))
	e.status = http.StatusNotFound
	return s.refuse(rq, e)
}

func (s *Server) list(rq *request, v any) answer {
	body, err := json.Marshal(v)
	if err != nil {
		return s.refuse(rq, statusError(500))
	}
	return answer{status: http.StatusOK, body: body, reached: true}
}
