//go:build unix

package remote_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// batch is a request of 1000 events with dimensions and one item each.
func batch(n int) storage.RecordRequest {
	req := storage.RecordRequest{Mode: storage.Each}
	for i := range 1000 {
		id := fmt.Sprintf("event-%d-%d", n, i)
		req.Units = append(req.Units, storage.Unit{Entries: []storage.Entry{{
			Event: storage.Event{
				Tenant: fmt.Sprintf("tenant-%d", i%50), EventID: id, Feature: "tokens", Quantity: decimal.MustParse("12.5"), Kind: storage.Usage,
				OccurredAt: noon, PeriodStart: noon.Add(-12 * time.Hour), PeriodEnd: noon.Add(12 * time.Hour), PeriodSource: storage.FromCalendar,
				Dimensions: map[string]string{"model": "large", "region": "eu-west-1"}, PayloadHash: storage.Hash{1, byte(i)}, DedupeHash: storage.Hash{2, byte(i)},
			},
			Items: []storage.NewItem{{
				Identity: storage.Identity{
					Tenant: fmt.Sprintf("tenant-%d", i%50), SubjectKind: storage.SubjectEvent, SubjectRef: id, Exporter: "stripe", Mode: "test", MappingVersion: "v1",
				},
				Digest:     storage.Hash{byte(n), byte(n >> 8), byte(i), byte(i >> 8)},
				SubjectKey: storage.Hash{1, byte(n), byte(n >> 8), byte(i), byte(i >> 8)},
				RouteID:    1, Customer: "cus_123", AttemptBudget: 20,
			}},
		}}})
	}
	return req
}

// BenchmarkCodec is what one side does to a request of 1000 events.
func BenchmarkCodec(b *testing.B) {
	req := batch(0)
	data, err := storagev1.EncodeRecordRequest(&req)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := storagev1.EncodeRecordRequest(&req); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := storagev1.DecodeRecordRequest(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRecord records batches of 1000 events in SQLite, through the wire and
// without it (W2). CPU is that of this process: on a busy machine the clock says
// little.
func BenchmarkRecord(b *testing.B) {
	for _, way := range []string{"direct", "remote"} {
		b.Run(way, func(b *testing.B) {
			st, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "usage.db"), Migrate: true})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = st.Close() }()
			if way == "direct" {
				record(b, st)
			} else {
				record(b, open(b, carryAdapter(st)))
			}
		})
	}
}

func record(b *testing.B, store storage.EventStore) {
	b.Helper()
	b.ReportAllocs()
	var spent time.Duration
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		req := batch(n)
		for i := range req.Units {
			req.Units[i].Entries[0].Items = nil // they would need a route
		}
		before := processor(b)
		b.StartTimer()
		res, err := store.RecordEvents(b.Context(), req)
		if err != nil || res.Stale != nil {
			b.Fatal(err, res.Stale)
		}
		spent += processor(b) - before
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N)/1000, "cpu-µs/event")
}

// processor is the time that this process has used.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
