package host

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Act is who does something by hand, and why.
type Act = engine.Act

// Recovery is what was found and done about a store that this host does not
// know, or knows better than it is.
type Recovery struct {
	// Store is how far the store has come, and Remembered how far it had, as far
	// as this host or one that lives has seen; zero if nothing is remembered.
	Store      storage.Incarnation
	Remembered int64
	// Reason is why delivery is stopped; empty if it is not.
	Reason string
	// Items is how many items became uncertain, or would, and Of what they were,
	// in a dry run of [Host.RecoverRestore].
	Items int64
	Of    []RecoveryCount
	// Before is the instant up to which items are concerned, and Since from
	// when on their last attempts are unknown, both by the store's clock.
	Before time.Time
	Since  time.Time
}

// RecoveryCount is how many items of one state and reason of a quarantine there are.
type RecoveryCount struct {
	State  storage.ItemState
	Reason string
	Items  int64
}

// CodeNoRestorePending says that no restore was seen which [Host.RecoverRestore]
// could settle.
const CodeNoRestorePending = "no_restore_pending"

// markLimit is how many items one transaction moves.
const markLimit = 1000

// RecoverRestore settles that the store went back in time: what it says is still
// to be sent may have been sent since, so every unsettled item of then becomes
// uncertain and waits for evidence or a person. Delivery goes on with the next
// heartbeat. It works on a host with and without delivery, and may be repeated
// if it ends in between. // Q17
//
// Where nothing is remembered that the store is behind of, it fails with a conflict,
// code "no_restore_pending", also once it is settled: on a healthy store it would
// make everything uncertain that is open. See [Host.RecoverUnnoticed].
//
// Errors: that, invalid without an actor and a reason, unsupported if the store
// cannot do this, unavailable as for every write.
func (h *Host) RecoverRestore(ctx context.Context, act Act) (Recovery, error) {
	return h.recoverRestore(ctx, act, false)
}

// RecoverUnnoticed is RecoverRestore on the word of an operator that the store was
// restored though nobody noticed: every host lost its memory, or remembers less than
// the backup holds. Everything unsettled becomes uncertain, every time.
func (h *Host) RecoverUnnoticed(ctx context.Context, act Act) (Recovery, error) {
	return h.recoverRestore(ctx, act, true)
}

func (h *Host) recoverRestore(ctx context.Context, act Act, unnoticed bool) (Recovery, error) {
	r, settle, err := h.look(ctx, act)
	if err != nil {
		return r, err
	}
	if r.Reason != ReasonRestorePending && !unnoticed {
		return r, &sdk.Error{
			Tag: sdk.TagConflict, Code: CodeNoRestorePending, Rule: "a store that is behind what is remembered of it; nothing is pending",
			Hint: "only if you know that it was restored and nobody noticed: --unnoticed (\"unnoticed\": true) makes everything uncertain that is open; try it with dry_run first",
		}
	}
	req := storage.RestoreRequest{
		Before: r.Before, Since: r.Since, Claims: max(r.Remembered, r.Store.Claims), Limit: markLimit, DryRun: true,
		Action: storage.Action{Kind: storage.ActionRestore, Actor: act.Actor, Reason: act.Reason},
	}
	if r.Items, err = settle.MarkRestored(ctx, req); err == nil && act.DryRun {
		r.Of, err = h.restorable(ctx, r.Before)
	}
	if err != nil || act.DryRun {
		return r, wrap("recover restore", err)
	}
	req.DryRun, r.Items = false, 0
	for left := true; left; {
		n, err := settle.MarkRestored(ctx, req)
		if err != nil {
			return r, wrap("recover restore", err)
		}
		r.Items += n
		if left = n == markLimit; left {
			// A full page may have been the last one: the call that leaves
			// nothing is the one that completes.
			dry := req
			dry.DryRun = true
			if n, err = settle.MarkRestored(ctx, dry); err != nil {
				return r, wrap("recover restore", err)
			}
			left = n > 0
		}
	}
	h.cfg.Logger.WarnContext(ctx, "recover restore", "actor", act.Actor, "items", r.Items, "before", r.Before, "since", r.Since)
	return r, h.lookAgain(ctx)
}

