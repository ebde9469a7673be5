package sqlite

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// The statements that run once per item or per poll, and the way each must
// take whatever the tables hold: a scan that is harmless today stops the
// outbox at a million rows.
func TestPlans(t *testing.T) {
	t.Parallel()
	wants := map[query]string{
		qClaimPending:         "SEARCH fencepost_outbox_state USING INDEX fencepost_outbox_state_pending (route=? AND next_attempt_at>? AND next_attempt_at<?)",
		qClaimExpired:         "SEARCH fencepost_outbox_state USING INDEX fencepost_outbox_state_leased (route=? AND lease_expires_at>? AND lease_expires_at<?)",
		qClaimSerialHeld:      "SEARCH fencepost_outbox_state USING COVERING INDEX fencepost_outbox_state_serial (serial_key=? AND lease_expires_at>?)",
		qClaimRow:             "SEARCH s USING INTEGER PRIMARY KEY (rowid=?) | SEARCH i USING INTEGER PRIMARY KEY (rowid=?) | SEARCH e USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
		qClaimLease:           "SEARCH fencepost_outbox_state USING INTEGER PRIMARY KEY (rowid=?)",
		qClaimExhaust:         "SEARCH fencepost_outbox_state USING INTEGER PRIMARY KEY (rowid=?)",
		qMove:                 "SEARCH fencepost_outbox_state USING INTEGER PRIMARY KEY (rowid=?)",
		qMoveFull:             "SEARCH fencepost_outbox_state USING INTEGER PRIMARY KEY (rowid=?) | SCALAR SUBQUERY 1 | SEARCH i USING INTEGER PRIMARY KEY (rowid=?) | SCALAR SUBQUERY 2 | SEARCH i USING INTEGER PRIMARY KEY (rowid=?)",
		qDependents:           "SEARCH i USING COVERING INDEX fencepost_outbox_items_dependent (depends_on=?) | SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
		qDependency:           "SEARCH fencepost_outbox_state USING INTEGER PRIMARY KEY (rowid=?)",
		qDependentMove:        "SEARCH fencepost_outbox_state USING INTEGER PRIMARY KEY (rowid=?)",
		qOriginal:             "SEARCH s USING INTEGER PRIMARY KEY (rowid=?) | SEARCH i USING INTEGER PRIMARY KEY (rowid=?) | SCALAR SUBQUERY 1 | SEARCH d USING COVERING INDEX fencepost_outbox_items_dependent (depends_on=?) | SEARCH t USING INTEGER PRIMARY KEY (rowid=?)",
		qActionsOfItem:        "SEARCH fencepost_actions USING INDEX fencepost_actions_item (item=? AND action>?)",
		qItemsOfDigest:        "SEARCH i USING INDEX sqlite_autoindex_fencepost_outbox_items_1 (digest=?) | LIST SUBQUERY 1 | SCAN json_each VIRTUAL TABLE INDEX 1: | CREATE BLOOM FILTER | LIST SUBQUERY 2 | SCAN r | CREATE BLOOM FILTER | SCALAR SUBQUERY 3 | SCAN r | SEARCH s USING INTEGER PRIMARY KEY (rowid=?) | USE TEMP B-TREE FOR ORDER BY",
		qItemsOfEvents:        "SEARCH i USING INDEX fencepost_outbox_items_event (event_seq=?) | LIST SUBQUERY 1 | SCAN k VIRTUAL TABLE INDEX 1: | SEARCH e USING COVERING INDEX sqlite_autoindex_fencepost_events_1 (tenant_key=? AND event_id=?) | CREATE BLOOM FILTER | LIST SUBQUERY 2 | SCAN r | CREATE BLOOM FILTER | SCALAR SUBQUERY 3 | SCAN r | LIST SUBQUERY 4 | SCAN json_each VIRTUAL TABLE INDEX 1: | CREATE BLOOM FILTER | SEARCH s USING INTEGER PRIMARY KEY (rowid=?) | USE TEMP B-TREE FOR ORDER BY",
		qDisputed:             "SCAN fencepost_outbox_state USING INDEX fencepost_outbox_state_disputed",
		qOldestAccepted:       "SEARCH fencepost_outbox_state USING INDEX fencepost_outbox_state_accepted (accepted_at>?)",
		qMoveBefore:           "SEARCH fencepost_outbox_state USING INTEGER PRIMARY KEY (rowid=?)",
		qEventDedupe:          "SEARCH fencepost_events USING INDEX sqlite_autoindex_fencepost_events_1 (tenant_key=? AND event_id=?)",
		qReceiptDedupe:        "SEARCH fencepost_cloudevents USING PRIMARY KEY (tenant_key=? AND receipt_id=?)",
		qSubscriptionRevision: "SEARCH fencepost_subscriptions USING PRIMARY KEY (tenant_key=?)",
		qStateBySubject:       "SEARCH s USING INDEX fencepost_outbox_state_subject (subject_key=?) | SEARCH i USING INTEGER PRIMARY KEY (rowid=?)",
		qEventsAfter:          "SEARCH e USING INTEGER PRIMARY KEY (rowid>?)",
		qOldestPending:        "SEARCH s USING INTEGER PRIMARY KEY (rowid>?) | SEARCH i USING INTEGER PRIMARY KEY (rowid=?)",
		qItemsAttention:       "SEARCH s USING INDEX fencepost_outbox_state_attention (state=? AND item>?) | SEARCH i USING INTEGER PRIMARY KEY (rowid=?) | LIST SUBQUERY 1 | SCAN r | CREATE BLOOM FILTER | SCALAR SUBQUERY 2 | SCAN r",
		qTotalsFeature:        "SEARCH t USING PRIMARY KEY (generation=? AND tenant_key=? AND feature=?) | SCALAR SUBQUERY 1 | SEARCH fencepost_generations USING INTEGER PRIMARY KEY (rowid=?)",
		qAggregateTenant:      "SEARCH e USING INDEX sqlite_autoindex_fencepost_events_1 (tenant_key=?) | CORRELATED SCALAR SUBQUERY 1 | SEARCH c USING COVERING INDEX fencepost_events_original (tenant_key=? AND original_event_id=?)",
		qAggregateScan:        "SCAN e | CORRELATED SCALAR SUBQUERY 1 | SEARCH c USING COVERING INDEX fencepost_events_original (tenant_key=? AND original_event_id=?)",
		qBucketsAggregate:     "SEARCH b USING PRIMARY KEY (projection=? AND tenant_key=? AND feature=? AND bucket_start>? AND bucket_start<?) | SCALAR SUBQUERY 1 | SEARCH fencepost_generations USING INTEGER PRIMARY KEY (rowid=?)",
		qCorrections:          "SEARCH fencepost_events USING INDEX fencepost_events_original (tenant_key=? AND original_event_id=?)",
		qItemsOfSeq:           "SEARCH i USING INDEX fencepost_outbox_items_event (event_seq=?) | SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
		qTombstone:            "SEARCH fencepost_tombstones USING PRIMARY KEY (tenant_key=? AND event_id=?)",
		qSealCovering:         "SEARCH fencepost_bucket_seals USING COVERING INDEX fencepost_bucket_seals_before (tenant_key=? AND feature=? AND before>?)",
		qSealOlder:            "SEARCH fencepost_bucket_seals USING COVERING INDEX fencepost_bucket_seals_seq (tenant_key=? AND feature=? AND seq<?)",
		qTotalsOf:             "SEARCH fencepost_totals USING PRIMARY KEY (generation=?)",
		qTotalsDiffer:         "SEARCH x USING PRIMARY KEY (generation=?) | SEARCH y USING PRIMARY KEY (generation=? AND tenant_key=? AND feature=? AND period_start=?) LEFT-JOIN",
		qSumNext:              "SEARCH fencepost_outbox_items USING COVERING INDEX fencepost_outbox_items_usage ((customer,feature)>(?,?))",
		qSumScan:              "SEARCH i USING INDEX fencepost_outbox_items_usage (customer=? AND feature=? AND usage_at>? AND usage_at<?) | SEARCH s USING INTEGER PRIMARY KEY (rowid=?) | CORRELATED SCALAR SUBQUERY 1 | SEARCH o USING INTEGER PRIMARY KEY (rowid=?) | SEARCH e USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
		qSumConfirm:           "SEARCH fencepost_outbox_state USING INTEGER PRIMARY KEY (rowid=?)",
		qPruneItems:           "SEARCH i USING COVERING INDEX fencepost_outbox_items_event (event_seq=?) | SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
		qPruneCandidates:      "SEARCH e USING INTEGER PRIMARY KEY (rowid>?) | CORRELATED SCALAR SUBQUERY 1 | SEARCH i USING COVERING INDEX fencepost_outbox_items_event (event_seq=?) | SEARCH s USING INTEGER PRIMARY KEY (rowid=?) | CORRELATED SCALAR SUBQUERY 2 | SEARCH c USING COVERING INDEX fencepost_events_original (tenant_key=? AND original_event_id=?)",
		qPruneBatches:         "SEARCH fencepost_receipts USING COVERING INDEX fencepost_receipts_applied (applied_at<?)",
		qPruneTombstones:      "SEARCH fencepost_tombstones USING INDEX fencepost_tombstones_pruned (pruned_at<?)",
		qPruneUnmatched:       "SEARCH fencepost_cloudevents USING COVERING INDEX fencepost_cloudevents_unmatched (recorded_at<?)",
		qFencedAttempts:       "SCAN fencepost_attempts USING COVERING INDEX fencepost_attempts_fenced",
		qItemAttempts:         "SEARCH fencepost_attempts USING PRIMARY KEY (item=?)",
	}
	for _, state := range []string{"empty", "pending", "done"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			a := open(t, newClock())
			if state != "empty" {
				route := seed(t, a, 1000, func(i int, it *storage.NewItem) { it.SerialKey, it.Customer = strconv.Itoa(i%7), strconv.Itoa(i%7) })
				if state == "done" {
					finish(t, a, route)
				}
			}
			sqlExec(t, a.path, "ANALYZE") // an operator may; the plans must not suffer
			w, err := openWriter(a.path, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			for q, want := range wants {
				if got := plan(t, w, q); got != want {
					t.Errorf("%s:\n got %s\nwant %s", queryFiles[q], got, want)
				}
			}
		})
	}
}

