package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Correction takes back usage that was recorded.
type Correction = meter.Correction

// correctTries bounds how often one correction is computed anew because others
// corrected the same event, or routes changed, between reading and writing.
// Each such time somebody else got through.
const correctTries = 64

// CorrectionResult answers a correction.
type CorrectionResult struct {
	// Outcome is inserted, or duplicate when the same was asked for before.
	Outcome Outcome
	// Seq is the insertion identity of the correction.
	Seq int64
	// Quantity is what the correction took back, above zero.
	Quantity decimal.Decimal
	// Remaining is what is left of the original now, not negative.
	Remaining decimal.Decimal
	// Replacement is the event that takes the original's place, nil without.
	Replacement *Entry
	// DryRun is set if nothing was written: Outcome, Quantity and Remaining are
	// what they would be, and what would be inserted has no Seq.
	DryRun bool
}

// Correct takes back usage. The correction is a new event; nothing that was
// recorded changes. It counts in the billing period and at the time of its
// original, and all corrections of one event never take back more than it was.
//
// With DryRun it answers what it would, of what is stored now, and writes nothing:
// each such call is judged by itself, and what others do meanwhile may change the
// answer.
//
// # Errors
//
// Invalid: a rule is broken; the code says which of these it is, if it is:
// "not_usage" (the event is a correction itself), "exceeds_original",
// "nothing_remaining". Not_found: no such event. Unsupported: the store takes no
// corrections, or, with code "partial", the feature is one of which no part can
// be taken back (its maximum, minimum, latest or unique values). Conflict: the
// id of the correction exists with other content, or that of its replacement
// exists, with the same content too (code "replacement_exists") unless this
// correction recorded it. In all these cases nothing was written. Unavailable: as for [Engine.Record].
func (e *Engine) Correct(ctx context.Context, c Correction) (CorrectionResult, error) {
	if err := e.calls.begin(); err != nil {
		return CorrectionResult{}, err
	}
	defer e.calls.end()
	return recorder{engine: e, store: e.store, subjects: e.subjects}.correct(ctx, c)
}

// Correct is [Engine.Correct] inside the caller's transaction. A refusal leaves
// the transaction usable.
func (b *Bound) Correct(ctx context.Context, c Correction) (CorrectionResult, error) {
	return recorder{engine: b.engine, store: b.store, subjects: b.subjects, bound: true}.correct(ctx, c)
}

// Correctable returns a usage event with what was taken back of it, or
// not_found.
func (e *Engine) Correctable(ctx context.Context, key storage.EventKey) (storage.Correctable, error) {
	if err := e.store.takesCorrections(e); err != nil {
		return storage.Correctable{}, err
	}
	c, err := e.store.corrections.LoadCorrectable(ctx, key)
	if err != nil {
		return c, fmt.Errorf("load correctable: %w", err)
	}
	return c, nil
}

// takesCorrections answers for a store that cannot correct. // B8, B9.
func (s stores) takesCorrections(e *Engine) error {
	if s.corrections != nil {
		return nil
	}
	if _, err := need[storage.CorrectionStore](e.cfg.Store, storage.Corrections); err != nil {
		return err
	}
	return &sdk.Error{
		Tag: sdk.TagUnsupported, Code: string(storage.Corrections), Rule: "a transaction of the storage adapter that takes corrections",
	}
}

// correcting carries one correction through its tries.
type correcting struct {
	recorder
	in       Correction
	event    storage.Event  // the correction, as far as it is known beforehand
	replace  *storage.Event // without period and plan
	original storage.EventKey
	now      time.Time
	// absent is set while the original was not found: what is asked then is
	// only whether the correction was made before.
	absent bool
	// how is what the usage of the original's feature adds up to.
	how meter.Aggregation
	// found is the original as it was read last.
	found storage.Correctable
}

