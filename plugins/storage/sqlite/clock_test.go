package sqlite_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// S12: the clock of a store in SQLite is the process's, and is read once in a
// transaction: what one call records has one time, and the next call a later one.
func TestClockIsReadOncePerTransaction(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	st, err := sqlite.Open(t.Context(), sqlite.Config{
		Path: filepath.Join(t.TempDir(), "fencepost.db"), Migrate: true,
		Now: func() time.Time { return began.Add(time.Duration(reads.Add(1)) * time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	var last time.Time
	for _, ids := range [][]string{{"a", "b", "c"}, {"d", "e"}} {
		before := reads.Load()
		req := storage.RecordRequest{Mode: storage.Atomic, Subscriptions: []storage.SubscriptionRevision{{Tenant: "acme"}}}
		for _, id := range ids {
			req.Units = append(req.Units, storage.Unit{Entries: []storage.Entry{{Event: storage.Event{
				Tenant: "acme", EventID: id, Feature: "tokens", Kind: storage.Usage, OccurredAt: began, PeriodStart: began,
				PeriodEnd: began.AddDate(0, 1, 0), PeriodSource: storage.FromCalendar, DedupeHash: storage.Hash{1}, PayloadHash: storage.Hash{1},
			}}}})
		}
		if res, err := st.RecordEvents(t.Context(), req); err != nil || res.Stale != nil {
			t.Fatalf("%+v, %v", res, err)
		}
		if n := reads.Load() - before; n != 1 {
			t.Errorf("the clock was read %d times in a call", n)
		}
		at := began.Add(time.Duration(reads.Load()) * time.Hour)
		for _, id := range ids {
			ev, err := st.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: id})
			if err != nil || !ev.RecordedAt.Equal(at) || !ev.RecordedAt.After(last) {
				t.Errorf("%s was recorded at %v, want %v: %v", id, ev.RecordedAt, at, err)
			}
		}
		last = at
	}
}
