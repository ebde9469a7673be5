package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// planVersion is that of a plan's form.
const planVersion = 1

// RecoverFilter selects uncertain items. Empty fields select everything.
type RecoverFilter struct {
	Exporter string
	Tenant   string
	Feature  string
	// After and Limit page by item id; a zero limit is 1000.
	After int64
	Limit int
}

// RecoverPlan is a list of uncertain items for a person to decide about, and the
// state that each had when it was made: what moved meanwhile is refused.
type RecoverPlan struct {
	Version int
	MadeAt  time.Time
	Items   []RecoverItem
	// Next is set where there are more items: the After of the next plan.
	Next int64
}

// RecoverItem is one item of a plan. Whoever reviews it fills in To and what To
// needs, and leaves To empty to leave the item alone.
type RecoverItem struct {
	ItemID     int64
	State      storage.ItemState
	LeaseToken int64

	Tenant     string
	Exporter   string
	Feature    string
	Kind       string
	Subject    string
	Identifier string
	Attempts   int
	// LastError is why the item is uncertain. Where that says nothing of what the
	// provider or the network did, because the budget or the time was over,
	// LastAttempt does: what was seen of the last attempt that was logged.
	LastError       string
	LastAttempt     string
	UnresolvedSince *time.Time
	// May lists what the item could be resolved to when the plan was made. Where it
	// is empty because something may still be on its way, NotBefore is when that
	// ends.
	May       []storage.ItemState
	NotBefore *time.Time

	To          storage.ItemState
	Evidence    *Evidence
	ProviderRef string
	More        int
}

// Recovered answers one item of a plan.
type Recovered struct {
	ItemID int64
	To     storage.ItemState // empty: left alone, as the plan says
	Err    error             // as of [Engine.Resolve]
}

// RecoverPlan lists uncertain items that are open, in id order. It writes nothing.
func (e *Engine) RecoverPlan(ctx context.Context, f RecoverFilter) (RecoverPlan, error) {
	limit := f.Limit
	if limit == 0 {
		limit = 1000
	}
	page, err := e.store.items.ListItems(ctx, storage.ItemQuery{
		State: storage.Uncertain, Open: true, Exporter: f.Exporter, Tenant: f.Tenant, Feature: f.Feature, After: f.After, Limit: limit,
	})
	if err != nil {
		return RecoverPlan{}, fmt.Errorf("list uncertain items: %w", err)
	}
	now := e.cfg.Now().UTC()
	plan := RecoverPlan{Version: planVersion, MadeAt: now, Items: []RecoverItem{}}
	if page.More {
		plan.Next = page.Next
	}
	for _, i := range page.Items {
		if i.SupersededBy == 0 {
			plan.Items = append(plan.Items, e.recoverItem(ctx, i, now))
		}
	}
	return plan, nil
}

func (e *Engine) recoverItem(ctx context.Context, i storage.Item, now time.Time) RecoverItem {
	r := RecoverItem{
		ItemID: i.ItemID, State: i.State, LeaseToken: i.LeaseToken, Tenant: i.Identity.Tenant, Exporter: i.Identity.Exporter,
		Feature: i.Feature, Kind: string(i.Identity.SubjectKind), Subject: i.Identity.SubjectRef,
		Identifier: outbox.IdentifierOf(i.Digest), Attempts: i.Attempts, May: []storage.ItemState{},
	}
	r.LastError, r.LastAttempt = e.lastError(ctx, i)
	if !i.FirstUnresolvedAt.IsZero() {
		since := i.FirstUnresolvedAt
		r.UnresolvedSince = &since
	}
	s, known := e.standing(ctx, i)
	act := Act{Actor: "plan", Reason: "plan"}
	again := storage.Pending
	if outbox.WasQuarantined(i) {
		again = storage.Quarantined // from where it is requeued
	}
	for _, to := range []storage.ItemState{again, storage.Accepted, storage.Rejected} {
		asked := Resolution{To: to}
		if finding, needed := map[storage.ItemState]outbox.Finding{storage.Accepted: outbox.FoundTaken, storage.Rejected: outbox.FoundRefused}[to]; needed {
			asked.Evidence = &Evidence{Kind: outbox.EvidenceAsserted, Finding: finding, Text: "plan"}
		} else if !known && to == storage.Pending {
			continue
		} else if outbox.Restored(i) || outbox.WasQuarantined(i) { // pending, too, with what the books say
			asked.Evidence = &Evidence{Kind: outbox.EvidenceAsserted, Finding: outbox.FoundRefused, Text: "plan"}
		}
		if move, err := outbox.Resolve(i, asked, s, act); err == nil && outbox.Unmet(move.Expect, i, now) == nil {
			r.May = append(r.May, to)
		}
	}
	if quiet := i.ClaimedAt.Add(s.QuietFor); !i.ClaimedAt.IsZero() && quiet.After(now) {
		r.NotBefore = &quiet
	}
	return r
}

