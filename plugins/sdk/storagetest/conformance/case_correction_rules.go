package conformance

import (
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func correctionRuleCases() []Case {
	needs := corrective()
	return []Case{
		define("correction/refusals-write-nothing", "B24 B29 B33 Q7", needs, refusals),
		define("correction/whole-only", "Q8", needs, wholeOnly),
		define("correction/expectation-is-checked", "S7 B29", needs, expectation),
		define("correction/per-tenant", "B23 S2", needs, correctionPerTenant),
		define("correction/replaces", "S7", needs, replaces),
		define("correction/replacement-conflict-writes-nothing", "S7 B33", needs, replacementConflict),
		define("correction/replacement-is-its-own", "S7 B24 B33", needs, replacementIsItsOwn),
		define("correction/refusal-keeps-the-replacement-out", "S7 B33", needs, refusedReplacement),
		define("correction/stale-routes", "B25 Q4", append(needs, storage.Outbox), staleCorrection),
		define("correction/items", "B32 Q18", append(needs, storage.Outbox), correctionItems),
	}
}

func refusals(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	zero := usage(t, "zero", "0")
	r.put(e, zero)
	r.corrects(correction(&e, "c1", "7"), "3")
	r.refuses(r.correctRequest(correction(&e, "c2", "3.000000000001")), storage.RefusedExceedsOriginal)
	r.refuses(r.correctRequest(correction(&e, "c2", "10")), storage.RefusedExceedsOriginal)
	r.refuses(r.correctRequest(correction(&e, "c2", "0")), storage.RefusedNothingRemaining)
	r.refuses(r.correctRequest(correction(&zero, "c2", "0")), storage.RefusedNothingRemaining)
	r.refuses(r.correctRequest(correction(&zero, "c2", "1")), storage.RefusedExceedsOriginal)
	r.refuses(r.correctRequest(correction(&storage.Event{Tenant: t, EventID: "none"}, "c2", "1")), storage.RefusedNotFound)
	r.refuses(r.correctRequest(correction(&storage.Event{Tenant: t, EventID: "c1"}, "c2", "1")), storage.RefusedNotUsage)
	r.corrects(correction(&e, "c2", "3"), "0") // the id is still free
	r.totalIs("after refusals", t, "0", 4, 1)
}

func wholeOnly(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e)
	part := r.correctRequest(correction(&e, "c1", "9"))
	part.WholeOnly = true
	r.refuses(part, storage.RefusedPartial)
	whole := r.correctRequest(correction(&e, "c1", "10"))
	whole.WholeOnly = true
	r.same("the whole", r.correct(whole).Outcome, storage.Inserted)
	r.totalIs("reversed", t, "0", 2, 0)
}

// What was computed from "what is left" holds only while that is what is left.
func expectation(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e)
	r.corrects(correction(&e, "c1", "4"), "6")
	req := r.correctRequest(correction(&e, "c2", "10"))
	zero, four := dec("0"), dec("4")
	req.ExpectCorrected = &zero
	res := r.correct(req)
	if res.Stale == nil || res.Outcome != "" || res.Refused != "" {
		r.errorf("an expectation that does not hold: %s, want stale", text(res))
	}
	r.absent("after a stale answer", t, "c2")
	req = r.correctRequest(correction(&e, "c2", "6"))
	req.ExpectCorrected = &four
	res = r.correct(req)
	r.same("one that holds", res.Outcome, storage.Inserted)
	// The repeat of a call whose answer was lost expects what no longer
	// holds; it is a duplicate all the same.
	r.same("its repeat", r.correct(req).Outcome, storage.Duplicate)
	r.totalIs("nothing is left", t, "0", 3, 0)
}

func correctionPerTenant(r *run) {
	a, b := r.tenant("a"), r.tenant("b")
	e, f := usage(a, "1", "10"), usage(b, "1", "10")
	r.put(e)
	r.refuses(r.correctRequest(correction(&f, "c1", "1")), storage.RefusedNotFound)
	r.put(f)
	r.corrects(correction(&f, "c1", "10"), "0")
	r.corrects(correction(&e, "c1", "1"), "9")
	r.totalIs("the first tenant", a, "9", 2, 1)
	r.totalIs("the second tenant", b, "0", 2, 0)
}

