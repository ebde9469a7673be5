package remote_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/remote"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
)

// of makes a lie of an operation.
func of[T any](name string, told func(*testing.T) []byte, call func(context.Context, *remote.Adapter) (T, error)) lie {
	return lie{name, told, func(t *testing.T, a *remote.Adapter) error {
		t.Helper()
		_, err := call(t.Context(), a)
		return err
	}}
}

// Each operation whose check the other lies do not reach has one here.
func TestLiesOfEach(t *testing.T) {
	t.Parallel()
	for _, l := range slices.Concat(lowlyLies(), loftyLies(), snapshotLies()) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			if err := l.ask(t, liar(t, l.told(t))); !refused(err) {
				t.Errorf("taken: %v", err)
			}
		})
	}
}

func lowlyLies() []lie {
	key := storage.EventKey{Tenant: "t", EventID: "a"}
	type A = *remote.Adapter
	return []lie{
		of("receipt", tell(storagev1.EncodeReceipt, storage.Receipt{Tenant: "u"}), func(ctx context.Context, a A) (storage.Receipt, error) {
			return a.LoadReceipt(ctx, storage.ReceiptKey{Tenant: "t"})
		}),
		of("correctable", tell(storagev1.EncodeCorrectable, storage.Correctable{Original: storage.Event{Tenant: "t", EventID: "b"}}), func(ctx context.Context, a A) (storage.Correctable, error) {
			return a.LoadCorrectable(ctx, key)
		}),
		of("corrections", tell(storagev1.EncodeEventPage, storage.EventPage{Events: []storage.Event{{Tenant: "t", Seq: 1, Kind: storage.Correction, OriginalEventID: "b"}}, Next: 1}), func(ctx context.Context, a A) (storage.EventPage, error) {
			return a.ListCorrections(ctx, key, 0, 9)
		}),
		of("aggregate of buckets", tell(storagev1.EncodeAggregates, storage.Aggregates{Rows: []storage.AggregateRow{{Window: 7}}}), func(ctx context.Context, a A) (storage.Aggregates, error) {
			return a.AggregateBuckets(ctx, storage.AggregateQuery{Limit: 9, Edges: []time.Time{noon, noon}})
		}),
		of("buckets", tell(storagev1.EncodeBucketPage, storage.BucketPage{Buckets: []storage.Bucket{{Tenant: "u", Start: noon}}}), func(ctx context.Context, a A) (storage.BucketPage, error) {
			return a.LoadBuckets(ctx, storage.BucketQuery{Tenant: "t", From: noon, To: noon.Add(time.Hour), Limit: 9})
		}),
		of("seal", tell(storagev1.EncodeSealAsAnswer, storage.Seal{Tenant: "u"}), func(ctx context.Context, a A) (storage.Seal, error) {
			return a.SealBuckets(ctx, storage.Seal{Tenant: "t"})
		}),
		of("subscription", tell(storagev1.EncodeSubscriptionAsAnswer, storage.Subscription{Tenant: "t", Plan: "other", Revision: 1}), func(ctx context.Context, a A) (storage.Subscription, error) {
			return a.PutSubscription(ctx, storage.Subscription{Tenant: "t"})
		}),
		of("subscriptions", tell(storagev1.EncodeListSubscriptionsAnswer, storagev1.ListSubscriptionsAnswer{Result: []storage.Subscription{{Tenant: "a"}}}), func(ctx context.Context, a A) ([]storage.Subscription, error) {
			return a.ListSubscriptions(ctx, "b", 9)
		}),
		of("counters", tell(storagev1.EncodeCounterPage, storage.CounterPage{More: true}), func(ctx context.Context, a A) (storage.CounterPage, error) {
			return a.StreamCounters(ctx, storage.CounterQuery{Limit: 9})
		}),
		of("history", tell(storagev1.EncodeHistoryPoint, storage.HistoryPoint{Value: decimal.One}), func(ctx context.Context, a A) (storage.HistoryPoint, error) {
			return a.LoadHistory(ctx, storage.HistoryKey{Tenant: "t"})
		}),
		of("history range", tell(storagev1.EncodeLoadHistoryRangeAnswer, storagev1.LoadHistoryRangeAnswer{Result: []storage.HistoryPoint{{}}}), func(ctx context.Context, a A) ([]storage.HistoryPoint, error) {
			return a.LoadHistoryRange(ctx, storage.HistoryQuery{Tenant: "t", Limit: 9})
		}),
		of("bounds", tell(storagev1.EncodeBoundPage, storage.BoundPage{More: true}), func(ctx context.Context, a A) (storage.BoundPage, error) {
			return a.ReportBounds(ctx, storage.BoundQuery{Limit: 9})
		}),
		of("bounds by key", tell(storagev1.EncodeBoundPage, storage.BoundPage{Bounds: []storage.Bound{{}}}), func(ctx context.Context, a A) (storage.BoundPage, error) {
			return a.ReportBounds(ctx, storage.BoundQuery{Keys: []storage.BoundKey{{Tenant: "t"}}})
		}),
		of("settled window", tell(storagev1.EncodeWindowResult, storage.WindowResult{Changed: true}), func(ctx context.Context, a A) (storage.WindowResult, error) {
			return a.SettleWindow(ctx, storage.WindowSettle{Key: storage.BoundKey{Tenant: "t"}})
		}),
		of("cutovers", tell(storagev1.EncodeCutoversAnswer, storagev1.CutoversAnswer{Result: []storage.Cutover{{Tenant: "a"}}}), func(ctx context.Context, a A) ([]storage.Cutover, error) {
			return a.Cutovers(ctx, storage.Cutover{Tenant: "b"}, 9)
		}),
	}
}

