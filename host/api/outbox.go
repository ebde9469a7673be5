package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// ItemView is an outbox item as the API shows it.
type ItemView struct {
	ID               string             `json:"id"`
	Tenant           string             `json:"tenant"`
	SubjectKind      string             `json:"subject_kind"`
	SubjectRef       string             `json:"subject_ref"`
	Exporter         string             `json:"exporter"`
	Account          string             `json:"account"`
	Mode             string             `json:"mode"`
	MappingVersion   string             `json:"mapping_version"`
	Identifier       string             `json:"identifier"`
	Feature          string             `json:"feature"`
	Customer         string             `json:"customer"`
	State            string             `json:"state"`
	Attempts         int                `json:"attempts"`
	AttemptBudget    int                `json:"attempt_budget"`
	Unresolved       bool               `json:"unresolved"`
	FirstAttemptAt   *string            `json:"first_attempt_at"`
	NextAttemptAt    *string            `json:"next_attempt_at"`
	LeaseOwner       *string            `json:"lease_owner"`
	LeaseToken       int64              `json:"lease_token"`
	ProviderRef      *string            `json:"provider_ref"`
	AcceptedAt       *string            `json:"accepted_at"`
	ConfirmedAt      *string            `json:"confirmed_at"`
	LastError        *storage.ItemError `json:"last_error"`
	QuarantineReason *string            `json:"quarantine_reason"`
	Disputed         *string            `json:"disputed"`
	SettledAt        *string            `json:"settled_at"`
	SupersededBy     *string            `json:"superseded_by"`
	// Method is how a correction is told; DependsOn the item of its original,
	// and Waits says that it is not sent before that one is accepted.
	// In the answer about one item OriginalState says where that one stands.
	Method            string            `json:"method,omitempty"`
	DependsOn         *string           `json:"depends_on,omitempty"`
	Waits             bool              `json:"waits,omitempty"`
	OriginalState     storage.ItemState `json:"original_state,omitempty"`
	FirstUnresolvedAt *string           `json:"first_unresolved_at"`
	ConfirmedBy       *string           `json:"confirmed_by"`
	CreatedAt         string            `json:"created_at"`
	Payload           json.RawMessage   `json:"payload,omitempty"`
	AttemptsLog       []storage.Attempt `json:"attempts_log,omitempty"`
	Actions           []ActionView      `json:"actions,omitempty"`
}

// StatsAnswer answers GET /v1/outbox/stats.
type StatsAnswer struct {
	// States counts items by state over all exporters, zeros included.
	States map[string]int64 `json:"states"`
	// Exporters is the same by exporter.
	Exporters map[string]map[string]StateCount `json:"exporters"`
	// OldestPendingAge is in seconds.
	OldestPendingAge float64 `json:"oldest_pending_age"`
	// OldestAcceptedAge is the time since the oldest acceptance that is not
	// confirmed, in seconds.
	OldestAcceptedAge float64 `json:"oldest_accepted_age"`
	// Disputed counts open items with evidence against them.
	Disputed int64 `json:"disputed"`
	// StaleWorkers counts outcomes that came too late to be written.
	StaleWorkers int64 `json:"stale_workers"`
}

// StateCount counts items and those among them that nobody has settled.
type StateCount struct {
	Items int64 `json:"items"`
	Open  int64 `json:"open"`
}

