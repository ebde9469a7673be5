package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// EventView is an event as the API shows it.
type EventView struct {
	ID       string `json:"id"`
	Tenant   string `json:"tenant"`
	Feature  string `json:"feature"`
	Quantity string `json:"quantity"`
	Kind     string `json:"kind"`
	// Effect is what the event adds to the totals, Remaining what can still be
	// taken back of it (in the answer about one event, if it is usage).
	Effect          string            `json:"effect"`
	OriginalEventID string            `json:"original_event_id,omitempty"` // of a correction
	Reverses        bool              `json:"reverses,omitempty"`          // of a correction that left nothing
	Corrected       string            `json:"corrected,omitempty"`
	Remaining       string            `json:"remaining,omitempty"`
	Time            string            `json:"time"`
	PeriodStart     string            `json:"period_start"`
	PeriodEnd       string            `json:"period_end"`
	PeriodSource    string            `json:"period_source"`
	Plan            string            `json:"plan,omitempty"`
	PlanVersion     string            `json:"plan_version,omitempty"`
	Source          string            `json:"source,omitempty"` // of a CloudEvent
	Dimensions      map[string]string `json:"dimensions,omitempty"`
	Metadata        json.RawMessage   `json:"metadata,omitempty"`
	Seq             string            `json:"seq"`
	RecordedAt      string            `json:"recorded_at"`
}

// Page is a page of a listing. Next is absent on the last page.
type Page[T any] struct {
	Data []T    `json:"data"`
	Next string `json:"next,omitempty"`
}

// query reads a request's parameters, refusing those it does not know.
type query struct {
	values url.Values
	err    error
}

func readQuery(r *http.Request, known ...string) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &query{err: sdk.Invalid("query", "a well-formed query string")}
	}
	return checkQuery(values, known...)
}

// checkQuery refuses parameters that are not known, and those given twice.
func checkQuery(values url.Values, known ...string) *query {
	q := &query{values: values}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			q.err = sdk.Invalid("query", "no parameters")
		case !slices.Contains(known, name):
			q.err = sdk.Invalid("query", "only the parameters "+strings.Join(known, ", "))
		case len(values[name]) > 1:
			q.err = sdk.Invalid(name, "given once")
		case !plainText(values.Get(name)):
			q.err = sdk.Invalid(name, "valid UTF-8 without NUL")
		}
		if q.err != nil {
			return q
		}
	}
	return q
}

// plainText reports whether every store can hold a text: none takes NUL, or what
// is not UTF-8.
func plainText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) number(name string, def, lowest, highest int64) int64 {
	text := q.values.Get(name)
	if text == "" {
		return def
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || n < lowest || n > highest) && q.err == nil {
		q.err = sdk.Invalid(name, "a whole number from "+strconv.FormatInt(lowest, 10)+" to "+strconv.FormatInt(highest, 10))
	}
	return n
}

// truth is true, false, or false if it is absent.
func (q *query) truth(name string) bool {
	text := q.values.Get(name)
	if text != "" && text != "true" && text != "false" && q.err == nil {
		q.err = sdk.Invalid(name, "true or false")
	}
	return text == "true"
}

// age is a duration above zero, or zero if it is absent.
func (q *query) age(name string) time.Duration {
	text := q.values.Get(name)
	if text == "" {
		return 0
	}
	d, err := ParseAge(text)
	if (err != nil || d <= 0) && q.err == nil {
		q.err = sdk.Invalid(name, "a duration such as 36h, or a number of days such as 3d")
	}
	return d
}

func (q *query) time(name string) time.Time {
	text := q.values.Get(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case q.err != nil:
	case err != nil:
		q.err = sdk.Invalid(name, "an RFC 3339 time")
	case t.IsZero(): // would be taken for none
		q.err = sdk.Invalid(name, "a time after 0001-01-01T00:00:00Z")
	}
	return t.UTC()
}

const maxCursor = 1<<63 - 1