func loftyLies() []lie {
	type A = *remote.Adapter
	return []lie{
		of("beat", tell(storagev1.EncodeHeartbeatResult, storage.HeartbeatResult{}), func(ctx context.Context, a A) (storage.HeartbeatResult, error) {
			return a.Beat(ctx, storage.Heartbeat{})
		}),
		of("hosts", tell(storagev1.EncodeHostsAnswer, storagev1.HostsAnswer{Result: []storage.HostRow{{Host: "h"}, {Host: "h"}}}), func(ctx context.Context, a A) ([]storage.HostRow, error) {
			return a.Hosts(ctx, time.Hour)
		}),
		of("clock samples", tell(storagev1.EncodeClockSamplesAnswer, storagev1.ClockSamplesAnswer{Result: []storage.ClockSample{{}}}), func(ctx context.Context, a A) ([]storage.ClockSample, error) {
			return a.ClockSamples(ctx)
		}),
		of("stats", tell(storagev1.EncodeOutboxStats, storage.OutboxStats{Counts: []storage.ItemCount{{Items: -1}}}), func(ctx context.Context, a A) (storage.OutboxStats, error) {
			return a.OutboxStats(ctx)
		}),
		of("actions", tell(storagev1.EncodeActionPage, storage.ActionPage{More: true}), func(ctx context.Context, a A) (storage.ActionPage, error) {
			return a.ListActions(ctx, storage.ActionQuery{Limit: 9})
		}),
		of("superseded", tell(storagev1.EncodeSupersedeAnswer, storagev1.SupersedeAnswer{Result: []storage.SupersedeResult{{Rows: 1}}}), func(ctx context.Context, a A) ([]storage.SupersedeResult, error) {
			return a.Supersede(ctx, []storage.Supersession{{}})
		}),
		of("restored", tell(storagev1.EncodeMarkRestoredAnswer, storagev1.MarkRestoredAnswer{Result: -1}), func(ctx context.Context, a A) (int64, error) {
			return a.MarkRestored(ctx, storage.RestoreRequest{})
		}),
		of("changed routes", tell(storagev1.EncodeRouteSet, storage.RouteSet{Revision: 1}), func(ctx context.Context, a A) (storage.RouteSet, error) {
			return a.ChangeRoutes(ctx, storage.RouteChange{Revision: 2})
		}),
		of("pruned", tell(storagev1.EncodePruneResult, storage.PruneResult{Removed: -1}), func(ctx context.Context, a A) (storage.PruneResult, error) {
			return a.Prune(ctx, storage.PruneRequest{})
		}),
		of("begun", tell(storagev1.EncodeProjectionState, storage.ProjectionState{}), func(ctx context.Context, a A) (storage.ProjectionState, error) {
			return a.BeginProjection(ctx, "")
		}),
		of("state", tell(storagev1.EncodeProjectionState, storage.ProjectionState{Active: -1}), func(ctx context.Context, a A) (storage.ProjectionState, error) {
			return a.ProjectionState(ctx)
		}),
		of("paused", tell(storagev1.EncodeProjectionState, storage.ProjectionState{Building: 2}), func(ctx context.Context, a A) (storage.ProjectionState, error) {
			return a.PauseProjection(ctx, 2, true)
		}),
		of("pruned generation", tell(storagev1.EncodePruneProjectionAnswer, storagev1.PruneProjectionAnswer{Result: 10}), func(ctx context.Context, a A) (int, error) {
			return a.PruneProjection(ctx, 2, 9)
		}),
		of("differences", tell(storagev1.EncodeProjectionDiff, storage.ProjectionDiff{Differences: []storage.TotalDifference{{}}}), func(ctx context.Context, a A) (storage.ProjectionDiff, error) {
			return a.CompareProjections(ctx, 1, 2, 9)
		}),
		of("sums", tell(storagev1.EncodeSumPage, storage.SumPage{More: true}), func(ctx context.Context, a A) (storage.SumPage, error) {
			return a.SumItems(ctx, storage.SumQuery{Limit: 9})
		}),
		of("reconciliations", tell(storagev1.EncodeReconciliationsAnswer, storagev1.ReconciliationsAnswer{Result: []storage.Reconciliation{{ID: "b"}}}), func(ctx context.Context, a A) ([]storage.Reconciliation, error) {
			return a.Reconciliations(ctx, storage.ReconciliationQuery{ID: "a", Limit: 9})
		}),
		of("lines", tell(storagev1.EncodeReconciliationLinesAnswer, storagev1.ReconciliationLinesAnswer{Result: []storage.ReconciliationLine{{Line: 3}}}), func(ctx context.Context, a A) ([]storage.ReconciliationLine, error) {
			return a.ReconciliationLines(ctx, "r", 3, 9)
		}),
	}
}

