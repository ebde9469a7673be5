package conformance

import (
	"encoding/json"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func corrective() []storage.Capability { return caps(storage.DurableEvents, storage.Corrections) }

// correction is a correction of an event.
func correction(of *storage.Event, id, quantity string) storage.Event {
	return storage.Event{
		Tenant: of.Tenant, EventID: id, Quantity: dec(quantity), Kind: storage.Correction, OriginalEventID: of.EventID,
		PayloadHash: hash("payload", of.Tenant, id, of.EventID, quantity),
		DedupeHash:  hash("dedupe", of.Tenant, id, of.EventID, quantity),
	}
}

func (r *run) correctRequest(e storage.Event) storage.CorrectRequest {
	return storage.CorrectRequest{
		Event: e, RoutesRevision: r.revision(),
		Subscriptions: []storage.SubscriptionRevision{{Tenant: e.Tenant, Revision: r.subscription(e.Tenant)}},
	}
}

// tryCorrect corrects, and repeats what the contract says to repeat, except
// where the request expects a state.
func (r *run) tryCorrect(req storage.CorrectRequest) (storage.CorrectResult, error) {
	for range retries {
		fresh := r.correctRequest(req.Event)
		req.RoutesRevision, req.Subscriptions = fresh.RoutesRevision, fresh.Subscriptions
		res, err := r.corrections().RecordCorrection(r.ctx, req)
		if unresolved(err) || (err == nil && res.Stale != nil && req.ExpectCorrected == nil) {
			continue
		}
		return res, err
	}
	r.fatalf("correct: still stale or unresolved after %d tries", retries)
	return storage.CorrectResult{}, nil
}

func (r *run) correct(req storage.CorrectRequest) storage.CorrectResult {
	res, err := r.tryCorrect(req)
	r.must("correct", err)
	return res
}

// corrects expects a correction to go in.
func (r *run) corrects(e storage.Event, remaining string) storage.CorrectResult {
	res := r.correct(r.correctRequest(e))
	if res.Outcome != storage.Inserted || res.Stale != nil || res.Refused != "" {
		r.fatalf("correction %s: %s, want inserted", e.EventID, text(res))
	}
	r.same("remaining after "+e.EventID, res.Remaining, dec(remaining))
	return res
}

// refuses expects a refusal, and that it wrote nothing.
func (r *run) refuses(req storage.CorrectRequest, reason string) {
	before := r.totals(req.Event.Tenant)
	res := r.correct(req)
	if res.Refused != reason || res.Outcome != "" || res.Stale != nil {
		r.errorf("correction %s: %s, want refused %s", req.Event.EventID, text(res), reason)
	}
	r.same("totals after a refusal", r.totals(req.Event.Tenant), before)
	r.absent("after a refusal", req.Event.Tenant, req.Event.EventID)
}

func correctionCases() []Case {
	needs := corrective()
	return []Case{
		define("correction/listed", "B23", needs, correctionsListed),
		define("correction/reduces", "B23 B31 B-T5", needs, correctionReduces),
		define("correction/full-reversal", "Q8 B31", needs, fullReversal),
		define("correction/duplicate-before-bound", "B26", needs, duplicateBeforeBound),
		define("correction/conflict", "B26 B30 B17", needs, correctionConflict),
		define("correction/inherits", "B30", needs, correctionInherits),
		define("correction/negative-original", "Q7 B34", needs, negativeOriginal),
		define("correction/exact", "S9 B24", needs, exactCorrections),
		define("correction/round-trip", "S1 B23", needs, correctionRoundTrip),
		define("correction/load-correctable", "S7 B23", needs, loadCorrectable),
	}
}

func correctionReduces(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e, usage(t, "2", "5"))
	res := r.corrects(correction(&e, "c1", "4"), "6")
	if res.Correction.EventID != "c1" || res.Correction.Seq <= 0 || res.Correction.Feature != "tokens" {
		r.errorf("result %s, want the id, the feature and a seq", text(res.Correction))
	}
	r.totalIs("a correction is a row and no usage", t, "11", 3, 2)
	r.corrects(correction(&e, "c2", "1"), "5")
	r.totalIs("another one", t, "10", 4, 2)
	r.same("the original is not changed", plainEvent(r.load(t, "1")), plainEvent(withEffect(e)))
}

func fullReversal(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e)
	r.corrects(correction(&e, "c1", "4"), "6")
	if r.load(t, "c1").Reverses {
		r.errorf("a partial correction says that it reverses")
	}
	r.corrects(correction(&e, "c2", "6"), "0")
	if !r.load(t, "c2").Reverses {
		r.errorf("the correction that left nothing does not say so")
	}
	r.totalIs("fully reversed", t, "0", 3, 0)
}

// A repeat of the correction that used the original up is a duplicate, not one
// that exceeds.
func duplicateBeforeBound(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e)
	first := r.corrects(correction(&e, "c1", "10"), "0")
	for range 2 {
		res := r.correct(r.correctRequest(correction(&e, "c1", "10")))
		if res.Outcome != storage.Duplicate || res.Refused != "" || res.Correction != first.Correction {
			r.errorf("the repeat: %s, want a duplicate of %s", text(res), text(first.Correction))
		}
		r.same("remaining", res.Remaining, dec("0"))
	}
	r.totalIs("counted once", t, "0", 2, 0)
}

