package conformance

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func retaining(more ...storage.Capability) []storage.Capability {
	return append(caps(storage.DurableEvents, storage.Retention), more...)
}

func retentionCases() []Case {
	return []Case{
		fresh("retention/dry-run-tells-and-keeps", "S15", retaining(), dryRun),
		fresh("retention/limit", "S15", retaining(), pruneLimit),
		fresh("retention/repeats-after-it", "S15 B18 B19", retaining(), repeatsAfterPrune),
		fresh("retention/totals-stay", "S15", retaining(), totalsStay),
		fresh("retention/young-events-stay", "S15", retaining(), youngStay),
		fresh("retention/open-items-stay", "S15 Q25", retaining(storage.Outbox), openItemsStay),
		fresh("retention/the-bound-survives", "S15 B24", retaining(storage.Outbox, storage.Corrections), boundSurvives),
		fresh("retention/aggregates-say-what-is-missing", "S15", retaining(), aggregatesSay),
		fresh("retention/tombstones-are-forgotten", "S15", retaining(), tombstonesForgotten),
		fresh("retention/receipts-live-a-day", "S15 B4", retaining(storage.Counters), receiptsLive),
		fresh("retention/a-build-keeps-what-was-pruned", "S15 B44",
			retaining(storage.EventStreaming, storage.ProjectionGenerations), buildKeepsPruned),
		fresh("retention/a-build-keeps-what-it-has-to-scan", "S15 B44",
			retaining(storage.EventStreaming, storage.ProjectionGenerations), unscannedStays),
	}
}

func (r *run) prune(req storage.PruneRequest) storage.PruneResult {
	if req.Limit == 0 {
		req.Limit = 10_000
	}
	if req.Age == 0 {
		req.Age = time.Microsecond
	}
	if req.Kind == "" {
		req.Kind = storage.PruneEvents
	}
	res, err := use[storage.RetentionStore](r, storage.Retention).Prune(r.ctx, req)
	r.must("prune", err)
	if res.Removed > int64(req.Limit) {
		r.errorf("removed %d, limit %d", res.Removed, req.Limit)
	}
	return res
}

// has reports whether an event is there.
func (r *run) has(tenant, id string) bool {
	_, err := r.eventStore().LoadEvent(r.ctx, storage.EventKey{Tenant: tenant, EventID: id})
	if err != nil {
		r.tagIs("load", err, sdk.TagNotFound, "")
	}
	return err == nil
}

// pruneUntilGone removes what is old enough until these events are gone.
func (r *run) pruneUntilGone(tenant string, ids ...string) {
	r.until("old events are removed", func() bool {
		for r.prune(storage.PruneRequest{}).More {
			continue
		}
		for _, id := range ids {
			if r.has(tenant, id) {
				return false
			}
		}
		return true
	})
}

func dryRun(r *run) {
	t := r.tenant("a")
	r.pruneUntilGone(t) // what is not this case's: one call removes no more than its limit
	r.put(usage(t, "1", "1"), usage(t, "2", "2"), usage(t, "3", "3"))
	var would storage.PruneResult
	r.until("the events are old enough", func() bool {
		would = r.prune(storage.PruneRequest{DryRun: true})
		return would.Removed >= 3
	})
	if !r.has(t, "1") || !r.has(t, "2") || !r.has(t, "3") {
		r.errorf("a dry run removed an event")
	}
	r.same("a dry run again", r.prune(storage.PruneRequest{DryRun: true}), would)
	did := r.prune(storage.PruneRequest{})
	r.same("what it removes", did, would)
	r.absent("removed", t, "1")
	r.same("after that", r.prune(storage.PruneRequest{}).Removed, 0)
}