// restorable counts what a restore would make uncertain, by what it is now.
func (h *Host) restorable(ctx context.Context, before time.Time) ([]RecoveryCount, error) {
	items, ok := storage.As[storage.OutboxStore](h.store)
	if !ok {
		return nil, nil
	}
	var out []RecoveryCount
	for _, state := range []storage.ItemState{storage.Pending, storage.Leased, storage.Quarantined, storage.Uncertain} {
		n := map[string]int64{}
		for q := (storage.ItemQuery{State: state, Open: true, Limit: markLimit}); ; {
			page, err := items.ListItems(ctx, q)
			if err != nil {
				return nil, err
			}
			for _, i := range page.Items {
				known := state == storage.Uncertain && i.Unresolved && !i.FirstUnresolvedAt.IsZero()
				if i.SupersededBy == 0 && !i.CreatedAt.After(before) && !known {
					n[i.QuarantineReason]++
				}
			}
			if q.After = page.Next; !page.More {
				break
			}
		}
		for _, reason := range slices.Sorted(maps.Keys(n)) {
			out = append(out, RecoveryCount{State: state, Reason: reason, Items: n[reason]})
		}
	}
	return out, nil
}

// RecoverAdopt makes this host remember the store as it is now, on the word of
// an operator that it is not a copy or an old one. It is for a host whose
// state_dir is new or lost; it refuses with a conflict, code "restore_pending",
// what this host or one that lives knows to be untrue. // Q17.
func (h *Host) RecoverAdopt(ctx context.Context, act Act) (Recovery, error) {
	r, settle, err := h.look(ctx, act)
	switch {
	case err != nil:
		return r, err
	case r.Reason == ReasonRestorePending:
		return r, &sdk.Error{
			Tag: sdk.TagConflict, Code: ReasonRestorePending, Rule: "a store that is not behind what is remembered of it",
			Hint: "fencepost recover restore settles what that means",
		}
	case act.DryRun:
		return r, nil
	}
	// No item is that old: only the action is written.
	_, err = settle.MarkRestored(ctx, storage.RestoreRequest{
		Before: time.Unix(0, 0).UTC(), Since: r.Since, Claims: r.Store.Claims, Limit: markLimit,
		Action: storage.Action{Kind: storage.ActionAdopt, Actor: act.Actor, Reason: act.Reason},
	})
	if err != nil {
		return r, wrap("recover adopt", err)
	}
	h.cfg.Logger.WarnContext(ctx, "recover adopt", "actor", act.Actor, "store", r.Store.Store, "claims", r.Store.Claims)
	return r, h.lookAgain(ctx)
}

// undecidable says that items cannot be settled by hand before it is settled
// that the store went back in time. A host without delivery has no heartbeat to
// tell it by: it looks when it is asked.
func (h *Host) undecidable() error {
	reason, _ := h.blocked()
	if (h.cfg.WithoutDelivery || len(h.exporters) == 0) && h.presence != nil {
		ctx, cancel := context.WithTimeout(context.Background(), beatEvery)
		defer cancel()
		var err error
		if reason, err = h.presence.glance(ctx); err != nil {
			return sdk.Unavailable("store_unreached", fmt.Errorf("compare the store with what is remembered of it: %w", err))
		}
	}
	if reason == ReasonRestorePending {
		return &sdk.Error{
			Tag: sdk.TagConflict, Code: ReasonRestorePending, Field: "store", Rule: "one that is not behind what was sent: it went back in time, and what it says of items is old",
			Hint: "fencepost recover restore comes first",
		}
	}
	return nil
}

// glance compares the store with what is remembered of it, and remembers nothing
// itself: whoever settles items on a machine of their own vouches for no store. It
// looks at most once in the time between two heartbeats.
func (p *presence) glance(ctx context.Context) (string, error) {
	p.glancing.Lock()
	defer p.glancing.Unlock()
	if p.glanced > 0 && p.clock()-p.glanced < beatEvery {
		return p.glimpse, nil
	}
	s, err := p.sight(ctx)
	if err != nil {
		return "", err
	}
	was := p.glimpse
	p.glimpse, p.glanced = p.known.compare(s), p.clock()
	if p.glimpse == ReasonNoMemory && was != p.glimpse {
		p.log.ErrorContext(ctx, "nothing here remembers this store and no server that lives vouches for it: if it was restored from a backup, "+
			"what it calls unsent may be charged, and recover restore comes first", "claims", s.in.Claims)
	}
	return p.glimpse, nil
}