func correctionConflict(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e, usage(t, "2", "10"))
	r.corrects(correction(&e, "c1", "1"), "9")
	for what, c := range map[string]storage.Event{
		"another quantity":             correction(&e, "c1", "2"),
		"more than is left":            correction(&e, "c1", "50"),
		"another original":             correction(&storage.Event{Tenant: t, EventID: "2"}, "c1", "1"),
		"the id of a usage event":      correction(&e, "2", "1"),
		"the id of the original":       correction(&e, "1", "1"),
		"an original that never was":   correction(&storage.Event{Tenant: t, EventID: "none"}, "c1", "1"),
		"an original and id of itself": correction(&storage.Event{Tenant: t, EventID: "c1"}, "c1", "1"),
	} {
		res := r.correct(r.correctRequest(c))
		if res.Outcome != storage.Conflict || res.Refused != "" {
			r.errorf("%s: %s, want a conflict", what, text(res))
		}
	}
	r.totalIs("after conflicts", t, "19", 3, 2)
	got := r.record(storage.Each, units(usage(t, "c1", "1"))...)
	r.same("usage under the id of a correction", outcomes(got), []storage.Outcome{storage.Conflict})
}

// richEvent is an event "1" with everything set that a correction inherits.
func richEvent(t, quantity string) storage.Event {
	e := usage(t, "1", quantity)
	e.Feature = "calls"
	e.OccurredAt = e.OccurredAt.AddDate(0, -3, 0)
	e.PeriodStart, e.PeriodEnd, e.PeriodSource = period.AddDate(0, -3, 5), period.AddDate(0, -2, 5), storage.FromSubscription
	e.Plan, e.PlanVersion = "pro", "7"
	e.Dimensions = map[string]string{"model": "m1", "region": "eu"}
	return e
}

func correctionInherits(r *run) {
	t := r.tenant("a")
	e := richEvent(t, "10")
	r.put(e)
	c := correction(&e, "c1", "4")
	c.Metadata = json.RawMessage(`{"why":"refund"}`)
	r.corrects(c, "6")
	want := e
	want.EventID, want.Kind, want.OriginalEventID = "c1", storage.Correction, "1"
	want.Quantity, want.Effect, want.Metadata = dec("4"), dec("-4"), c.Metadata
	want.PayloadHash, want.DedupeHash = c.PayloadHash, c.DedupeHash
	r.same("the correction", plainEvent(r.load(t, "c1")), plainEvent(want))
	all := r.totals(t)
	r.same("one total, of the original's period and feature", len(all), 1)
	r.same("its quantity", all[0].Quantity, dec("6"))
}

// A correction moves a negative original towards zero: its effect is positive.
func negativeOriginal(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "-10")
	r.put(e)
	req := r.correctRequest(correction(&e, "c1", "4"))
	req.Signed = true
	res := r.correct(req)
	r.same("outcome", res.Outcome, storage.Inserted)
	r.same("remaining", res.Remaining, dec("6"))
	r.same("effect", r.load(t, "c1").Effect, dec("4"))
	r.totalIs("towards zero", t, "-6", 2, 1)
	req = r.correctRequest(correction(&e, "c2", "6.1"))
	req.Signed = true
	r.refuses(req, storage.RefusedExceedsOriginal)
	req = r.correctRequest(correction(&e, "c3", "6"))
	req.Signed = true
	r.same("the rest", r.correct(req).Outcome, storage.Inserted)
	r.totalIs("reversed", t, "0", 3, 0)
}

func exactCorrections(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "99999999999999999999999999.999999999999")
	r.put(e)
	r.corrects(correction(&e, "c1", "99999999999999999999999999.999999999998"), "0.000000000001")
	r.refuses(r.correctRequest(correction(&e, "c2", "0.000000000002")), storage.RefusedExceedsOriginal)
	r.corrects(correction(&e, "c3", "0.000000000001"), "0")
	r.totalIs("to the last digit", t, "0", 3, 0)
}

func correctionRoundTrip(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e)
	res := r.corrects(correction(&e, "c1", "4"), "6")
	got := r.load(t, "c1")
	r.same("seq", got.Seq, res.Correction.Seq)
	if got.RecordedAt.IsZero() {
		r.errorf("no time of recording")
	}
	if r.manifest.Has(storage.EventStreaming) {
		all, _ := r.stream(storage.StreamQuery{Tenant: t, Limit: 10})
		r.same("the stream", ids(all), []string{"1", "c1"})
		r.same("the correction in the stream", all[1], got)
	}
}

func loadCorrectable(r *run) {
	t := r.tenant("a")
	e := richEvent(t, "10")
	r.put(e)
	load := func(corrected string) {
		c, err := r.corrections().LoadCorrectable(r.ctx, storage.EventKey{Tenant: t, EventID: "1"})
		r.must("load a correctable event", err)
		r.same("the original", plainEvent(c.Original), plainEvent(withEffect(e)))
		r.same("corrected so far", c.Corrected, dec(corrected))
	}
	load("0")
	r.corrects(correction(&e, "c1", "3"), "7")
	r.corrects(correction(&e, "c2", "2.5"), "4.5")
	load("5.5")
	_, err := r.corrections().LoadCorrectable(r.ctx, storage.EventKey{Tenant: r.tenant("b"), EventID: "1"})
	r.tagIs("another tenant's event", err, sdk.TagNotFound, "")
}

// total of magnitudes that went in.
func add(all []decimal.Decimal) decimal.Decimal {
	var sum decimal.Decimal
	for _, d := range all {
		sum = sum.Add(d)
	}
	return sum
}
