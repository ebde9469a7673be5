package api

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// actor is who acts when a request does not say.
const actor = "http"

// act is who acts, and why; part of every request that settles something.
type act struct {
	Actor  string `json:"actor"` // absent: http
	Reason string `json:"reason"`
	DryRun bool   `json:"dry_run"`
}

func (a act) engine() engine.Act {
	if a.Actor == "" {
		a.Actor = actor
	}
	return engine.Act{Actor: a.Actor, Reason: a.Reason, DryRun: a.DryRun}
}

// evidence is what is known of an item. Its finding follows from the state that
// it is given for; on its own it names it.
type evidence struct {
	Kind    string         `json:"kind"` // provider or asserted
	Source  string         `json:"source,omitempty"`
	Finding outbox.Finding `json:"finding,omitempty"`
	Detail  string         `json:"detail"`
}

// of is the evidence for a state.
func (e *evidence) of(state storage.ItemState) *engine.Evidence {
	if e == nil {
		return nil
	}
	out := &engine.Evidence{Kind: e.Kind, Source: e.Source, Finding: e.Finding, Text: e.Detail}
	switch {
	case out.Finding != "":
	case state == storage.Accepted:
		out.Finding = outbox.FoundTaken
	case state == storage.Rejected, state == storage.Pending, state == storage.Quarantined:
		out.Finding = outbox.FoundRefused
	}
	return out
}

// expected is what an item was when somebody looked at it.
type expected struct {
	LeaseToken     *int64  `json:"lease_token"`
	MappingVersion *string `json:"mapping_version"`
}

// check refuses what no item can ever have been. mapping says that
// the request may expect one.
func (e expected) check(mapping bool) error {
	switch {
	case e.LeaseToken != nil && *e.LeaseToken < 0:
		return sdk.Invalid("expect.lease_token", "0 or more, as the item shows it")
	case e.MappingVersion != nil && !mapping:
		return sdk.Invalid("expect.mapping_version", "absent: it is of requeue")
	}
	return nil
}

// SettledView answers what was done with an item: the item after, and, where
// another took its place, which one. In a dry run the item is as it is and State
// what it would be.
type SettledView struct {
	ItemView
	DryRun    bool    `json:"dry_run,omitempty"`
	Would     string  `json:"would,omitempty"`
	NewItemID *string `json:"new_item_id,omitempty"`
}

func (s *server) resolveItem(w http.ResponseWriter, r *http.Request) {
	var in struct {
		State       storage.ItemState `json:"state"`
		Expect      expected          `json:"expect"`
		Evidence    *evidence         `json:"evidence"`
		ProviderRef string            `json:"provider_ref"`
		Attempts    int               `json:"attempts"`
		act
	}
	id, err := s.settling(r, &in, "state, expect, evidence, provider_ref, attempts, actor, reason and dry_run")
	if err == nil {
		err = in.Expect.check(false)
	}
	var done engine.Settled
	if err == nil {
		done, err = s.cfg.Engine.Resolve(r.Context(), id, engine.Resolution{
			To: in.State, LeaseToken: in.Expect.LeaseToken, Evidence: in.Evidence.of(in.State), ProviderRef: in.ProviderRef, Attempts: in.Attempts,
		}, in.engine())
	}
	s.settled(w, r, done, renamed(err, "to", "state", "evidence.text", "evidence.detail"))
}

func (s *server) requeueItem(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Expect expected `json:"expect"`
		act
	}
	id, err := s.settling(r, &in, "expect, actor, reason and dry_run")
	if err == nil {
		err = in.Expect.check(true)
	}
	var done engine.Settled
	if err == nil {
		q := engine.Requeue{LeaseToken: in.Expect.LeaseToken, MappingVersion: in.Expect.MappingVersion}
		done, err = s.cfg.Engine.Requeue(r.Context(), id, q, in.engine())
	}
	s.settled(w, r, done, err)
}