// replacing is a full reversal "c1" with the event "2" of 8 that takes its place.
func (r *run) replacing(e *storage.Event) storage.CorrectRequest {
	req := r.correctRequest(correction(e, "c1", e.Quantity.String()))
	with := entry(usage(e.Tenant, "2", "8"))
	req.Replacement = &with
	return req
}

func replaces(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e)
	res := r.correct(r.replacing(&e))
	if res.Outcome != storage.Inserted || res.Replacement == nil || res.Replacement.EventID != "2" {
		r.fatalf("a replacement: %s, want both inserted", text(res))
	}
	r.totalIs("replaced", t, "8", 3, 1)
	r.same("the replacement", plainEvent(r.load(t, "2")), plainEvent(withEffect(usage(t, "2", "8"))))
	again := r.correct(r.replacing(&e))
	r.same("the repeat", []any{again.Outcome, again.Correction, again.Replacement}, []any{storage.Duplicate, res.Correction, res.Replacement})
	r.totalIs("after the repeat", t, "8", 3, 1)
	other := r.replacing(&e)
	with := entry(usage(t, "2", "9"))
	other.Replacement = &with
	r.same("the repeat with another replacement", r.correct(other).Outcome, storage.Conflict)
	r.totalIs("after the conflict", t, "8", 3, 1)
}

func replacementConflict(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e, usage(t, "2", "5"))
	res := r.correct(r.replacing(&e))
	r.same("a replacement whose id is taken", res.Outcome, storage.Conflict)
	r.absent("the correction", t, "c1")
	r.totalIs("nothing was written", t, "15", 2, 2)
}

func refusedReplacement(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e)
	r.corrects(correction(&e, "c0", "1"), "9")
	r.refuses(r.replacing(&e), storage.RefusedExceedsOriginal)
	r.absent("the replacement", t, "2")
	r.totalIs("nothing was written", t, "9", 2, 1)
}

func staleCorrection(r *run) {
	t := r.tenant("a")
	e := usage(t, "1", "10")
	r.put(e)
	req := r.correctRequest(correction(&e, "c1", "1"))
	req.RoutesRevision++
	res, err := r.corrections().RecordCorrection(r.ctx, req)
	r.must("correct", err)
	if res.Stale == nil || !res.Stale.Routes {
		r.errorf("routes of another revision: %s, want stale routes", text(res))
	}
	r.absent("after a stale answer", t, "c1")
}

func correctionItems(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e := usage(t, "1", "10")
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, r.item(&e, route))}})
	c := correction(&e, "c1", "4")
	item := r.item(&c, route)
	item.Identity.SubjectKind = storage.SubjectCorrection
	item.Payload = []byte(`{"value":"-4"}`)
	req := r.correctRequest(c)
	req.Items = []storage.NewItem{item}
	r.same("outcome", r.correct(req).Outcome, storage.Inserted)
	r.same("the repeat", r.correct(req).Outcome, storage.Duplicate)
	all := r.items(storage.ItemQuery{Tenant: t})
	if len(all) != 2 {
		r.fatalf("%d items, want 2: %s", len(all), text(all))
	}
	r.same("kind", all[1].Identity, item.Identity)
	d, err := r.outbox().LoadItem(r.ctx, all[1].ItemID)
	r.must("load the item", err)
	r.same("payload", string(plainJSON(d.Payload)), string(item.Payload))
	got, err := r.corrections().LoadCorrectable(r.ctx, storage.EventKey{Tenant: t, EventID: "1"})
	r.must("load the original", err)
	if len(got.Items) != 1 || got.Items[0].ItemID != all[0].ItemID {
		r.errorf("items of the original: %s, want its own", text(got.Items))
	}
	refused := r.correctRequest(correction(&e, "c2", "40"))
	refused.Items = []storage.NewItem{r.item(&refused.Event, route)}
	r.refuses(refused, storage.RefusedExceedsOriginal)
	r.same("items after a refusal", len(r.items(storage.ItemQuery{Tenant: t})), 2)
}

func correctionRaceCases() []Case {
	needs := corrective()
	return []Case{
		define("race/correctors-stop-at-the-bound", "B24 B27 B29", needs, correctorsStop),
		define("race/one-correction-id", "B26 B28", needs, oneCorrectionID),
		define("race/remaining-is-taken-once", "S7 B29", needs, remainingOnce),
		define("race/one-replacement-several-corrections", "S7 B24", needs, oneReplacement),
		define("race/crossed-replacements", "B35", needs, crossedReplacements),
		define("race/corrections-and-records", "B25 B27 B31", needs, correctionsAndRecords),
	}
}