func snapshotLies() []lie {
	type A = *remote.Adapter
	honest := storage.Snapshot{Version: 1, ColdUntil: noon, Credited: []storage.MeterCredit{{Meter: "m"}}, Events: []string{"a"}}
	ask := func(ctx context.Context, a A) (storage.Snapshot, error) {
		return a.Snapshot(ctx, storage.SnapshotQuery{Tenant: "t", Meters: []string{"m"}, Events: []string{"a", "b"}, ColdFloor: noon})
	}
	lied := func(name string, change func(*storage.Snapshot)) lie {
		s := honest
		change(&s)
		return of(name, tell(storagev1.EncodeSnapshot, s), ask)
	}
	return []lie{
		lied("snapshot without a version", func(s *storage.Snapshot) { s.Version = 0 }),
		lied("snapshot within a bucket", func(s *storage.Snapshot) { s.ColdUntil = noon.Add(time.Second) }),
		lied("snapshot below the floor", func(s *storage.Snapshot) { s.ColdUntil = noon.Add(-time.Hour) }),
		lied("credits of another meter", func(s *storage.Snapshot) { s.Credited = []storage.MeterCredit{{Meter: "n"}} }),
		lied("a meter without credits", func(s *storage.Snapshot) { s.Credited = nil }),
		lied("an event nobody asked for", func(s *storage.Snapshot) { s.Events = []string{"c"} }),
		lied("an event twice", func(s *storage.Snapshot) { s.Events = []string{"a", "a"} }),
		lied("a receipt nobody asked for", func(s *storage.Snapshot) { s.Receipts = []string{"a"} }),
		of("credit", tell(storagev1.EncodeCreditAsAnswer, storage.Credit{Tenant: "t", Meter: "m", ID: "x", Kind: storage.CreditReset, Seq: 1}), func(ctx context.Context, a A) (storage.Credit, error) {
			return a.AddCredit(ctx, storage.Credit{Tenant: "t", Meter: "m", ID: "x", Kind: storage.CreditGrant})
		}),
		of("credits", tell(storagev1.EncodeCreditPage, storage.CreditPage{Credits: []storage.Credit{{Tenant: "u", Kind: storage.CreditGrant, Seq: 1}}, Next: 1}), func(ctx context.Context, a A) (storage.CreditPage, error) {
			return a.Credits(ctx, storage.CreditQuery{Tenant: "t", Limit: 9})
		}),
		of("seals of others", tell(storagev1.EncodeLastSealsAnswer, storagev1.LastSealsAnswer{Result: []storage.Seal{{Tenant: "u", Feature: "f"}}}), func(ctx context.Context, a A) ([]storage.Seal, error) {
			return a.LastSeals(ctx, "f", []string{"t"})
		}),
		of("credits again", tell(storagev1.EncodeCreditPage, storage.CreditPage{Credits: []storage.Credit{{Tenant: "t", Kind: storage.CreditGrant, Seq: 5}}, Next: 5}), func(ctx context.Context, a A) (storage.CreditPage, error) {
			return a.Credits(ctx, storage.CreditQuery{Tenant: "t", After: 5, Limit: 9})
		}),
	}
}