// compare says why nothing might be sent to whom a store says, of a sighting that
// is nobody's heartbeat.
func (i *incarnations) compare(s sighting) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.load(s.in.Store); i.first.IsZero() {
		i.first = s.now
	}
	s.before = i.remembers() // it sends nothing
	return i.judge(s)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// look compares the store with what is remembered, without becoming a host that
// others see.
func (h *Host) look(ctx context.Context, act Act) (Recovery, storage.SettlementStore, error) {
	settle, ok := storage.As[storage.SettlementStore](h.store)
	switch {
	case act.Actor == "" || act.Reason == "":
		return Recovery{}, nil, sdk.Invalid("actor, reason", "who does this, and why")
	case !ok || h.presence == nil:
		return Recovery{}, nil, &sdk.Error{Tag: sdk.TagUnsupported, Code: string(storage.Outbox), Rule: "a storage adapter that knows its own past"}
	}
	s, err := h.presence.sight(ctx)
	if err != nil {
		return Recovery{}, nil, err
	}
	known := h.presence.known
	if err := known.see(s); err != nil {
		return Recovery{}, nil, err
	}
	r := Recovery{Store: s.in, Before: s.now, Since: s.last, Remembered: known.claims()}
	r.Reason, _ = known.blocked()
	for _, o := range s.others {
		r.Remembered = max(r.Remembered, o.Claims)
	}
	if since, noticed, ok := known.behind(); ok {
		r.Since, r.Before = since, noticed
	}
	// The latest that anybody noticed: the store may have gone back more than once.
	for _, o := range s.others {
		if o.Noticed.After(r.Before) {
			r.Before = o.Noticed
		}
	}
	if r.Since.IsZero() {
		r.Since = r.Before // nobody ever delivered from it
	}
	return r, settle, nil
}

// lookAgain lets this host remember what was done, and go on.
func (h *Host) lookAgain(ctx context.Context) error {
	h.presence.glancing.Lock()
	defer h.presence.glancing.Unlock()
	h.presence.glanced = 0 // what was seen then is over
	s, err := h.presence.sight(ctx)
	if err != nil {
		return err
	}
	if err := h.presence.known.adopt(s.in); err != nil {
		return err
	}
	s.lost = false // that is what was settled
	return h.presence.known.see(s)
}

// sight looks at the store as a heartbeat does, and leaves no host behind.
func (p *presence) sight(ctx context.Context) (sighting, error) {
	p.beating.Lock()
	defer p.beating.Unlock()
	rows, err := p.store.Hosts(ctx, hostTTL)
	if err != nil {
		return sighting{}, fmt.Errorf("read hosts: %w", err)
	}
	before := p.known.claims()
	res, err := p.store.Beat(ctx, storage.Heartbeat{Host: p.owner + "-look", Version: p.version, Leaving: true})
	if err != nil {
		return sighting{}, fmt.Errorf("look at the store: %w", err)
	}
	s := sighting{in: res.Incarnation, now: res.Now, last: res.LastBeat, before: before, at: p.clock()}
	for _, r := range rows {
		if r.Host != p.owner {
			s.others = append(s.others, r)
		}
	}
	s.lost, err = p.lost(ctx, res.Incarnation)
	return s, err
}

// behind says since when what happened to the store is unknown, and when that was
// noticed, if the store is known to have gone back.
func (i *incarnations) behind() (since, noticed time.Time, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.memory == nil || !i.memory.Behind {
		return time.Time{}, time.Time{}, false
	}
	return i.memory.Since, i.memory.Noticed, true
}

// adopt remembers the store as it is.
func (i *incarnations) adopt(in storage.Incarnation) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := remembered{}.orNew(i.memory).at(in)
	m.Last = [16]witness{} // of what was settled
	return i.remember(m)
}
