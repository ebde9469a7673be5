package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Reconciler compares what was reported with what a provider says.
type Reconciler interface {
	// Reconcile begins a comparison and answers its name: at once on a host that
	// delivers, and when it is done on any other.
	Reconcile(ctx context.Context, ask ReconcileAsk) (id string, done bool, err error)
}

// ReconcileAsk says what to compare: the usage of [From, To).
type ReconcileAsk struct {
	Exporter string
	From     time.Time
	To       time.Time
	Customer string // empty: all
	Feature  string // empty: all
	Whole    bool   // the stretch as one, instead of day by day
	Actor    string
	Reason   string
	DryRun   bool // confirm nothing; the run and its lines are stored
}

// ReconciliationView is a comparison, as the API shows it.
type ReconciliationView struct {
	ID         string  `json:"id"`
	Exporter   string  `json:"exporter"`
	Account    string  `json:"account"`
	Mode       string  `json:"mode"`
	From       string  `json:"from"`
	To         string  `json:"to"`
	StartedAt  string  `json:"started_at"`
	FinishedAt *string `json:"finished_at"` // null: under way, or broken off
	Error      string  `json:"error,omitempty"`
	Lines      string  `json:"lines"`
	Differing  string  `json:"differing"`
	Confirmed  string  `json:"confirmed"` // items
}

// ReconciliationLineView is one customer's usage of one feature in one stretch.
type ReconciliationLineView struct {
	Line       string  `json:"line"`
	Customer   string  `json:"customer"`
	Feature    string  `json:"feature"`
	Meter      string  `json:"meter"`
	From       string  `json:"from"`
	To         string  `json:"to"`
	Recorded   string  `json:"recorded"`
	Reported   string  `json:"reported"`
	Provider   *string `json:"provider"`   // null: it did not say
	Difference *string `json:"difference"` // provider less reported
	Cause      string  `json:"cause"`
	Confirmed  string  `json:"confirmed"` // items
}

// ReconciliationStarted answers POST /v1/reconciliations.
type ReconciliationStarted struct {
	ID   string `json:"id"`
	Done bool   `json:"done"`
}

func (s *server) postReconciliation(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Exporter string    `json:"exporter"`
		From     time.Time `json:"from"`
		To       time.Time `json:"to"`
		Customer string    `json:"customer"`
		Feature  string    `json:"feature"`
		Whole    bool      `json:"whole"`
		Actor    string    `json:"actor"`
		Reason   string    `json:"reason"`
		DryRun   bool      `json:"dry_run"`
	}
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "exporter, from, to, customer, feature, whole, actor, reason and dry_run")
	}
	if err == nil && s.cfg.Reconciler == nil {
		err = &sdk.Error{Tag: sdk.TagUnsupported, Field: "reconcile", Rule: "a host with exporters"}
	}
	if in.Actor == "" {
		in.Actor = actor
	}
	var started ReconciliationStarted
	if err == nil {
		started.ID, started.Done, err = s.cfg.Reconciler.Reconcile(r.Context(), ReconcileAsk(in))
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	status := http.StatusAccepted
	if started.Done {
		status = http.StatusOK
	}
	writeJSON(w, status, started)
}

func (s *server) listReconciliations(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r, "exporter", "before", "limit")
	sel := storage.ReconciliationQuery{Exporter: q.text("exporter"), Before: q.time("before"), Limit: int(q.number("limit", 100, 1, 1000))}
	err := q.err
	var runs []storage.Reconciliation
	if err == nil {
		runs, err = s.cfg.Engine.Reconciliations(r.Context(), sel)
	}
	if err == nil && len(runs) == 0 {
		err = s.knownPlace(r.Context(), sel.Exporter, "")
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := Page[ReconciliationView]{Data: []ReconciliationView{}}
	for _, run := range runs {
		out.Data = append(out.Data, reconciliationView(run))
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *server) getReconciliation(w http.ResponseWriter, r *http.Request) {
	if q := readQuery(r); q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	runs, err := s.cfg.Engine.Reconciliations(r.Context(), storage.ReconciliationQuery{ID: r.PathValue("id"), Limit: 1})
	if err == nil && len(runs) == 0 {
		err = &sdk.Error{Tag: sdk.TagNotFound, Field: "id", Rule: "a reconciliation that exists"}
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, reconciliationView(runs[0]))
}

func (s *server) reconciliationLines(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r, "after", "limit")
	after, limit := q.number("after", 0, 0, maxCursor), int(q.number("limit", 100, 1, 1000))
	err := q.err
	var lines []storage.ReconciliationLine
	if err == nil {
		lines, err = s.cfg.Engine.ReconciliationLines(r.Context(), r.PathValue("id"), after, limit)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := Page[ReconciliationLineView]{Data: []ReconciliationLineView{}}
	for _, l := range lines {
		out.Data = append(out.Data, ReconciliationLineView{
			Line: strconv.FormatInt(l.Line, 10), Customer: l.Customer, Feature: l.Feature, Meter: l.Meter, From: stamp(l.From), To: stamp(l.To),
			Recorded: l.Recorded.String(), Reported: l.Reported.String(), Provider: numberOrNull(l.Provider), Difference: numberOrNull(l.Difference),
			Cause: l.Cause, Confirmed: strconv.FormatInt(l.Confirmed, 10),
		})
	}
	if len(lines) == limit {
		out.Next = strconv.FormatInt(lines[len(lines)-1].Line, 10)
	}
	writeJSON(w, http.StatusOK, out)
}

func numberOrNull(d *decimal.Decimal) *string {
	if d == nil {
		return nil
	}
	s := d.String()
	return &s
}

func reconciliationView(r storage.Reconciliation) ReconciliationView {
	return ReconciliationView{
		ID: r.ID, Exporter: r.Exporter, Account: r.Account, Mode: r.Mode, From: stamp(r.From), To: stamp(r.To),
		StartedAt: stamp(r.StartedAt), FinishedAt: timeOrNull(r.FinishedAt), Error: r.Error,
		Lines: strconv.FormatInt(r.Lines, 10), Differing: strconv.FormatInt(r.Differing, 10), Confirmed: strconv.FormatInt(r.Confirmed, 10),
	}
}