func (r recorder) correct(ctx context.Context, in Correction) (CorrectionResult, error) {
	if err := r.store.takesCorrections(r.engine); err != nil {
		return CorrectionResult{}, err
	}
	c, err := r.newCorrecting(in)
	if err != nil {
		return CorrectionResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.engine.cfg.RecordTimeout)
	defer cancel()
	if in.DryRun {
		return c.rehearse(ctx)
	}
	for range correctTries {
		req, err := c.request(ctx)
		if err != nil {
			return CorrectionResult{}, tagged(ctx, err)
		}
		res, err := r.store.corrections.RecordCorrection(ctx, req)
		switch {
		case err != nil:
			return CorrectionResult{}, tagged(ctx, fmt.Errorf("correct: %w", err))
		case res.Stale != nil:
			r.subjects.forget(res.Stale)
		case c.absent && res.Refused == storage.RefusedNothingRemaining:
			// It came between the reading and the writing.
		default:
			out, err := c.answer(ctx, req, res)
			if err == nil && !c.bound {
				c.tell()
			}
			return out, err
		}
	}
	return CorrectionResult{}, sdk.Unavailable("original_moving", errors.New("the event kept being corrected, or routes kept changing"))
}

// newCorrecting validates and hashes. It does no I/O.
func (r recorder) newCorrecting(in Correction) (*correcting, error) {
	now := meter.Truncate(r.engine.cfg.Now())
	rules := r.engine.rules(now)
	if in.Replace != nil {
		replace := *in.Replace
		replace.Time = meter.Truncate(replace.Time)
		in.Replace = &replace
	}
	if err := rules.Correction(in).Err(); err != nil {
		return nil, err
	}
	c := &correcting{recorder: r, in: in, now: now, original: storage.EventKey{Tenant: in.Tenant, EventID: in.EventID}}
	hash, err := in.DedupeHash()
	if err != nil {
		return nil, err
	}
	metadata, err := in.StoredMetadata()
	if err != nil {
		return nil, err
	}
	c.event = storage.Event{
		Tenant: in.Tenant, EventID: in.ID, Kind: storage.Correction, OriginalEventID: in.EventID,
		Metadata: metadata, DedupeHash: hash,
	}
	if in.Replace != nil {
		p := &prepared{in: Input{Plain: in.Replace}, now: now}
		if err := p.plain(rules); err != nil {
			return nil, err
		}
		c.replace = &p.events[0]
	}
	return c, nil
}

// request computes the correction from its original as it is now.
func (c *correcting) request(ctx context.Context) (storage.CorrectRequest, error) {
	routes, err := c.subjects.routeSet(ctx)
	if err != nil {
		return storage.CorrectRequest{}, err
	}
	req := storage.CorrectRequest{Event: c.event, RoutesRevision: routes.Revision}
	if err := c.replacement(ctx, routes, &req); err != nil {
		return req, err
	}
	found, err := c.store.corrections.LoadCorrectable(ctx, c.original)
	c.absent = errors.Is(err, sdk.ErrNotFound)
	if c.absent {
		// The store may still know the correction: an event can be pruned.
		// A quantity of zero asks for that and writes nothing.
		return req, nil
	}
	if err != nil {
		return req, fmt.Errorf("load original: %w", err)
	}
	c.found = found
	of := found.Original
	c.how = c.engine.cfg.feature(of.Feature).Aggregation
	req.WholeOnly = c.how.WholeOnly()
	req.Signed, req.Bucket = c.engine.signed(routes, of.Feature), bucketOf(routes.features[of.Feature], of)
	if c.in.Quantity != nil {
		req.Event.Quantity = *c.in.Quantity
	} else {
		corrected := found.Corrected
		req.ExpectCorrected = &corrected
		req.Event.Quantity = of.Quantity.Abs().Sub(corrected)
	}
	effect := req.Event.Quantity
	if of.Quantity.Sign() > 0 {
		effect = effect.Neg()
	}
	if req.Counted, err = c.countedOriginal(ctx, found); err != nil {
		return req, err
	}
	if !req.Counted {
		req.Items = outbox.BuildCorrectionItems(outbox.Corrected{
			Correction: storage.EventKey{Tenant: c.event.Tenant, EventID: c.event.EventID},
			Effect:     effect, Original: of, Items: found.Items, Manifests: c.engine.cfg.Manifests,
			AttemptBudget: c.engine.cfg.AttemptBudget, Routes: routes.Routes,
		})
	}
	stored := req.Event
	stored.Feature, stored.OccurredAt, stored.Dimensions = of.Feature, of.OccurredAt, of.Dimensions
	req.Event.PayloadHash, err = canon.EventHash(stored)
	return req, err
}

