package sqlite

import "embed"

// sqlFS holds one statement per file. Every value is bound.
//
//go:embed sql/*.sql
var sqlFS embed.FS

// query names a statement; a connection prepares it on first use and keeps it.
type query uint8

const (
	qBegin query = iota
	qBeginRead
	qCommit
	qRollback
	qSavepoint
	qSavepointRollback
	qSavepointRelease

	qMigrationsTable
	qMigrationsExist
	qMigrations
	qMigrationInsert

	qRoutesRevision
	qRoutesRevisionRaise
	qSubscriptionRevision
	qGeneration
	qEventInsert
	qEventDedupe
	qReceiptInsert
	qReceiptDedupe
	qCorrectionInsert
	qCorrections
	qTombstonesExist
	qTombstone
	qTotalAdd
	qTotalExist
	qTotalMove
	qBucketAdd
	qSealLast
	qSealCovered
	qSealInsert
	qBuckets
	qBucketsAggregate
	qBucketsPruned
	qSealCovering
	qSealOlder
	qLastEvent
	qLastEventSet
	qLastItem
	qLastItemSet
	qItemInsert
	qStateInsert
	qStateBySubject
	qStateDelete
	qCountAdd

	qEventByID
	qEventBySeq
	qEventName
	qReceiptByID
	qTotals
	qTotalsFeature
	qEventsAfter
	qEventsAfterFiltered

	qWatermark
	qProjectionState
	qProjectionBegin
	qProjectionCopy
	qProjectionPruned
	qProjectionCursor
	qProjectionPause
	qProjectionActivate
	qProjectionAbandon
	qProjectionForget
	qTotalsOf
	qTotalsPrune
	qTotalsDiffer
	qBucketsPrune

	qCounterSet
	qCounterAdd
	qCounter
	qCounters
	qCountersTenant
	qHistorySet
	qHistoryAdd
	qHistoryStep
	qHistoryRange
	qBatchInsert

	qPruneCandidates
	qPruneCorrections
	qPruneTombstone
	qPruneNote
	qPruneItems
	qPruneAttempts
	qPruneItem
	qPruneEvent
	qPruneBody
	qPruneReceiptOf
	qPruneCloudevent
	qPruneTombstones
	qPruneForget
	qPruneUnmatched
	qPruneBatches
	qPruneBatch
	qTotalSigned
	qSeqKnown

	qAggregateTenant
	qAggregateScan
	qTenantEvents
	qPrunedBefore

	qSubscription
	qSubscriptionPut
	qSubscriptions

	qRoutes
	qFeatures
	qFeature
	qFeaturePut
	qFeatureUsed
	qRouteInsert
	qRouteRetire
	qMappings
	qMapping
	qMappingInsert

	qExpireLeases
	qClaimExpired
	qClaimPending
	qClaimSerialHeld
	qClaimRow
	qClaimLease
	qClaimExhaust

	qMoveBefore
	qMove
	qMoveMapped
	qAttemptInsert

	qItem
	qItemAttempts
	qItems
	qItemsAttention
	qItemsOfEvent
	qItemsOfSeq
	qCounts
	qFencedAttempts
	qOldestPending

	qPing

	numQueries
)