// A statement that runs for each row must not build a table each time: an IN
// list in a CHECK or in the condition of an index does, and halved the speed.
func TestNoEphemeralTables(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	w := <-a.writer
	defer func() { a.writer <- w }()
	for _, q := range []query{
		qEventInsert, qEventDedupe, qReceiptInsert, qReceiptDedupe, qTotalAdd, qTotalExist, qTotalMove,
		qBucketAdd, qCorrectionInsert, qTombstone, qItemInsert, qStateInsert,
		qClaimRow, qClaimLease, qClaimExhaust, qMove, qMoveFull, qDependents, qDependency, qDependentMove, qOriginal, qMoveBefore, qAttemptInsert, qSumNext, qSumScan, qSumConfirm,
	} {
		for _, op := range explain(t, w, "EXPLAIN ", q, 1) {
			if op == "OpenEphemeral" || op == "SorterOpen" || op == "OpenAutoindex" {
				t.Errorf("%s: %s", queryFiles[q], op)
			}
		}
	}
}

// finish accepts everything.
func finish(t *testing.T, a *Adapter, route int64) {
	t.Helper()
	cl := claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 1000})
	moves := make([]storage.Transition, len(cl.Items))
	for i, it := range cl.Items {
		moves[i] = storage.Transition{
			ItemID: it.ItemID, Expect: fenced(1), Attempt: &storage.Attempt{LeaseToken: 1},
			Set: storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: new(true)},
		}
	}
	move(t, a, moves...)
}

func plan(t *testing.T, c *conn, q query) string {
	t.Helper()
	return strings.Join(explain(t, c, "EXPLAIN QUERY PLAN ", q, 3), " | ")
}

// explain answers one column of what SQLite says about a statement.
func explain(t *testing.T, c *conn, prefix string, q query, column int) []string {
	t.Helper()
	text, err := q.text()
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := c.PrepareTransient(prefix + text)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Finalize()
	var lines []string
	for {
		more, err := s.Step()
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return lines
		}
		lines = append(lines, s.ColumnText(column))
	}
}