// replacement adds the replacing event with its period, plan and items.
func (c *correcting) replacement(ctx context.Context, routes *routeView, req *storage.CorrectRequest) error {
	if c.replace == nil {
		return nil
	}
	tenants, err := c.subjects.of(ctx, []string{c.event.Tenant})
	if err != nil {
		return err
	}
	if err := c.withCutovers(ctx, tenants, []cutoverKey{{c.event.Tenant, c.replace.Feature}}); err != nil {
		return err
	}
	s := tenants[c.event.Tenant]
	entry := c.engine.entry(*c.replace, s, routes, c.now)
	req.Replacement = &entry
	req.Subscriptions = []storage.SubscriptionRevision{{Tenant: c.event.Tenant, Revision: s.sub.Revision}}
	return nil
}

// answer checks what the store answered before anybody is told.
func (c *correcting) answer(ctx context.Context, req storage.CorrectRequest, res storage.CorrectResult) (CorrectionResult, error) {
	switch {
	case res.Refused != "" && res.Outcome == "":
		return CorrectionResult{}, c.refusal(res.Refused)
	case res.Refused == "" && res.Outcome == storage.Conflict:
		return CorrectionResult{}, c.conflict(ctx)
	case res.Refused != "" || (res.Outcome != storage.Inserted && res.Outcome != storage.Duplicate),
		res.Outcome == storage.Inserted && c.absent, (res.Replacement != nil) != (c.replace != nil):
		return CorrectionResult{}, sdk.Unavailable("storage_answer", errors.New("the storage adapter answered something that cannot be"))
	}
	out := CorrectionResult{Outcome: Outcome(res.Outcome), Seq: res.Correction.Seq, Quantity: req.Event.Quantity, Remaining: res.Remaining}
	if r := res.Replacement; r != nil {
		out.Replacement = &Entry{Feature: r.Feature, EventID: r.EventID, Outcome: out.Outcome, Seq: r.Seq}
	}
	if out.Outcome == Inserted {
		return out, nil
	}
	switch {
	case c.in.Quantity != nil:
		out.Quantity = *c.in.Quantity
	default: // what was left then, not what is left now
		ev, err := c.store.events.LoadEvent(ctx, storage.EventKey{Tenant: c.event.Tenant, EventID: c.event.EventID})
		if err != nil && !errors.Is(err, sdk.ErrNotFound) {
			return CorrectionResult{}, tagged(ctx, fmt.Errorf("load correction: %w", err))
		}
		out.Quantity = ev.Quantity
	}
	return out, nil
}

// conflict says which of the two ids exists. That of a replacement must not,
// whatever is recorded under it, unless the correction recorded it.
func (c *correcting) conflict(ctx context.Context) error {
	err := conflictError()
	if c.replace == nil {
		return err
	}
	ev, lerr := c.store.events.LoadEvent(ctx, storage.EventKey{Tenant: c.replace.Tenant, EventID: c.replace.EventID})
	if lerr != nil {
		return err
	}
	if ev.DedupeHash != c.replace.DedupeHash {
		err.Field = "replace.id"
		return err
	}
	_, lerr = c.store.events.LoadEvent(ctx, storage.EventKey{Tenant: c.event.Tenant, EventID: c.event.EventID})
	if errors.Is(lerr, sdk.ErrNotFound) {
		err.Code, err.Field, err.Rule = "replacement_exists", "replace.id", "an id under which nothing is recorded"
	}
	return err
}

// refusal is the error of a correction that the store refused. // B29, Q7, Q8.
func (c *correcting) refusal(why string) error {
	e := &sdk.Error{Tag: sdk.TagInvalid, Code: why, Field: "quantity"}
	if c.in.Quantity == nil {
		e.Field = "remaining"
	}
	if c.replace != nil {
		e.Field = "replace"
	}
	switch why {
	case storage.RefusedNotFound:
		e.Tag, e.Code, e.Field, e.Rule = sdk.TagNotFound, "original", "event_id", "an event that exists"
	case storage.RefusedNotUsage:
		e.Field, e.Rule = "event_id", "the id of usage, not of a correction"
	case storage.RefusedNothingRemaining:
		e.Rule = "an event of which something is left"
	case storage.RefusedExceedsOriginal:
		e.Rule = "at most what is left of the event"
	case storage.RefusedPartial:
		e.Tag, e.Rule = sdk.TagUnsupported, "all that is left: no part of a "+string(c.how)+" can be taken back"
	default:
		return sdk.Unavailable("storage_answer", errors.New("the storage adapter refused for a reason that is none"))
	}
	return e
}