var queryFiles = [numQueries]string{
	qBegin:             "begin",
	qBeginRead:         "begin_read",
	qCommit:            "commit",
	qRollback:          "rollback",
	qSavepoint:         "savepoint",
	qSavepointRollback: "savepoint_rollback",
	qSavepointRelease:  "savepoint_release",

	qMigrationsTable: "migrations_table",
	qMigrationsExist: "migrations_exist",
	qMigrations:      "migrations",
	qMigrationInsert: "migration_insert",

	qRoutesRevision:       "routes_revision",
	qRoutesRevisionRaise:  "routes_revision_raise",
	qSubscriptionRevision: "subscription_revision",
	qGeneration:           "generation",
	qEventInsert:          "event_insert",
	qEventDedupe:          "event_dedupe",
	qReceiptInsert:        "receipt_insert",
	qReceiptDedupe:        "receipt_dedupe",
	qCorrectionInsert:     "correction_insert",
	qCorrections:          "corrections",
	qTombstonesExist:      "tombstones_exist",
	qTombstone:            "tombstone",
	qTotalAdd:             "total_add",
	qTotalExist:           "total_exist",
	qTotalMove:            "total_move",
	qBucketAdd:            "bucket_add",
	qSealLast:             "seal_last",
	qSealCovered:          "seal_covered",
	qSealInsert:           "seal_insert",
	qBuckets:              "buckets",
	qBucketsAggregate:     "buckets_aggregate",
	qBucketsPruned:        "buckets_pruned_before",
	qSealCovering:         "seal_covering",
	qSealOlder:            "seal_older",
	qLastEvent:            "last_event",
	qLastEventSet:         "last_event_set",
	qLastItem:             "last_item",
	qLastItemSet:          "last_item_set",
	qItemInsert:           "item_insert",
	qStateInsert:          "state_insert",
	qStateBySubject:       "state_by_subject",
	qStateDelete:          "state_delete",
	qCountAdd:             "count_add",

	qEventByID:           "event_by_id",
	qEventBySeq:          "event_by_seq",
	qEventName:           "event_name",
	qReceiptByID:         "receipt_by_id",
	qTotals:              "totals",
	qTotalsFeature:       "totals_feature",
	qEventsAfter:         "events_after",
	qEventsAfterFiltered: "events_after_filtered",

	qWatermark:          "watermark",
	qProjectionState:    "projection_state",
	qProjectionBegin:    "projection_begin",
	qProjectionCopy:     "projection_copy",
	qProjectionPruned:   "projection_pruned",
	qProjectionCursor:   "projection_cursor",
	qProjectionPause:    "projection_pause",
	qProjectionActivate: "projection_activate",
	qProjectionAbandon:  "projection_abandon",
	qProjectionForget:   "projection_forget",
	qTotalsOf:           "totals_of",
	qTotalsPrune:        "totals_prune",
	qTotalsDiffer:       "totals_differ",
	qBucketsPrune:       "buckets_prune",

	qCounterSet:     "counter_set",
	qCounterAdd:     "counter_add",
	qCounter:        "counter",
	qCounters:       "counters",
	qCountersTenant: "counters_tenant",
	qHistorySet:     "history_set",
	qHistoryAdd:     "history_add",
	qHistoryStep:    "history_step",
	qHistoryRange:   "history_range",
	qBatchInsert:    "batch_insert",

	qPruneCandidates:  "prune_candidates",
	qPruneCorrections: "prune_corrections",
	qPruneTombstone:   "prune_tombstone",
	qPruneNote:        "prune_note",
	qPruneItems:       "prune_items",
	qPruneAttempts:    "prune_attempts",
	qPruneItem:        "prune_item",
	qPruneEvent:       "prune_event",
	qPruneBody:        "prune_body",
	qPruneReceiptOf:   "prune_receipt_of",
	qPruneCloudevent:  "prune_cloudevent",
	qPruneTombstones:  "prune_tombstones",
	qPruneForget:      "prune_forget",
	qPruneUnmatched:   "prune_unmatched",
	qPruneBatches:     "prune_batches",
	qPruneBatch:       "prune_batch",
	qTotalSigned:      "total_signed",
	qSeqKnown:         "seq_known",

	qAggregateTenant: "aggregate_tenant",
	qAggregateScan:   "aggregate_scan",
	qTenantEvents:    "tenant_events",
	qPrunedBefore:    "pruned_before",

	qSubscription:    "subscription",
	qSubscriptionPut: "subscription_put",
	qSubscriptions:   "subscriptions",

	qRoutes:        "routes",
	qFeatures:      "features",
	qFeature:       "feature",
	qFeaturePut:    "feature_put",
	qFeatureUsed:   "feature_used",
	qRouteInsert:   "route_insert",
	qRouteRetire:   "route_retire",
	qMappings:      "mappings",
	qMapping:       "mapping",
	qMappingInsert: "mapping_insert",

	qExpireLeases:    "expire_leases",
	qClaimExpired:    "claim_expired",
	qClaimPending:    "claim_pending",
	qClaimSerialHeld: "claim_serial_held",
	qClaimRow:        "claim_row",
	qClaimLease:      "claim_lease",
	qClaimExhaust:    "claim_exhaust",

	qMoveBefore:    "move_before",
	qMove:          "move",
	qMoveMapped:    "move_mapped",
	qAttemptInsert: "attempt_insert",

	qItem:           "item",
	qItemAttempts:   "item_attempts",
	qItems:          "items",
	qItemsAttention: "items_attention",
	qItemsOfEvent:   "items_of_event",
	qItemsOfSeq:     "items_of_seq",
	qCounts:         "counts",
	qFencedAttempts: "fenced_attempts",
	qOldestPending:  "oldest_pending",

	qPing: "ping",
}

// text reads the statement. The test of this package prepares each, so that
// the file is there.
func (q query) text() (string, error) {
	b, err := sqlFS.ReadFile("sql/" + queryFiles[q] + ".sql")
	return string(b), err
}
