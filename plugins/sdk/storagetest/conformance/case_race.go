package conformance

import (
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func recordRaceCases() []Case {
	durable := caps(storage.DurableEvents)
	return []Case{
		define("race/one-id-two-contents", "B15 B17 B18 B19", durable, oneIDTwoContents),
		define("race/one-id-one-content", "B16 B20", durable, oneIDOneContent),
		define("race/totals-add-up", "B20 B41", durable, totalsAddUp),
		define("race/opposite-order-batches", "B35", durable, oppositeOrder),
		define("race/opposite-order-totals", "B35", durable, oppositeTotals),
	}
}

// Two records of one id with different content at the same time: exactly one
// is in, and the other one is told that it conflicts. An adapter that takes a
// row which it skipped and cannot see for a duplicate loses the second fact
// and says that it has it.
func oneIDTwoContents(r *run) {
	t := r.tenant("a")
	sum := dec("0")
	for round := range r.opts.Rounds {
		id := "e" + decimalInt(round)
		got := make([]storage.Outcome, 4)
		r.together(len(got), func(i int) {
			res, err := r.try(units(usage(t, id, decimalInt(i+1))), storage.Each)
			if err != nil {
				r.errorf("record: %v", err)
				return
			}
			got[i] = res.Units[0].Outcome
		})
		stored := r.load(t, id).Quantity
		sum = sum.Add(stored)
		for i, o := range got {
			want := storage.Conflict
			if stored.Equal(dec(decimalInt(i + 1))) {
				want = storage.Inserted
			}
			if o != want {
				r.fatalf("round %d: content %d is answered %q, want %q; stored is %s; all: %v", round, i+1, o, want, stored, got)
			}
		}
	}
	n := int64(r.opts.Rounds)
	r.totalIs("one content of each", t, sum.String(), n, n)
}

func oneIDOneContent(r *run) {
	t := r.tenant("a")
	for round := range r.opts.Rounds {
		got := make([]storage.Outcome, 8)
		r.together(len(got), func(i int) {
			res, err := r.try(units(usage(t, "e"+decimalInt(round), "1")), storage.Atomic)
			if err != nil {
				r.errorf("record: %v", err)
				return
			}
			got[i] = res.Units[0].Outcome
		})
		slices.Sort(got)
		want := slices.Repeat([]storage.Outcome{storage.Duplicate}, 7)
		r.same("outcomes", got, append(want, storage.Inserted))
	}
	n := int64(r.opts.Rounds)
	r.totalIs("each counted once", t, decimalInt(r.opts.Rounds), n, n)
}

func totalsAddUp(r *run) {
	t := r.tenant("a")
	const workers = 8
	r.together(workers, func(w int) {
		for i := range r.opts.Rounds {
			if _, err := r.try(units(usage(t, decimalInt(w)+"-"+decimalInt(i), "0.5")), storage.Atomic); err != nil {
				r.errorf("record: %v", err)
				return
			}
		}
	})
	n := int64(workers * r.opts.Rounds)
	r.totalIs("concurrent records", t, dec(decimalInt(int(n)*5)+"e-1").String(), n, n)
}

// A-T20, B35: batches that touch the same rows in opposite order must not deadlock: an
// adapter sorts before each statement that touches more than one row. All
// batches of a round hold the same ids, so all but one wait for each other.
func oppositeOrder(r *run) {
	t := r.tenant("a")
	const size, workers = 250, 6
	rounds := max(r.opts.Rounds/3, 4) // they are large, so that they overlap
	for round := range rounds {
		r.together(workers, func(w int) {
			events := make([]storage.Event, size)
			for i := range events {
				events[i] = usage(t, decimalInt(round)+"-"+decimalInt(i), "1")
			}
			if w%2 == 1 {
				slices.Reverse(events)
			}
			if _, err := r.try(units(events...), storage.Atomic); err != nil {
				r.errorf("round %d: %v", round, err)
			}
		})
	}
	n := int64(size * rounds)
	r.totalIs("each event once", t, decimalInt(int(n)), n, n)
}

// Here the ids differ and the totals are the same.
func oppositeTotals(r *run) {
	t := r.tenant("a")
	const features, workers = 24, 4
	for round := range r.opts.Rounds {
		r.together(workers, func(w int) {
			events := make([]storage.Event, features)
			for i := range events {
				// The order of ids is the opposite of the order of features
				// for every other worker.
				f := i
				if w%2 == 1 {
					f = features - 1 - i
				}
				events[i] = usage(t, decimalInt(1000+i)+"-"+decimalInt(w)+"-"+decimalInt(round), "1")
				events[i].Feature = "f" + decimalInt(100+f)
			}
			if _, err := r.try(units(events...), storage.Atomic); err != nil {
				r.errorf("round %d: %v", round, err)
			}
		})
	}
	all := r.totals(t)
	r.same("totals", len(all), features)
	for _, total := range all {
		r.same("total of "+total.Feature, total.Quantity, dec(decimalInt(workers*r.opts.Rounds)))
	}
}

func streamCases() []Case {
	needs := caps(storage.DurableEvents, storage.EventStreaming)
	return []Case{
		define("stream/by-insertion-order", "B36", needs, streamOrder),
		define("stream/pages-and-filters", "B36", needs, streamPages),
		define("stream/misses-nothing-while-others-write", "B36 B-T14", needs, streamMissesNothing),
	}
}

// stream reads everything after a cursor, page by page.
func (r *run) stream(q storage.StreamQuery) ([]storage.Event, int64) {
	var all []storage.Event
	for {
		page, err := r.streamer().StreamEvents(r.ctx, q)
		r.must("stream", err)
		if len(page.Events) > q.Limit {
			r.fatalf("a page of %d, limit %d", len(page.Events), q.Limit)
		}
		for _, e := range page.Events {
			if e.Seq <= q.After {
				r.fatalf("seq %d after the cursor %d", e.Seq, q.After)
			}
			q.After = e.Seq
		}
		all = append(all, page.Events...)
		if page.Next < q.After {
			r.fatalf("next is %d, and the page ends at %d", page.Next, q.After)
		}
		q.After = page.Next
		if !page.More {
			return all, q.After
		}
		if len(page.Events) == 0 && page.Next == q.After && page.More {
			continue // a slice of other tenants' events
		}
	}
}

func ids(events []storage.Event) []string {
	all := make([]string, len(events))
	for i := range events {
		all[i] = events[i].EventID
	}
	return all
}

// Ids and times fall while the insertion order rises.
func streamOrder(r *run) {
	t := r.tenant("a")
	var want []string
	for i := range 12 {
		e := usage(t, "id-"+decimalInt(99-i), "1")
		e.OccurredAt = e.OccurredAt.Add(-time.Duration(i) * time.Hour)
		e.Dimensions = map[string]string{"k": "v"}
		r.put(e)
		want = append(want, e.EventID)
	}
	for _, limit := range []int{1, 5, 1000} {
		got, _ := r.stream(storage.StreamQuery{Tenant: t, Limit: limit})
		r.same("ids in pages of "+decimalInt(limit), ids(got), want)
		for _, e := range got {
			r.same("the event as loaded", e, r.load(t, e.EventID))
		}
	}
}

func streamPages(r *run) {
	a, b := r.tenant("a"), r.tenant("b")
	var mid int64
	for i := range 9 {
		e, f := usage(a, decimalInt(i), "1"), usage(b, decimalInt(i), "1")
		if i%3 == 0 {
			e.Feature = "calls"
		}
		res := r.put(e)
		r.put(f)
		if i == 4 {
			mid = res[0].Seq
		}
	}
	got, end := r.stream(storage.StreamQuery{Tenant: a, Limit: 2})
	r.same("one tenant", len(got), 9)
	got, _ = r.stream(storage.StreamQuery{Tenant: a, Feature: "calls", Limit: 2})
	r.same("one feature", ids(got), []string{"0", "3", "6"})
	got, _ = r.stream(storage.StreamQuery{Tenant: a, After: mid, Limit: 1000})
	r.same("after a cursor", ids(got), []string{"5", "6", "7", "8"})
	page, err := r.streamer().StreamEvents(r.ctx, storage.StreamQuery{Tenant: a, After: end, Limit: 10})
	r.must("stream", err)
	if len(page.Events) != 0 || page.More || page.Next < end {
		r.errorf("past the end: %s", text(page))
	}
}

// A reader that goes on from its cursor while transactions commit in any order
// sees every event once. Whoever streams what is visible by seq skips the
// event whose transaction began first and ended last.
func streamMissesNothing(r *run) {
	t := r.tenant("a")
	const workers = 6
	_, cursor := r.stream(storage.StreamQuery{Tenant: t, Limit: 1000})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.together(workers, func(w int) {
			for i := range 2 * r.opts.Rounds {
				// Transactions of very different length overlap.
				events := make([]storage.Event, 1+(w*i)%40)
				for j := range events {
					events[j] = usage(t, decimalInt(w)+"-"+decimalInt(i)+"-"+decimalInt(j), "1")
				}
				if _, err := r.try(units(events...), storage.Atomic); err != nil {
					r.errorf("record: %v", err)
					return
				}
			}
		})
	}()
	seen := map[string]bool{}
	read := func() {
		var got []storage.Event
		got, cursor = r.stream(storage.StreamQuery{Tenant: t, After: cursor, Limit: 7})
		for _, e := range got {
			if seen[e.EventID] {
				r.fatalf("event %s is streamed twice", e.EventID)
			}
			seen[e.EventID] = true
		}
	}
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		default:
		}
		read()
	}
	want := r.total(t).Events
	r.until("the stream reaches its end", func() bool { read(); return int64(len(seen)) >= want || r.passed(t, cursor, want) })
	if int64(len(seen)) != want {
		r.errorf("the reader saw %d events of %d", len(seen), want)
	}
}

// passed reports whether a cursor is at or past every one of a tenant's n
// events: what was not seen by then is never seen.
func (r *run) passed(tenant string, cursor, n int64) bool {
	all, _ := r.stream(storage.StreamQuery{Tenant: tenant, Limit: 1000})
	return int64(len(all)) == n && cursor >= all[len(all)-1].Seq
}