func pruneLimit(r *run) {
	t := r.tenant("a")
	r.pruneUntilGone(t) // what is not this case's
	r.put(usage(t, "1", "1"), usage(t, "2", "2"), usage(t, "3", "3"))
	r.until("the events are old enough", func() bool { return r.prune(storage.PruneRequest{DryRun: true}).Removed >= 3 })
	res := r.prune(storage.PruneRequest{Limit: 2})
	r.same("a slice", []any{res.Removed, res.More}, []any{2, true})
	res = r.prune(storage.PruneRequest{Limit: 2})
	r.same("the rest", []any{res.Removed, res.More}, []any{1, false})
}

// The identity outlives the event: a late repeat is a duplicate or a conflict
// still, and never counted again.
func repeatsAfterPrune(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "1"), usage(t, "2", "2"))
	r.pruneUntilGone(t, "1", "2")
	got := r.record(storage.Each, units(usage(t, "1", "1"), usage(t, "2", "5"), usage(t, "3", "4"))...)
	r.same("outcomes", outcomes(got), []storage.Outcome{storage.Duplicate, storage.Conflict, storage.Inserted})
	got = r.record(storage.Atomic, units(usage(t, "4", "1"), usage(t, "2", "5"))...)
	r.same("outcomes, atomic", outcomes(got), []storage.Outcome{"", storage.Conflict})
	r.totalIs("counted once", t, "7", 3, 3)
}

func totalsStay(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "1.5"), usage(t, "2", "2"))
	before := r.totals(t)
	r.pruneUntilGone(t, "1", "2")
	r.same("totals", r.totals(t), before)
	if r.manifest.Has(storage.EventStreaming) {
		all, _ := r.stream(storage.StreamQuery{Tenant: t, Limit: 10})
		r.same("the stream", len(all), 0)
	}
}

func youngStay(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "1"))
	for range 3 {
		r.prune(storage.PruneRequest{Age: 24 * time.Hour})
	}
	if !r.has(t, "1") {
		r.errorf("an event of this minute was removed as older than a day")
	}
	_, err := use[storage.RetentionStore](r, storage.Retention).Prune(r.ctx,
		storage.PruneRequest{Kind: "everything", Age: time.Hour, Limit: 1})
	r.tagIs("a kind that is not in the list", err, sdk.TagInvalid, "")
}

func openItemsStay(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	unit := func(id string, edit func(*storage.NewItem)) storage.Unit {
		e := usage(t, id, "1")
		it := r.item(&e, route)
		edit(&it)
		return storage.Unit{Entries: []storage.Entry{entry(e, it)}}
	}
	r.putUnits(
		unit("pending", func(*storage.NewItem) {}),
		unit("held", func(it *storage.NewItem) { it.QuarantineReason = "no_customer" }),
		unit("settled", func(it *storage.NewItem) { it.QuarantineReason, it.Settled = "period_buffered", true }),
	)
	r.put(usage(t, "none", "1"))
	r.pruneUntilGone(t, "settled", "none")
	if !r.has(t, "pending") || !r.has(t, "held") {
		r.errorf("an event was removed whose item is not settled")
	}
	r.same("items that are left", len(r.items(storage.ItemQuery{Tenant: t})), 2)
	if kept := r.prune(storage.PruneRequest{}).Kept; kept < 2 {
		r.errorf("kept %d, want at least the two that must stay", kept)
	}
	c := r.claim(storage.ClaimRequest{Routes: []int64{route}})
	r.same("what can be sent has its event", subjects(c), []string{"pending"})
	r.same("the event", c.Items[0].Event.EventID, "pending")
}

// Whatever retention removes, no more can be corrected than was used: a
// correction whose original stays is not removed before it.
func boundSurvives(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	kept, gone := usage(t, "kept", "10"), usage(t, "gone", "10")
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(kept, r.item(&kept, route))}}, units(gone)[0])
	r.corrects(correction(&kept, "c1", "7"), "3")
	r.corrects(correction(&gone, "c2", "7"), "3")
	r.put(usage(t, "marker", "1"))
	r.pruneUntilGone(t, "marker")
	res := r.correct(r.correctRequest(correction(&kept, "c3", "4")))
	r.same("more than is left of an event that stayed", res.Refused, storage.RefusedExceedsOriginal)
	res = r.correct(r.correctRequest(correction(&gone, "c4", "4")))
	if res.Refused != storage.RefusedNotFound && res.Refused != storage.RefusedExceedsOriginal {
		r.errorf("more than is left of an event that may be gone: %s, want a refusal", text(res))
	}
	res = r.correct(r.correctRequest(correction(&kept, "c1", "7")))
	r.same("the repeat of a correction", res.Outcome, storage.Duplicate)
	r.totalIs("totals", t, "7", 5, 3)
}

