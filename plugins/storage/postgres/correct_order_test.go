package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// inBucket is an entry of acme with a bucket of its own.
func inBucket(feature, id, quantity string) storage.Entry {
	e := tokens("acme", id, quantity)
	e.Feature = feature
	return storage.Entry{Event: e, Bucket: &storage.BucketKey{
		Start: e.OccurredAt.Truncate(storage.BucketLength), Dimensions: e.Dimensions,
	}}
}

// crossing replaces original by an event of the other feature.
func crossing(id string, original, by storage.Entry) storage.CorrectRequest {
	req := correcting(id, original.Event.EventID, original.Event.Quantity.String())
	req.Bucket, req.Replacement = original.Bucket, &by
	return req
}

// blocks reports when somebody waits for what a session holds. The limit is for
// a test that is wrong: the wait itself has no end.
func blocks(t testing.TB, a *Adapter, holder int32) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for waiting := false; !waiting; {
		must(t, a.pools[healthPool].QueryRow(t.Context(),
			"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", holder).Scan(&waiting))
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
}

// B35: whoever moves totals and buckets of two features takes the totals in the
// order of their keys, then the buckets in that order: a correction with its
// replacement as well as a batch. Somebody holds one row; the writer that waits
// for it must not hold what comes later, or those two can be a circle. Which
// rows are free is asked of the server, so that no timing is involved.
func TestTotalsThenBucketsInOneOrder(t *testing.T) {
	t.Parallel()
	const total = `SELECT FROM %s.fencepost_totals WHERE tenant_key = 'acme' AND feature = $1 FOR UPDATE NOWAIT`
	const bucket = `SELECT FROM %s.fencepost_buckets WHERE tenant_key = 'acme' AND feature = $1 FOR UPDATE NOWAIT`
	type row struct{ query, feature string }
	order := []row{{total, "calls"}, {total, "tokens"}, {bucket, "calls"}, {bucket, "tokens"}}
	for name, write := range map[string]func(context.Context, *Adapter) error{
		"tokens by calls": func(ctx context.Context, a *Adapter) error {
			_, err := a.RecordCorrection(ctx, crossing("c", inBucket("tokens", "e1", "3"), inBucket("calls", "r", "2")))
			return err
		},
		"calls by tokens": func(ctx context.Context, a *Adapter) error {
			_, err := a.RecordCorrection(ctx, crossing("c", inBucket("calls", "e2", "3"), inBucket("tokens", "r", "2")))
			return err
		},
		"a batch": func(ctx context.Context, a *Adapter) error {
			_, err := a.RecordEvents(ctx, storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{
				{Entries: []storage.Entry{inBucket("tokens", "n1", "1")}}, {Entries: []storage.Entry{inBucket("calls", "n2", "1")}},
			}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := open(t)
			record(t, a, storage.RecordRequest{Units: []storage.Unit{
				{Entries: []storage.Entry{inBucket("tokens", "e1", "3")}}, {Entries: []storage.Entry{inBucket("calls", "e2", "3")}},
			}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			hold := func(tx pgx.Tx, r row) error {
				tag, err := tx.Exec(ctx, fmt.Sprintf(r.query, a.target.schema), r.feature)
				if err == nil && tag.RowsAffected() != 1 {
					err = fmt.Errorf("%d rows", tag.RowsAffected())
				}
				return err
			}
			tx, err := a.pools[deliveryPool].Begin(ctx)
			must(t, err)
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
			var holder int32
			must(t, tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&holder))
			must(t, hold(tx, order[0]))
			done := make(chan error, 1)
			go func() { done <- write(ctx, a) }()
			blocks(t, a, holder)
			for _, r := range order[1:] {
				if err := hold(tx, r); err != nil {
					t.Errorf("%+v is taken before the total of calls: %v", r, err)
					cancel()
					<-done
					return
				}
			}
			must(t, tx.Commit(ctx))
			must(t, <-done)
			if n := a.reruns.Load(); n != 0 {
				t.Errorf("%d transactions were undone", n)
			}
		})
	}
}

// B35: corrections that cross between two features, beside batches of both, are
// not undone by the server for each other's sake, not once.
func TestCrossedCorrectionsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	a := open(t)
	const workers, each = 4, 10
	features := [...]string{"calls", "tokens"}
	for w := range workers {
		var units []storage.Unit
		for i := range each {
			units = append(units, storage.Unit{Entries: []storage.Entry{inBucket(features[w%2], fmt.Sprint("e", w, ".", i), "3")}})
		}
		record(t, a, storage.RecordRequest{Units: units})
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprint(w, ".", i)
				res, err := a.RecordCorrection(t.Context(), crossing("c"+id,
					inBucket(features[w%2], "e"+id, "3"), inBucket(features[1-w%2], "r"+id, "2")))
				if err != nil || res.Outcome != storage.Inserted {
					t.Errorf("%s: %+v, %v", id, res, err)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range each {
			res, err := a.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{
				{Entries: []storage.Entry{inBucket("tokens", fmt.Sprint("m", i), "1")}},
				{Entries: []storage.Entry{inBucket("calls", fmt.Sprint("n", i), "1")}},
			}})
			if err != nil || conflicts(res) {
				t.Errorf("batch %d: %+v, %v", i, res, err)
			}
		}
	})
	wg.Wait()
	if n := a.reruns.Load(); n != 0 {
		t.Errorf("%d transactions were undone for others", n)
	}
	wantTotals(t, a, "acme", "calls 50/70/30, tokens 50/70/30")
	page, err := a.LoadBuckets(t.Context(), storage.BucketQuery{
		Tenant: "acme", Feature: "calls", From: november, To: november.AddDate(0, 1, 0), Limit: 10,
	})
	must(t, err)
	if len(page.Buckets) != 1 || page.Buckets[0].Sum.String() != "50" || page.Buckets[0].Count != 30 || !page.Buckets[0].Reversed {
		t.Errorf("buckets %+v", page.Buckets)
	}
}
