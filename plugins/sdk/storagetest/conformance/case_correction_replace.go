package conformance

import "github.com/fencepost/fencepost/plugins/sdk/storage"

// replacedBy is a full reversal of e by the correction id with another event
// that takes its place. Like everybody's, the hash of the correction covers
// its replacement.
func (r *run) replacedBy(e *storage.Event, id string, by storage.Event) storage.CorrectRequest {
	c := correction(e, id, e.Quantity.String())
	c.DedupeHash = hash("replace", e.Tenant, id, e.EventID, by.EventID, by.Quantity.String())
	req := r.correctRequest(c)
	with := entry(by)
	req.Replacement = &with
	return req
}

// One event takes the place of one other. A second correction that names it
// would take usage back and record nothing in its place, the more so if the
// event itself was taken back in the meantime: equal content does not help.
func replacementIsItsOwn(r *run) {
	t := r.tenant("a")
	a, b := usage(t, "a", "10"), usage(t, "b", "10")
	by, other := usage(t, "r", "4"), usage(t, "there", "5")
	r.put(a, b, other)
	first := r.correct(r.replacedBy(&a, "c1", by))
	r.same("the first", first.Outcome, storage.Inserted)
	const before = "10 of b, 5 of there, 4 of r: 19"
	for what, req := range map[string]storage.CorrectRequest{
		"a replacement of another correction": r.replacedBy(&b, "c2", by),
		"a replacement that was recorded":     r.replacedBy(&b, "c3", other),
	} {
		res := r.correct(req)
		if res.Outcome != storage.Conflict || res.Replacement != nil || res.Correction != (storage.EntryResult{}) {
			r.errorf("%s: %s, want a conflict", what, text(res))
		}
		r.absent(what, t, req.Event.EventID)
		r.totalIs(before, t, "19", 5, 3)
	}
	r.corrects(correction(&by, "c4", "4"), "0")
	r.same("a replacement that was taken back", r.correct(r.replacedBy(&b, "c2", by)).Outcome, storage.Conflict)
	again := r.correct(r.replacedBy(&a, "c1", by))
	r.same("the repeat", []any{again.Outcome, again.Correction, again.Replacement},
		[]any{storage.Duplicate, first.Correction, first.Replacement})
	r.totalIs("nothing is lost", t, "15", 6, 2)
}

// Two corrections with one replacement at once: one goes in, as a whole, and
// the other leaves its original as it was.
func oneReplacement(r *run) {
	t := r.tenant("a")
	for round := range r.opts.Rounds {
		id := decimalInt(round)
		by := usage(t, "r"+id, "4")
		originals := []storage.Event{usage(t, "a"+id, "10"), usage(t, "b"+id, "10"), usage(t, "c"+id, "10")}
		r.put(originals...)
		got := make([]storage.Outcome, len(originals))
		r.together(len(originals), func(i int) {
			res, err := r.tryCorrect(r.replacedBy(&originals[i], originals[i].EventID+"-c", by))
			if err != nil {
				r.errorf("correct: %v", err)
			}
			got[i] = res.Outcome
		})
		in := 0
		for _, o := range got {
			if o == storage.Inserted {
				in++
			} else if o != storage.Conflict {
				r.errorf("round %d: an answer %q, want inserted or conflict", round, o)
			}
		}
		if in != 1 {
			r.fatalf("round %d: %d corrections went in with one replacement: %v", round, in, got)
		}
	}
	n := int64(r.opts.Rounds)
	r.totalIs("one of each three replaced", t, decimalInt(24*r.opts.Rounds), 5*n, 3*n)
}

// Replacements that go from one feature to another and back at once: the totals
// and the buckets of both are taken in one order.
func crossedReplacements(r *run) {
	t := r.tenant("a")
	const workers = 4
	features := [...]string{"calls", "tokens"}
	of := func(id string, w int, quantity string) storage.Event {
		e := usage(t, id+decimalInt(w), quantity)
		e.Feature = features[w%2]
		return e
	}
	bucket := func(e *storage.Event) *storage.BucketKey {
		if !r.manifest.Has(storage.Buckets) {
			return nil
		}
		return &storage.BucketKey{Start: e.OccurredAt.UTC().Truncate(storage.BucketLength)}
	}
	for round := range r.opts.Rounds {
		id := decimalInt(round) + "-"
		for w := range workers {
			r.put(of("e"+id, w, "3"))
		}
		r.together(workers+1, func(w int) {
			if w == workers { // a batch of both, beside them
				all := units(of("m"+id, 1, "1"), of("n"+id, 0, "1"))
				for i := range all {
					all[i].Entries[0].Bucket = bucket(&all[i].Entries[0].Event)
				}
				if _, err := r.try(all, storage.Atomic); err != nil {
					r.errorf("round %d: record: %v", round, err)
				}
				return
			}
			e, by := of("e"+id, w, "3"), of("r"+id, w+1, "2")
			by.EventID = "r" + id + decimalInt(w)
			req := r.replacedBy(&e, "c"+id+decimalInt(w), by)
			req.Bucket, req.Replacement.Bucket = bucket(&e), bucket(&by)
			res, err := r.tryCorrect(req)
			if err != nil || res.Outcome != storage.Inserted {
				r.errorf("round %d: %s, %v; want inserted", round, text(res), err)
			}
		})
	}
	n := int64(r.opts.Rounds)
	for _, total := range r.totals(t) {
		r.same("total of "+total.Feature, []any{total.Quantity, total.Events, total.Count},
			[]any{dec(decimalInt(5 * r.opts.Rounds)), 7 * n, 3 * n})
	}
}