func (s *server) listItems(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r, "state", "tenant", "exporter", "account", "mode", "feature", "reason", "subject_ref", "open", "disputed", "unconfirmed", "after", "limit")
	sel := storage.ItemQuery{
		State: storage.ItemState(q.oneOf("state", texts(storage.ItemStates[:]))), Tenant: q.text("tenant"), Exporter: q.text("exporter"),
		Account: q.text("account"), Mode: q.oneOf("mode", modes), Feature: q.text("feature"), Reason: q.oneOf("reason", quarantineReasons()), SubjectRef: q.text("subject_ref"),
		Open: q.truth("open"), Disputed: q.truth("disputed"), Unconfirmed: q.age("unconfirmed"),
		After: q.number("after", 0, 0, maxCursor), Limit: int(q.number("limit", 100, 1, 1000)),
	}
	if q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	page, err := s.cfg.Outbox.ListItems(r.Context(), sel)
	if err == nil && len(page.Items) == 0 {
		err = s.knownPlace(r.Context(), sel.Exporter, sel.Account)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := Page[ItemView]{Data: []ItemView{}}
	for _, it := range page.Items {
		out.Data = append(out.Data, itemView(it))
	}
	if page.More {
		out.Next = strconv.FormatInt(page.Next, 10)
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *server) getItem(w http.ResponseWriter, r *http.Request) {
	id, err := itemID(r)
	if q := readQuery(r); q.err != nil {
		err = q.err
	}
	var v ItemView
	if err == nil {
		v, err = s.item(r, id)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}

// item is one item with its payload and all that happened to it.
func (s *server) item(r *http.Request, id int64) (ItemView, error) {
	d, err := s.cfg.Outbox.LoadItem(r.Context(), id)
	if err != nil {
		return ItemView{}, err
	}
	v := itemView(d.Item)
	v.AttemptsLog, v.Actions = d.Attempts, actionViews(d.Actions)
	if d.Original != nil {
		v.OriginalState = d.Original.State
	}
	v.Payload, err = outbox.PayloadJSON(d)
	return v, err
}

func (s *server) stats(w http.ResponseWriter, r *http.Request) {
	if q := readQuery(r); q.err != nil {
		s.fail(w, r, q.err)
		return
	}
	st, err := s.cfg.Outbox.OutboxStats(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := StatsAnswer{
		States: map[string]int64{}, Exporters: map[string]map[string]StateCount{},
		OldestPendingAge: st.OldestPending.Seconds(), StaleWorkers: st.FencedAttempts,
		OldestAcceptedAge: st.OldestAccepted.Seconds(), Disputed: st.Disputed,
	}
	for _, state := range storage.ItemStates {
		out.States[string(state)] = 0
	}
	for _, c := range st.Counts {
		out.States[string(c.State)] += c.Items
		if out.Exporters[c.Exporter] == nil {
			out.Exporters[c.Exporter] = map[string]StateCount{}
		}
		out.Exporters[c.Exporter][string(c.State)] = StateCount{Items: c.Items, Open: c.Open}
	}
	writeJSON(w, http.StatusOK, out)
}

func itemView(it storage.Item) ItemView {
	v := ItemView{
		ID: strconv.FormatInt(it.ItemID, 10), Tenant: it.Identity.Tenant, SubjectKind: string(it.Identity.SubjectKind),
		SubjectRef: it.Identity.SubjectRef, Exporter: it.Identity.Exporter, Account: it.Identity.Account,
		Mode: it.Identity.Mode, MappingVersion: it.Identity.MappingVersion, Identifier: outbox.IdentifierOf(it.Digest),
		Feature: it.Feature, Customer: it.Customer, State: string(it.State), Attempts: it.Attempts,
		AttemptBudget: it.AttemptBudget, Unresolved: it.Unresolved, LeaseToken: it.LeaseToken, LastError: it.LastError,
		FirstAttemptAt: timeOrNull(it.FirstAttemptAt), AcceptedAt: timeOrNull(it.AcceptedAt),
		ConfirmedAt: timeOrNull(it.ConfirmedAt), SettledAt: timeOrNull(it.SettledAt),
		LeaseOwner: textOrNull(it.LeaseOwner), ProviderRef: textOrNull(it.ProviderRef),
		QuarantineReason: textOrNull(it.QuarantineReason), Disputed: textOrNull(it.Disputed), CreatedAt: stamp(it.CreatedAt),
	}
	// What waits, is settled or has been superseded is not tried next.
	if it.State == storage.Pending && !it.Waits && it.SettledAt.IsZero() && it.SupersededBy == 0 {
		v.NextAttemptAt = timeOrNull(it.NextAttemptAt)
	}
	v.SupersededBy, v.DependsOn = idOrNull(it.SupersededBy), idOrNull(it.DependsOn)
	v.Method, v.Waits = it.Method, it.Waits
	v.FirstUnresolvedAt, v.ConfirmedBy = timeOrNull(it.FirstUnresolvedAt), textOrNull(it.ConfirmedBy)
	return v
}

func idOrNull(id int64) *string {
	if id == 0 {
		return nil
	}
	return textOrNull(strconv.FormatInt(id, 10))
}

func timeOrNull(t time.Time) *string { return textOrNull(stamp(t)) }

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