// 32 correctors of one original at once: as many as fit go in, never one more.
// Whoever sums the corrections in a snapshot from before the lock lets more in.
func correctorsStop(r *run) {
	const workers = 32
	t := r.tenant("a")
	// Enough other usage that the total's own check cannot stand in for the
	// bound.
	r.put(usage(t, "other", "1000000"))
	for round := range max(r.opts.Rounds/3, 3) {
		e := usage(t, "e"+decimalInt(round), "10")
		r.put(e)
		got := make([]storage.CorrectResult, workers)
		r.together(workers, func(i int) {
			res, err := r.tryCorrect(storage.CorrectRequest{Event: correction(&e, e.EventID+"-c"+decimalInt(i), "1")})
			if err != nil {
				r.errorf("correct: %v", err)
			}
			got[i] = res
		})
		in := 0
		for _, res := range got {
			switch {
			case res.Outcome == storage.Inserted:
				in++
			case res.Refused != storage.RefusedExceedsOriginal:
				r.errorf("an answer %s, want inserted or exceeds_original", text(res))
			}
		}
		if in != 10 {
			r.fatalf("round %d: %d corrections of 1 went in on an original of 10", round, in)
		}
		n := int64(round + 1)
		r.totalIs("fully corrected", t, "1000000", 1+11*n, 1)
	}
}

func oneCorrectionID(r *run) {
	t := r.tenant("a")
	for round := range r.opts.Rounds {
		e := usage(t, "e"+decimalInt(round), "10")
		r.put(e)
		got := make([]storage.Outcome, 8)
		r.together(len(got), func(i int) {
			res, err := r.tryCorrect(storage.CorrectRequest{Event: correction(&e, e.EventID+"-c", "6")})
			if err != nil {
				r.errorf("correct: %v", err)
			}
			got[i] = res.Outcome
		})
		slices.Sort(got)
		r.same("outcomes", got, append(slices.Repeat([]storage.Outcome{storage.Duplicate}, 7), storage.Inserted))
	}
	n := int64(r.opts.Rounds)
	r.totalIs("each corrected once", t, decimalInt(4*r.opts.Rounds), 2*n, n)
}

// "What is left" is computed before the call; of several at once, one holds.
func remainingOnce(r *run) {
	t := r.tenant("a")
	for round := range r.opts.Rounds {
		e := usage(t, "e"+decimalInt(round), "10")
		r.put(e)
		zero := dec("0")
		got := make([]storage.CorrectResult, 6)
		r.together(len(got), func(i int) {
			req := r.correctRequest(correction(&e, e.EventID+"-c"+decimalInt(i), "10"))
			req.ExpectCorrected = &zero
			res, err := r.tryCorrect(req)
			if err != nil {
				r.errorf("correct: %v", err)
			}
			got[i] = res
		})
		in := 0
		for _, res := range got {
			if res.Outcome == storage.Inserted {
				in++
			} else if res.Stale == nil {
				r.errorf("an answer %s, want inserted or stale", text(res))
			}
		}
		r.same("reversals that went in", in, 1)
	}
	n := int64(r.opts.Rounds)
	r.totalIs("all reversed", t, "0", 2*n, 0)
}

// Corrections lock their original, records the totals: neither waits for the
// other for ever, and no move of a total is lost.
func correctionsAndRecords(r *run) {
	t := r.tenant("a")
	e := usage(t, "e", "1000000")
	r.put(e)
	const workers = 6
	moved := make([]decimal.Decimal, workers)
	r.together(workers, func(w int) {
		for i := range r.opts.Rounds {
			id := decimalInt(w) + "-" + decimalInt(i)
			if w%2 == 0 {
				if _, err := r.try(units(usage(t, id, "3")), storage.Atomic); err != nil {
					r.errorf("record: %v", err)
				}
				moved[w] = moved[w].Add(dec("3"))
				continue
			}
			if _, err := r.tryCorrect(storage.CorrectRequest{Event: correction(&e, id, "2")}); err != nil {
				r.errorf("correct: %v", err)
			}
			moved[w] = moved[w].Sub(dec("2"))
		}
	})
	n := int64(workers * r.opts.Rounds)
	r.totalIs("records and corrections", t, dec("1000000").Add(add(moved)).String(), 1+n, 1+n/2)
}
