package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Reference is the contract of package storage, held in memory and as plain as
// it can be written: one mutex is the transaction, and what can be computed is
// computed by going over everything. It declares every capability. The model
// test runs it in lockstep with an adapter, and the suite's own tests run the
// suite over it.
//
// It is for reading and for tests: nothing is kept, and nothing is fast. It is
// safe for concurrent use. The zero value is not usable; see [NewReference].
type Reference struct {
	mu     sync.Mutex
	now    func() time.Time
	flaws  flaw
	slips  slip
	closed bool

	lastSeq  int64
	events   []storage.Event // by seq
	byKey    map[storage.EventKey]int64
	details  map[int64]detail
	tombs    map[storage.EventKey]tomb
	receipts map[storage.ReceiptKey]*receipt
	totals   map[totalKey]storage.Total
	pruned   map[totalKey]storage.Total // of generation 0
	gone     []goneEvent                // what retention removed

	subscriptions map[string]storage.Subscription
	counters      map[storage.CounterKey]storage.Counter
	history       map[storage.HistoryKey]decimal.Decimal
	batches       map[string]time.Time

	buckets map[bucketKey]storage.Bucket
	seals   map[[2]string][]sealRow

	projection storage.ProjectionState
	lastGen    int64

	routes   storage.RouteSet
	lastItem int64
	items    map[int64]*itemRow

	settled settledState

	inFlight map[storage.EventKey]bool // only a flaw looks at it
}

// detail is what an event was recorded with and does not carry itself.
type detail struct {
	bucket *storage.BucketKey
	signed bool
}

type goneEvent struct {
	storage.Event
	bucket *storage.BucketKey
}

type tomb struct {
	hash    storage.Hash
	feature string
	seq     int64
	at      time.Time
}

type receipt struct {
	storage.Receipt
	entries []storage.EntryResult
}

// flaw is a mistake that an adapter can make. The suite's own tests build the
// reference with one of them and see that a named case fails; see
// TestFlawsAreFound.
type flaw uint64

const (
	flawInvisibleIsDuplicate flaw = 1 << iota
	flawConflictIsDuplicate
	flawPartialAtomic
	flawAbsoluteTotals
	flawTotalsOfDuplicates
	flawDropsAnItem
	flawForgetsBuilding
	flawStreamByID
	flawStreamForgetsOne
	flawStaleTokenAccepted
	flawFencedAttemptLost
	flawClaimsLiveLease
	flawSumsBeforeLock
	flawBoundBeforeDuplicate
	flawRefusalWrites
	flawNegativeOriginalSign
	flawDrainsTwice
	flawAbsoluteProjection
	flawSeedForgotten
	flawFlushTwice
	flawRedeliveryOldTotals
	flawPagesByOffset
	flawSealedBucketMoves
	flawPruneForgetsIdentity
	flawPruneOpenItems
	flawDryRunRemoves
	flawTenantBlind
	flawIgnoresDeadline
	flawStaleIgnored
	flawResultsSorted
	flawMergesGroups
	flawFloat
	flawReceiptNotKept
	flawSerialKeyIgnored
	flawBudgetIgnored
	flawReplacementAlone
	flawReplacementShared
	flawSignedFrozenNot
	flawUnresolvedLost
	flawActivatesUndrained
	flawPrunesCorrections
	flawFoldsBeyond
	flawRemainsForgotten
	flawSnapshotCountsSealed
	flawSnapshotUnfiltered
	flawConfirmsHot
	flawConfirmsCountedOnly
	flawVersionStands
	flawFloorIgnored
	flawCreditTwice
	flawResetAdds
	flawSealForgetsCredits
	flawSealRepeatsCredits
)

func (f flaw) has(g flaw) bool { return f&g != 0 }

// NewReference returns an empty store. now is its clock; nil is time.Now.
func NewReference(now func() time.Time) *Reference {
	if now == nil {
		now = time.Now
	}
	return &Reference{
		now:           now,
		byKey:         map[storage.EventKey]int64{},
		details:       map[int64]detail{},
		tombs:         map[storage.EventKey]tomb{},
		receipts:      map[storage.ReceiptKey]*receipt{},
		totals:        map[totalKey]storage.Total{},
		pruned:        map[totalKey]storage.Total{},
		subscriptions: map[string]storage.Subscription{},
		counters:      map[storage.CounterKey]storage.Counter{},
		history:       map[storage.HistoryKey]decimal.Decimal{},
		batches:       map[string]time.Time{},
		buckets:       map[bucketKey]storage.Bucket{},
		seals:         map[[2]string][]sealRow{},
		projection:    storage.ProjectionState{Active: 1},
		lastGen:       1,
		items:         map[int64]*itemRow{},
		settled:       newSettledState(),
		inFlight:      map[storage.EventKey]bool{},
	}
}

// Describe declares everything.
func (s *Reference) Describe() storage.Manifest {
	return storage.Manifest{Name: "reference", Version: "1", Capabilities: Vocabulary()}
}

// Vocabulary returns every capability of this version of the contract.
func Vocabulary() []storage.Capability {
	return []storage.Capability{
		storage.DurableEvents, storage.Subscriptions, storage.EventStreaming, storage.Outbox, storage.Counters,
		storage.Corrections, storage.ProjectionGenerations, storage.Buckets, storage.Retention,
	}
}

// Ping answers whether the store is open.
func (s *Reference) Ping(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.mu.Unlock()
	return nil
}

// Close makes later calls unavailable.
func (s *Reference) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// begin takes the store for one call. The caller unlocks if it is nil.
func (s *Reference) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil && !s.flaws.has(flawIgnoresDeadline) {
		return sdk.Unavailable("canceled", err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return sdk.Unavailable("closed", errors.New("the store is closed"))
	}
	return nil
}

func (s *Reference) clock() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

func missing(what string) error {
	return &sdk.Error{Tag: sdk.TagNotFound, Rule: what}
}

func clash(code string) error { return &sdk.Error{Tag: sdk.TagConflict, Code: code} }

// within reports whether t is in [from, to); a zero bound is none.
func within(t, from, to time.Time) bool {
	return (from.IsZero() || !t.Before(from)) && (to.IsZero() || t.Before(to))
}