func (s *server) abandonItem(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Expect      expected                  `json:"expect"`
		Disposition storage.WindowDisposition `json:"disposition"`
		act
	}
	id, err := s.settling(r, &in, "expect, disposition, actor, reason and dry_run")
	if err == nil {
		err = in.Expect.check(false)
	}
	var done engine.Settled
	if err == nil {
		b := engine.Abandonment{LeaseToken: in.Expect.LeaseToken, Disposition: in.Disposition}
		done, err = s.cfg.Engine.Abandon(r.Context(), id, b, in.engine())
	}
	s.settled(w, r, done, err)
}

func (s *server) addEvidence(w http.ResponseWriter, r *http.Request) {
	var in struct {
		evidence
		act
	}
	id, err := s.settling(r, &in, "kind, source, finding, detail, actor, reason and dry_run")
	var done engine.Settled
	if err == nil {
		done, err = s.cfg.Engine.AddEvidence(r.Context(), id, *in.of(""), in.engine())
	}
	s.settled(w, r, done, renamed(err, "evidence.text", "detail", "evidence.kind", "kind", "evidence.source", "source", "evidence.finding", "finding"))
}

// settling reads what is to be done with one item.
func (s *server) settling(r *http.Request, into any, fields string) (int64, error) {
	if q := readQuery(r); q.err != nil {
		return 0, q.err
	}
	id, err := itemID(r)
	if err != nil {
		return 0, err
	}
	return id, decodeInput(r.Body, into, fields)
}

func itemID(r *http.Request) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, &sdk.Error{Tag: sdk.TagNotFound, Field: "id", Rule: "the id of an outbox item, a whole number"}
	}
	return id, nil
}

func (s *server) settled(w http.ResponseWriter, r *http.Request, done engine.Settled, err error) {
	var v SettledView
	if err == nil {
		v.ItemView, err = s.item(r, done.ItemID)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if done.DryRun {
		v.DryRun, v.Would = true, string(done.To)
		if done.Superseded {
			v.Would = "superseded"
		}
	}
	if done.NewItemID != 0 {
		id := strconv.FormatInt(done.NewItemID, 10)
		v.NewItemID = &id
	}
	writeJSON(w, http.StatusOK, v)
}

// ActionView is what somebody did, as the API shows it.
type ActionView struct {
	ID       string             `json:"id"`
	At       string             `json:"at"`
	Item     string             `json:"item,omitempty"`
	Kind     storage.ActionKind `json:"kind"`
	Actor    string             `json:"actor"`
	Reason   string             `json:"reason"`
	From     storage.ItemState  `json:"from,omitempty"`
	To       storage.ItemState  `json:"to,omitempty"`
	Evidence *evidence          `json:"evidence,omitempty"`
	Detail   json.RawMessage    `json:"detail,omitempty"`
}

func actionViews(list []storage.Action) []ActionView {
	out := make([]ActionView, len(list))
	for i, a := range list {
		out[i] = ActionView{
			ID: strconv.FormatInt(a.ID, 10), At: stamp(a.At), Kind: a.Kind, Actor: a.Actor, Reason: a.Reason, From: a.From, To: a.To, Detail: a.Detail,
		}
		if a.ItemID != 0 {
			out[i].Item = strconv.FormatInt(a.ItemID, 10)
		}
		if a.EvidenceKind != "" {
			out[i].Evidence = &evidence{Kind: a.EvidenceKind, Detail: a.Evidence}
		}
	}
	return out
}

func (s *server) listActions(w http.ResponseWriter, r *http.Request) {
	q := readQuery(r, "item", "kind", "after", "limit")
	sel := storage.ActionQuery{
		ItemID: q.number("item", 0, 0, maxCursor), Kind: storage.ActionKind(q.oneOf("kind", actionKinds())),
		After: q.number("after", 0, 0, maxCursor), Limit: int(q.number("limit", 100, 1, 1000)),
	}
	var page storage.ActionPage
	err := q.err
	if err == nil {
		page, err = s.cfg.Engine.Actions(r.Context(), sel)
	}
	if err == nil && len(page.Actions) == 0 {
		err = s.knownItem(r.Context(), sel.ItemID)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := Page[ActionView]{Data: actionViews(page.Actions)}
	if page.More {
		out.Next = strconv.FormatInt(page.Next, 10)
	}
	writeJSON(w, http.StatusOK, out)
}
