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
	qCorrectionsOf

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
	qClaimsRaise
	qIncarnation
	qOriginal
	qDependency

	qMoveBefore
	qMove
	qMoveFull
	qItemCustomer
	qDependents
	qDependentMove
	qActionInsert
	qActions
	qActionsOfItem
	qAttemptInsert

	qItem
	qItemAttempts
	qItems
	qItemsAttention
	qItemsOfEvent
	qItemsOfEvents
	qItemsOfDigest
	qItemsOfOriginal
	qItemsOfSeq
	qCounts
	qFencedAttempts
	qOldestPending
	qDisputed
	qOldestAccepted

	qLastBeat
	qLastBeatSet
	qHostPut
	qHostForget
	qHostsForget
	qHosts
	qSampleInsert
	qSamplesForget
	qSamples
	qRole
	qRolePut
	qBound
	qBounds
	qBoundPut
	qBoundItem
	qCutoverInsert
	qCutover
	qCutovers

	qSnapshotVersion
	qSnapshotEvent
	qSnapshotReceipt
	qTenantKnown
	qCredit
	qCredits
	qCreditInsert
	qCreditAmounts
	qSupersede
	qRestorable
	qRestorableCount
	qRestore
	qRestoresRaise
	qRouteRename
	qBoundRename
	qExporterKnown
	qRouteOpen
	qSumRoutes
	qSumNext
	qSumScan
	qSumConfirm
	qReconciliation
	qReconciliationPut
	qReconciliations
	qReconciliationLast
	qReconciliationLineInsert
	qReconciliationLines

	qPing

	numQueries
)

// text reads the statement. The test of this package prepares each, so that
// the file is there.
func (q query) text() (string, error) {
	b, err := sqlFS.ReadFile("sql/" + queryFiles[q] + ".sql")
	return string(b), err
}
