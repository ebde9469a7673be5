package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func stream(t testing.TB, a *Adapter, q storage.StreamQuery) storage.EventPage {
	t.Helper()
	page, err := a.StreamEvents(t.Context(), q)
	must(t, err)
	return page
}

func idsOf(events []storage.Event) (ids []string) {
	for _, e := range events {
		ids = append(ids, e.EventID)
	}
	return ids
}

// B36: pages by the insertion identity, filtered or not.
func TestStreamEvents(t *testing.T) {
	t.Parallel()
	a := open(t)
	if page := stream(t, a, storage.StreamQuery{Limit: 10}); len(page.Events) != 0 || page.More || page.Next != 0 {
		t.Errorf("an empty store streams %+v", page)
	}
	for i := range 5 {
		e := tokens("acme", fmt.Sprint("e", i), "1")
		if i%2 == 1 {
			e.Tenant = "zeta"
		}
		record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e)}})
	}
	for name, test := range map[string]struct {
		q    storage.StreamQuery
		want []string
		more bool
		next int64
	}{
		"all":          {storage.StreamQuery{Limit: 5}, []string{"e0", "e1", "e2", "e3", "e4"}, false, 5},
		"page":         {storage.StreamQuery{Limit: 2, After: 1}, []string{"e1", "e2"}, true, 3},
		"tenant":       {storage.StreamQuery{Limit: 5, Tenant: "zeta"}, []string{"e1", "e3"}, false, 5},
		"tenant, page": {storage.StreamQuery{Limit: 1, Tenant: "zeta"}, []string{"e1"}, true, 2},
		"feature":      {storage.StreamQuery{Limit: 5, Feature: "other"}, nil, false, 5},
		"end":          {storage.StreamQuery{Limit: 5, After: 5}, nil, false, 5},
	} {
		page := stream(t, a, test.q)
		if got := idsOf(page.Events); !slices.Equal(got, test.want) || page.More != test.more || page.Next != test.next || page.Events == nil {
			t.Errorf("%s: %v, more %t, next %d; want %+v", name, got, page.More, page.Next, test)
		}
	}
	for _, limit := range []int{0, 1001} {
		_, err := a.StreamEvents(t.Context(), storage.StreamQuery{Limit: limit})
		wantFailure(t, err, sdk.TagInvalid, "")
	}
}

// I13, B-T14: a lower seq that commits later is not passed over, neither by
// one page nor by a reader that comes back.
func TestStreamWaitsForLowerSeq(t *testing.T) {
	t.Parallel()
	a := open(t)
	slow, err := a.pools[deliveryPool].Begin(t.Context()) // of another tenant: totals are locked until it ends
	must(t, err)
	defer func() { _ = slow.Rollback(context.WithoutCancel(t.Context())) }()
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "before", "1"))}})
	record(t, a.WithTx(slow), storage.RecordRequest{Units: []storage.Unit{plain(tokens("zeta", "slow", "1"))}})
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "fast", "1"))}})
	if seq := sqlOne[int64](t, a, "SELECT seq FROM {schema}.fencepost_events WHERE event_id = 'fast'"); seq != 3 {
		t.Fatalf("fast has seq %d: the test shows nothing", seq)
	}
	var seen []string
	var cursor int64
	read := func() {
		page := stream(t, a, storage.StreamQuery{Limit: 100, After: cursor})
		seen = append(seen, idsOf(page.Events)...)
		cursor = page.Next
	}
	for range 3 {
		read()
		if slices.Contains(seen, "fast") {
			t.Fatalf("streamed %v while a lower seq is in flight", seen)
		}
	}
	must(t, slow.Commit(t.Context()))
	read()
	if want := []string{"before", "slow", "fast"}; !slices.Equal(seen, want) {
		t.Errorf("streamed %v, want %v", seen, want)
	}
}

