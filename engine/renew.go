package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// sealDelay is how long after the end of a period its buckets are sealed: usage
// that was on its way has come by then. // C33.
const sealDelay = 11 * time.Minute

// renewPage is how many tenants are looked at at once.
const renewPage = 500

// RenewDue begins the billing periods that are due: of each subscribed tenant,
// for each feature whose meters have a renewal, it seals the buckets before the
// period and resets the credits, both in one transaction. It answers how many were
// sealed. Periods begin at buckets: one that begins within a bucket begins with
// it. Calls may overlap and be repeated: each period begins once.
func (e *Engine) RenewDue(ctx context.Context) (int, error) {
	renewals := map[string][]CreditMeter{}
	for _, m := range e.reducers.meters {
		if m.Renew != nil {
			renewals[m.Feature] = append(renewals[m.Feature], m)
		}
	}
	if len(renewals) == 0 {
		return 0, nil
	}
	store, err := need[storage.SnapshotStore](e.cfg.Store, storage.Buckets)
	if err != nil {
		return 0, err
	}
	sealer, err := need[storage.BucketStore](e.cfg.Store, storage.Buckets)
	if err != nil {
		return 0, err
	}
	var failed error
	done := 0
	for after := ""; ; {
		subs, err := e.store.subs.ListSubscriptions(ctx, after, renewPage)
		if err != nil {
			return done, fmt.Errorf("list subscriptions: %w", err)
		}
		for _, feature := range slices.Sorted(maps.Keys(renewals)) {
			due, err := e.renewalsOf(ctx, store, feature, subs)
			if err != nil {
				return done, err
			}
			for _, seal := range due {
				seal.Credits = creditsOf(seal, renewals[feature])
				if _, err := sealer.SealBuckets(ctx, seal); err != nil {
					failed = fmt.Errorf("begin a period: %w", err) // the others are not held up
					continue
				}
				e.changed(seal.Tenant, seal.Feature, ChangeSeal)
				done++
			}
		}
		if len(subs) < renewPage {
			return done, failed
		}
		after = subs[len(subs)-1].Tenant
	}
}

// renewalsOf answers the seals that are due of a feature.
func (e *Engine) renewalsOf(ctx context.Context, store storage.SnapshotStore, feature string, subs []storage.Subscription) ([]storage.Seal, error) {
	names := make([]string, len(subs))
	for i, s := range subs {
		names[i] = s.Tenant
	}
	sealed, err := store.LastSeals(ctx, feature, names)
	if err != nil {
		return nil, fmt.Errorf("load seals: %w", err)
	}
	last := make(map[string]time.Time, len(sealed))
	for _, s := range sealed {
		last[s.Tenant] = s.Before
	}
	now := e.cfg.Now().UTC()
	var due []storage.Seal
	for _, s := range subs {
		cal, err := e.subjects.zones.Of(s)
		if err != nil {
			return nil, fmt.Errorf("subscription of a tenant: %w", err)
		}
		// The period of then, not of now: until its delay has passed the one
		// before it goes on.
		begins := cal.At(now.Add(-sealDelay)).Start.UTC().Truncate(storage.BucketLength)
		if begins.After(last[s.Tenant]) {
			due = append(due, storage.Seal{Tenant: s.Tenant, Feature: feature, Before: begins})
		}
	}
	return due, nil
}

// creditsOf are the credits with which a period begins.
func creditsOf(seal storage.Seal, meters []CreditMeter) []storage.Credit {
	list := make([]storage.Credit, 0, len(meters))
	for _, m := range meters {
		list = append(list, storage.Credit{
			Tenant: seal.Tenant, Meter: m.Name, ID: "renew:" + seal.Before.Format(time.RFC3339),
			Kind: storage.CreditReset, Amount: *m.Renew, Reason: "a billing period begins",
		})
	}
	return list
}