func (s *server) listEvents(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r, "tenant", "feature", "after", "limit")
	sel := storage.StreamQuery{
		Tenant: q.text("tenant"), Feature: q.text("feature"),
		After: q.number("after", 0, 0, maxCursor), Limit: int(q.number("limit", 100, 1, 1000)),
	}
	if q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	page, err := s.cfg.Engine.Events(r.Context(), sel)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := Page[EventView]{Data: []EventView{}}
	for _, e := range page.Events {
		out.Data = append(out.Data, eventView(e))
	}
	if page.More {
		out.Next = strconv.FormatInt(page.Next, 10)
	}
	writeJSON(w, http.StatusOK, out)
}

// getEvent finds an event by its id. With a source the id is a CloudEvent's and
// the answer lists every feature that it fed.
func (s *server) getEvent(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r, "tenant", "source")
	id := r.PathValue("id")
	if q.err == nil && q.text("tenant") == "" {
		q.err = sdk.Invalid("tenant", "required")
	}
	if q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	tenant, source := q.text("tenant"), q.text("source")
	if source == "" {
		ev, err := s.cfg.Engine.Event(r.Context(), storage.EventKey{Tenant: tenant, EventID: id})
		if err != nil {
			s.fail(w, r, notFound(err, "what came as a CloudEvent is found by its source and id"))
			return
		}
		view, err := s.correctedView(r.Context(), ev)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, view)
		return
	}
	rc, err := s.cfg.Engine.Receipt(r.Context(), storage.ReceiptKey{Tenant: tenant, ReceiptID: canon.ReceiptID(source, id)})
	if err != nil {
		s.fail(w, r, notFound(err, "what came in the plain form is found by its id without source"))
		return
	}
	view := map[string]any{
		"id": rc.ID, "source": rc.Source, "type": rc.Type, "tenant": rc.Tenant, "time": stamp(rc.OccurredAt),
		"recorded_at": stamp(rc.RecordedAt), "event": rc.Body,
	}
	entries := []EventView{}
	for _, f := range rc.Features {
		ev, err := s.cfg.Engine.Event(r.Context(), storage.EventKey{Tenant: tenant, EventID: canon.EventID(source, id, f)})
		if err != nil {
			s.fail(w, r, err)
			return
		}
		entry, err := s.correctedView(r.Context(), ev)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		entries = append(entries, entry)
	}
	view["entries"] = entries
	writeJSON(w, http.StatusOK, view)
}

// notFound adds to an error of that tag where to look.
func notFound(err error, hint string) error {
	tagged, ok := errors.AsType[*sdk.Error](err)
	if !ok || tagged.Tag != sdk.TagNotFound {
		return err
	}
	e := *tagged
	e.Hint = hint
	return &e
}

// correctedView is an event with what was taken back of it, where the store has
// corrections.
func (s *server) correctedView(ctx context.Context, ev storage.Event) (EventView, error) {
	v := eventView(ev)
	if ev.Kind != storage.Usage {
		return v, nil
	}
	c, err := s.cfg.Engine.Correctable(ctx, storage.EventKey{Tenant: ev.Tenant, EventID: ev.EventID})
	switch {
	case errors.Is(err, sdk.ErrUnsupported):
		return v, nil
	case err != nil:
		return v, err
	}
	v.Corrected, v.Remaining = c.Corrected.String(), ev.Quantity.Abs().Sub(c.Corrected).String()
	return v, nil
}

func eventView(e storage.Event) EventView {
	v := EventView{
		ID: e.EventID, Tenant: e.Tenant, Feature: e.Feature, Quantity: e.Quantity.String(), Kind: string(e.Kind),
		Effect: e.Effect.String(), OriginalEventID: e.OriginalEventID, Reverses: e.Reverses,
		Time: stamp(e.OccurredAt), PeriodStart: stamp(e.PeriodStart), PeriodEnd: stamp(e.PeriodEnd),
		PeriodSource: string(e.PeriodSource), Plan: e.Plan, PlanVersion: e.PlanVersion,
		Dimensions: e.Dimensions, Metadata: e.Metadata, Seq: strconv.FormatInt(e.Seq, 10), RecordedAt: stamp(e.RecordedAt),
	}
	if key, isCloud := strings.CutPrefix(e.EventID, canon.CloudEventPrefix); isCloud {
		if parts, err := canon.Split(key); err == nil && len(parts) == 3 {
			v.Source = parts[0]
		}
	}
	return v
}

// stamp writes a time as every surface of this project does: RFC 3339, UTC,
// microseconds. A zero time is the empty text.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}