// I13: a reader beside many writers sees every event once, in order.
func TestStreamBesideWriters(t *testing.T) {
	t.Parallel()
	a := open(t)
	const writers, rounds, batch = 3, 40, 5
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for r := range rounds {
				var units []storage.Unit
				for i := range batch {
					units = append(units, plain(tokens(fmt.Sprint("t", w), fmt.Sprintf("e%d-%d", r, i), "1")))
				}
				if r%4 == 0 { // a record that is undone leaves a gap
					_ = pgx.BeginFunc(t.Context(), a.pools[deliveryPool], func(tx pgx.Tx) error {
						_, err := a.WithTx(tx).RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{plain(tokens("gap", "g", "1"))}})
						if err != nil {
							t.Error(err)
						}
						return pgx.ErrTxClosed // any error
					})
				}
				if _, err := a.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Atomic, Units: units}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	seen := map[string]bool{}
	var cursor int64
	for last := false; ; {
		page := stream(t, a, storage.StreamQuery{Limit: 7, After: cursor})
		for _, e := range page.Events {
			if e.Seq <= cursor || seen[e.Tenant+e.EventID] {
				t.Fatalf("seq %d after %d, seen %t", e.Seq, cursor, seen[e.Tenant+e.EventID])
			}
			cursor, seen[e.Tenant+e.EventID] = e.Seq, true
		}
		if last && len(page.Events) == 0 {
			break
		}
		select {
		case <-done:
			last = true
		default:
		}
	}
	if len(seen) != writers*rounds*batch {
		t.Errorf("streamed %d events, want %d", len(seen), writers*rounds*batch)
	}
}

// sampled is what a stream asks for before it reads events.
func sampled(t testing.TB, a *Adapter) sample {
	t.Helper()
	now := a.settled.begin()
	now.seq = sqlOne[int64](t, a, a.texts[qLastSeq])
	rows, err := a.pools[workPool].Query(t.Context(), a.texts[qRecording], int64(lockClassRoutes), int64(uint32(a.target.scope())))
	must(t, err)
	now.holders, err = pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return now
}

// inFlight records in a transaction that is left open.
func inFlight(t testing.TB, a *Adapter, id string) pgx.Tx {
	t.Helper()
	tx, err := a.pools[deliveryPool].Begin(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	record(t, a.WithTx(tx), storage.RecordRequest{Units: []storage.Unit{plain(tokens("zeta", id, "1"))}})
	return tx
}

// I13: the sample of a reader that is overtaken does not name who came since,
// and says nothing about whom a newer sample waits for.
func TestStreamSamplesOutOfOrder(t *testing.T) {
	t.Parallel()
	a := open(t)
	first := inFlight(t, a, "first")
	older := sampled(t, a) // of a reader whose answer is still on its way
	must(t, first.Commit(t.Context()))
	slow := inFlight(t, a, "slow")
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "fast", "1"))}})
	newer := sampled(t, a)
	if len(older.holders) != 1 || len(newer.holders) != 1 || older.holders[0] == newer.holders[0] {
		t.Fatalf("samples %+v and %+v: the test shows nothing", older, newer)
	}
	a.settled.observe(newer)
	a.settled.observe(older)
	page := stream(t, a, storage.StreamQuery{Limit: 10})
	if got := idsOf(page.Events); slices.Contains(got, "fast") {
		t.Errorf("streamed %v while a lower seq is in flight", got)
	}
	must(t, slow.Commit(t.Context()))
	page = stream(t, a, storage.StreamQuery{Limit: 10})
	if got, want := idsOf(page.Events), []string{"first", "slow", "fast"}; !slices.Equal(got, want) {
		t.Errorf("streamed %v, want %v", got, want)
	}
}

// I13: what another reader found settled meanwhile was in flight when this
// one's events were read.
func TestStreamIsNotCutByALaterHorizon(t *testing.T) {
	t.Parallel()
	a := open(t)
	slow := inFlight(t, a, "slow")
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "fast", "1"))}})
	older := sampled(t, a) // and then its events: fast is there, slow is not
	must(t, slow.Commit(t.Context()))
	if got := a.settled.observe(sampled(t, a)); got != 2 {
		t.Fatalf("settled up to %d, want 2: the test shows nothing", got)
	}
	if got := a.settled.observe(older); got != 0 {
		t.Errorf("a page without slow is taken for complete up to %d", got)
	}
}

// I13: what was drawn and given up is not settled: after a crash the server may
// draw it again.
func TestStreamDoesNotSettleWhatNobodyCommitted(t *testing.T) {
	t.Parallel()
	a := open(t)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "1"))}})
	err := pgx.BeginFunc(t.Context(), a.pools[deliveryPool], func(tx pgx.Tx) error {
		record(t, a.WithTx(tx), storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "gone", "1"))}})
		return pgx.ErrTxClosed // any error
	})
	if !errors.Is(err, pgx.ErrTxClosed) {
		t.Fatal(err)
	}
	if page := stream(t, a, storage.StreamQuery{Limit: 10, Tenant: "zeta"}); page.Next != 1 {
		t.Errorf("scanned up to %d, want 1", page.Next)
	}
}