// lastError says in words why an item is uncertain, and of a reason that is the
// engine's own what its last attempt met.
func (e *Engine) lastError(ctx context.Context, i storage.Item) (why, attempt string) {
	if i.LastError != nil {
		why = errorText(i.LastError.Code, i.LastError.Status, i.LastError.Message)
	}
	switch {
	case i.LastError == nil, i.LastError.Message != "", i.LastError.Status != 0:
		return why, ""
	case i.LastError.Code == storage.CodeAttemptsExhausted, i.LastError.Code == storage.CodeHorizonPassed,
		i.LastError.Code == storage.CodeClockUntrusted, i.LastError.Code == codeRestored:
	default:
		return why, ""
	}
	d, err := e.Item(ctx, i.ItemID)
	if err != nil || len(d.Attempts) == 0 {
		return why, "" // what it is may be decided without
	}
	last := d.Attempts[len(d.Attempts)-1]
	return why, strings.TrimSpace(last.HostClass + " " + errorText(last.Code, last.Status, last.Message))
}

// codeRestored is the reason that [storage.SettlementStore].MarkRestored gives.
const codeRestored = "restored"

func errorText(code string, status int, message string) string {
	if status != 0 {
		code = strings.TrimSpace(code + " " + strconv.Itoa(status))
	}
	if message != "" {
		code = strings.TrimSpace(code + " " + message)
	}
	return code
}

// RecoverApply resolves the items of a plan as it says, one by one, and answers
// for each in the plan's order. An item that moved since the plan was made is
// refused, and one that is not the one that the plan describes (code
// "another_item"): the plan is of another store, or of the time before a restore.
// The others go on. A plan from before the last restore that was settled is refused
// as a whole (code "restored_since"): what it knows may be of the lost time. What is empty in the plan beside To is not compared. It ends early, with what was done, only when ctx
// ends or the store does not answer.
func (e *Engine) RecoverApply(ctx context.Context, p RecoverPlan, a Act) ([]Recovered, error) {
	if p.Version != planVersion {
		return nil, sdk.Invalid("version", "1")
	}
	if err := a.Check(); err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	if p.MadeAt.After(e.cfg.Now().Add(planSkew)) {
		return nil, sdk.Invalid("created", "the time at which the plan was made, which is not ahead of this host's clock")
	}
	if err := e.restoredSince(ctx, p.MadeAt); err != nil {
		return nil, err
	}
	out := make([]Recovered, 0, len(p.Items))
	for _, i := range p.Items {
		done := Recovered{ItemID: i.ItemID, To: i.To}
		if i.To != "" {
			if done.Err = e.recoverOne(ctx, p, &i, a); done.Err == nil {
				done.To = i.To
			}
		}
		out = append(out, done)
		if done.Err != nil && sdk.TagOf(done.Err) == sdk.TagUnavailable {
			return out, done.Err
		}
	}
	return out, nil
}

// planSkew is by how much the clock of the host that made a plan may be off.
const planSkew = time.Hour

// recoverOne resolves one item, if it is the one that the plan is about: the same
// id and token are those of another item in another store. i.To is then where it went.
func (e *Engine) recoverOne(ctx context.Context, p RecoverPlan, i *RecoverItem, a Act) error {
	d, err := e.Item(ctx, i.ItemID)
	if err != nil {
		return err
	}
	is := d.Item
	rule := "the one that the plan describes"
	var differs []string
	for _, x := range []struct{ name, planned, stored string }{
		{"tenant", i.Tenant, is.Identity.Tenant},
		{"exporter", i.Exporter, is.Identity.Exporter},
		{"feature", i.Feature, is.Feature},
		{"kind", i.Kind, string(is.Identity.SubjectKind)},
		{"subject", i.Subject, is.Identity.SubjectRef},
		{"identifier", i.Identifier, outbox.IdentifierOf(is.Digest)},
	} {
		if x.planned != "" && x.planned != x.stored {
			differs = append(differs, x.name)
		}
	}
	// Its identifier says that it is the one; without, its age can say that it is not.
	late := i.Identifier == "" && !p.MadeAt.IsZero() && is.CreatedAt.After(p.MadeAt.Add(planSkew))
	switch {
	case len(differs) > 0:
		rule += "; another is its " + strings.Join(differs, ", ")
	case late:
		rule += "; it was made after the plan"
	}
	if late || len(differs) > 0 {
		return &sdk.Error{Tag: sdk.TagConflict, Code: "another_item", Field: "item", Rule: rule, Hint: "make a new plan, of this store"}
	}
	token := i.LeaseToken
	done, err := e.Resolve(ctx, i.ItemID, Resolution{To: i.To, LeaseToken: &token, Evidence: i.Evidence, ProviderRef: i.ProviderRef, Attempts: i.More}, a)
	if err == nil {
		i.To = done.To
	}
	return err
}

// restoredSince fails if a restore was settled after an instant. An item that was
// uncertain in the backup has the token again that it had before it was settled in
// the lost time, so no token tells. // Q17.
func (e *Engine) restoredSince(ctx context.Context, madeAt time.Time) error {
	if madeAt.IsZero() {
		return nil
	}
	q := storage.ActionQuery{Kind: storage.ActionRestore, Limit: 1000}
	for {
		page, err := e.Actions(ctx, q)
		if err != nil {
			return err
		}
		for _, a := range page.Actions {
			if a.At.After(madeAt) {
				return &sdk.Error{
					Tag: sdk.TagConflict, Code: "restored_since", Field: "created", Rule: "a plan that was made after the last restore was settled",
					Hint: "make it anew: what it says may be of the time that the store lost",
				}
			}
		}
		if !page.More {
			return nil
		}
		q.After = page.Next
	}
}