func aggregatesSay(r *run) {
	t := r.tenant("a")
	r.put(at(t, "1", "5", 30*time.Minute, nil))
	r.pruneUntilGone(t, "1")
	r.put(at(t, "2", "1", 90*time.Minute, nil))
	got := r.aggregate(storage.AggregateQuery{Tenant: t, Edges: hours(2)})
	if !got.PrunedBefore.After(period) || got.PrunedBefore.After(period.Add(90*time.Minute)) {
		r.errorf("pruned before %s; the window from %s is incomplete", got.PrunedBefore, period)
	}
	got = r.aggregate(storage.AggregateQuery{Tenant: r.tenant("b"), Edges: hours(2)})
	r.same("another tenant", got.PrunedBefore, time.Time{})
}

func tombstonesForgotten(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "1"))
	r.pruneUntilGone(t, "1")
	r.same("known still", outcomes(r.record(storage.Each, units(usage(t, "1", "1"))...)), []storage.Outcome{storage.Duplicate})
	r.prune(storage.PruneRequest{Kind: storage.PruneTombstones, DryRun: true})
	r.same("a dry run forgets nothing", outcomes(r.record(storage.Each, units(usage(t, "1", "1"))...)), []storage.Outcome{storage.Duplicate})
	r.until("the tombstone is old enough", func() bool {
		for r.prune(storage.PruneRequest{Kind: storage.PruneTombstones}).More {
			continue
		}
		return r.record(storage.Each, units(usage(t, "1", "1"))...)[0].Outcome == storage.Inserted
	})
	r.totalIs("new usage", t, "2", 2, 2)
}

func receiptsLive(r *run) {
	t := r.tenant("a")
	b := storage.FlushBatch{ID: t, Owner: "host", Counters: []storage.Counter{counterOf(t, "f", "1")}}
	r.flush(b)
	_, err := use[storage.RetentionStore](r, storage.Retention).Prune(r.ctx,
		storage.PruneRequest{Kind: storage.PruneReceipts, Age: 23 * time.Hour, Limit: 100})
	r.tagIs("receipts younger than a day", err, sdk.TagInvalid, "")
	r.prune(storage.PruneRequest{Kind: storage.PruneReceipts, Age: 24 * time.Hour})
	r.same("the batch is known", r.flush(b).Applied, false)
}

// What was removed cannot be scanned; a build has it all the same.
func buildKeepsPruned(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "10"), usage(t, "2", "5"))
	r.pruneUntilGone(t, "1", "2")
	r.put(usage(t, "3", "1"))
	s := r.beginBuild()
	r.put(usage(t, "4", "2"))
	r.build(s.Building)
	r.totalIs("rebuilt", t, "18", 4, 4)
	s = r.beginBuild()
	r.build(s.Building)
	r.totalIs("rebuilt again", t, "18", 4, 4)
}

// What a build has still to scan stays until it was scanned: removed before, it
// would be missing from the new generation.
func unscannedStays(r *run) {
	t := r.tenant("a")
	r.put(usage(t, "1", "10"))
	r.put(usage(t, "2", "5"))
	s := r.beginBuild()
	r.put(usage(t, "3", "1"))
	r.pruneUntilGone(t, "3") // younger than the other two, and not to be scanned
	r.build(s.Building)
	r.totalIs("built", t, "16", 3, 3)
	r.pruneUntilGone(t, "1", "2")
	s = r.beginBuild()
	r.build(s.Building)
	r.totalIs("built anew", t, "16", 3, 3)
}
