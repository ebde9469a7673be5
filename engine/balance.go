package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// SnapshotQuery is what an outpost asks; see [storage.SnapshotQuery].
type SnapshotQuery struct {
	Tenant    string
	Reducer   string // an id of [Engine.Reducers]
	ColdFloor time.Time
	Bootstrap bool
	Events    []string // ids of events
	Receipts  []string // ids of CloudEvents, see [meter.ReceiptID]
}

// Snapshot answers an outpost: what a tenant has used by a reducer until the
// start of the bucket of now, and what its meters are credited. An unknown reducer
// is not_found; buckets that do not hold everything are unsupported, code
// "buckets_incomplete", until a replay has built them. // G1 to G5.
func (e *Engine) Snapshot(ctx context.Context, q SnapshotQuery) (storage.Snapshot, error) {
	r, ok := e.reducers.byID[q.Reducer]
	if !ok {
		return storage.Snapshot{}, &sdk.Error{Tag: sdk.TagNotFound, Code: "reducer", Field: "reducer", Rule: "an id that the configuration of this server has"}
	}
	if !plainText(q.Tenant, meter.MaxID) || q.Tenant == "" {
		return storage.Snapshot{}, sdk.Invalid("tenant", "1 to 128 bytes of UTF-8 without control characters")
	}
	store, err := need[storage.SnapshotStore](e.cfg.Store, storage.Buckets)
	if err != nil {
		return storage.Snapshot{}, err
	}
	before, err := e.wholeBuckets(ctx, r.Feature)
	if err != nil {
		return storage.Snapshot{}, err
	}
	s, err := store.Snapshot(ctx, storage.SnapshotQuery{
		Tenant: q.Tenant, Feature: r.Feature, Reducer: r.ID, Filter: r.Filter, Meters: r.Meters,
		ColdFloor: q.ColdFloor, Bootstrap: q.Bootstrap, Events: q.Events, Receipts: q.Receipts,
	})
	if err != nil {
		return storage.Snapshot{}, fmt.Errorf("snapshot: %w", err)
	}
	// Settings that changed meanwhile may have changed what was read.
	after, err := e.wholeBuckets(ctx, r.Feature)
	if err == nil && (after.generation != before.generation || after.revision != before.revision) {
		err = sdk.Unavailable("buckets_moved", errors.New("the buckets were built anew meanwhile"))
	}
	if err != nil {
		return storage.Snapshot{}, err
	}
	return s, nil
}

// wholeBuckets reads what is known of a feature's buckets, and refuses those that
// do not hold everything.
func (e *Engine) wholeBuckets(ctx context.Context, feature string) (featureBuckets, error) {
	b, err := e.bucketsOf(ctx, feature)
	if err == nil && !b.complete {
		err = &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "buckets_incomplete", Field: "feature",
			Rule: "buckets that hold everything that was recorded of feature " + feature, Hint: "a server builds them at its start; so does fencepost replay start",
		}
	}
	return b, err
}

// Balance is what is left of a meter.
type Balance struct {
	Tenant   string
	Meter    string
	Credited decimal.Decimal
	Consumed decimal.Decimal
	Balance  decimal.Decimal // Credited less Consumed; below zero: overdrawn
	// Since is when the counting began: the last renewal; zero: ever.
	Since time.Time
	AsOf  time.Time // the store's
	// Known reports that the tenant has a subscription, a credit or usage.
	Known bool
}

// Balance reads what is left of a meter, the usage of this moment included. A
// tenant that nobody knows has zero. An unknown meter is not_found.
func (e *Engine) Balance(ctx context.Context, tenant, name string) (Balance, error) {
	id, ok := e.reducers.byMeter[name]
	if !ok {
		return Balance{}, unknownMeter()
	}
	s, err := e.Snapshot(ctx, SnapshotQuery{Tenant: tenant, Reducer: id, Bootstrap: true})
	if err != nil {
		return Balance{}, err
	}
	b := Balance{Tenant: tenant, Meter: name, Since: s.WindowStart, AsOf: s.AsOf, Known: s.Known}
	b.Consumed = e.reducers.byID[id].Value(s.Count, s.Sum, s.Min, s.Max)
	for _, c := range s.Credited {
		if c.Meter == name {
			b.Credited = c.Amount
		}
	}
	b.Balance = b.Credited.Sub(b.Consumed)
	return b, nil
}

func unknownMeter() error {
	return &sdk.Error{Tag: sdk.TagNotFound, Code: "meter", Field: "meter", Rule: "a meter of the configuration"}
}

// CreditRequest is a credit to add. Its Seq and CreatedAt are the store's.
type CreditRequest struct {
	storage.Credit
	// UntilRenewal says that the caller knows that a grant on a meter that
	// renews is gone when the next period begins.
	UntilRenewal bool
}

// AddCredit appends a credit of a configured meter and returns it as it is stored.
// The same credit again changes nothing; another one of its id is a conflict, code
// "credit_exists". A grant that the next renewal would take away is refused, unless
// the request says so: nobody loses what was paid once.
func (e *Engine) AddCredit(ctx context.Context, q CreditRequest) (storage.Credit, error) {
	c := q.Credit
	m, ok := e.reducers.meters[c.Meter]
	switch {
	case !ok:
		return c, unknownMeter()
	case m.Renew != nil && c.Kind == storage.CreditGrant && !q.UntilRenewal:
		return c, &sdk.Error{
			Tag: sdk.TagConflict, Code: "meter_renews", Field: "meter", Rule: "a meter without renewal: what is granted here is gone when the next period begins",
			Hint: "say until_renewal (--until-renewal) if that is meant",
		}
	case !plainText(c.Tenant, meter.MaxID) || c.Tenant == "":
		return c, sdk.Invalid("tenant", "1 to 128 bytes of UTF-8 without control characters")
	case !plainText(c.ID, meter.MaxID) || c.ID == "":
		return c, sdk.Invalid("id", "1 to 128 bytes of UTF-8 without control characters")
	case !plainText(c.Reason, maxReason):
		return c, sdk.Invalid("reason", "at most 1000 bytes of UTF-8 without control characters")
	}
	store, err := need[storage.SnapshotStore](e.cfg.Store, storage.Buckets)
	if err != nil {
		return c, err
	}
	stored, err := store.AddCredit(ctx, c)
	if err != nil {
		return c, fmt.Errorf("add a credit: %w", err)
	}
	e.changed(c.Tenant, m.Feature, ChangeCredit)
	return stored, nil
}

const maxReason = 1000

// Credits lists credits of a tenant in the order in which they were stored.
func (e *Engine) Credits(ctx context.Context, q storage.CreditQuery) (storage.CreditPage, error) {
	store, err := need[storage.SnapshotStore](e.cfg.Store, storage.Buckets)
	if err != nil {
		return storage.CreditPage{}, err
	}
	page, err := store.Credits(ctx, q)
	if err != nil {
		return page, fmt.Errorf("list credits: %w", err)
	}
	return page, nil
}
