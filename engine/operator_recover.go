package engine

import (
	"context"
	"fmt"
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

	Tenant          string
	Exporter        string
	Feature         string
	Kind            string
	Subject         string
	Identifier      string
	Attempts        int
	LastError       string
	UnresolvedSince *time.Time
	// May lists what the item could be resolved to when the plan was made.
	May []storage.ItemState

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
	if i.LastError != nil {
		r.LastError = i.LastError.Code
	}
	if !i.FirstUnresolvedAt.IsZero() {
		since := i.FirstUnresolvedAt
		r.UnresolvedSince = &since
	}
	s, known := e.standing(ctx, i)
	act := Act{Actor: "plan", Reason: "plan"}
	for _, to := range []storage.ItemState{storage.Pending, storage.Accepted, storage.Rejected} {
		asked := Resolution{To: to}
		if finding, needed := map[storage.ItemState]outbox.Finding{storage.Accepted: outbox.FoundTaken, storage.Rejected: outbox.FoundRefused}[to]; needed {
			asked.Evidence = &Evidence{Kind: outbox.EvidenceAsserted, Finding: finding, Text: "plan"}
		} else if !known {
			continue
		}
		if move, err := outbox.Resolve(i, asked, s, act); err == nil && outbox.Unmet(move.Expect, i, now) == nil {
			r.May = append(r.May, to)
		}
	}
	return r
}

// RecoverApply resolves the items of a plan as it says, one by one, and answers
// for each in the plan's order. An item that moved since the plan was made is
// refused; the others go on. It ends early, with what was done, only when ctx
// ends or the store does not answer.
func (e *Engine) RecoverApply(ctx context.Context, p RecoverPlan, a Act) ([]Recovered, error) {
	if p.Version != planVersion {
		return nil, sdk.Invalid("version", "1")
	}
	if err := a.Check(); err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	out := make([]Recovered, 0, len(p.Items))
	for _, i := range p.Items {
		done := Recovered{ItemID: i.ItemID, To: i.To}
		if i.To != "" {
			token := i.LeaseToken
			_, done.Err = e.Resolve(ctx, i.ItemID, Resolution{
				To: i.To, LeaseToken: &token, Evidence: i.Evidence, ProviderRef: i.ProviderRef, Attempts: i.More,
			}, a)
		}
		out = append(out, done)
		if done.Err != nil && sdk.TagOf(done.Err) == sdk.TagUnavailable {
			return out, done.Err
		}
	}
	return out, nil
}
