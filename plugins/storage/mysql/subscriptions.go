package mysql

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	selectSubscriptions = "SELECT tenant, plan, plan_version, anchor, billing_interval, timezone, customers, revision, updated_at FROM fencepost_subscriptions WHERE "
	putSubscription     = "INSERT INTO fencepost_subscriptions (tenant, plan, plan_version, anchor, billing_interval, timezone, customers, revision, updated_at) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?) ON DUPLICATE KEY UPDATE plan = VALUES(plan), plan_version = VALUES(plan_version), " +
		"anchor = VALUES(anchor), billing_interval = VALUES(billing_interval), timezone = VALUES(timezone), customers = VALUES(customers), " +
		"revision = revision + 1, updated_at = VALUES(updated_at)"
)

func (r *row) subscription() storage.Subscription {
	s := storage.Subscription{
		Tenant: r.text(), Plan: r.text(), PlanVersion: r.text(), Anchor: r.time(), Interval: storage.Interval(r.text()), Timezone: r.text(),
	}
	r.decode(&s.Customers)
	s.Revision, s.UpdatedAt = r.int(), r.time()
	return s
}

// Subscriptions implements [storage.SubscriptionStore].
func (a *Adapter) Subscriptions(ctx context.Context, tenants []string) ([]storage.Subscription, error) {
	all := []storage.Subscription{}
	var list []capability.Statement
	for i := 0; i < len(tenants); i += maxPage / 2 {
		some := tenants[i:min(len(tenants), i+maxPage/2)]
		list = append(list, read(selectSubscriptions+"tenant IN "+places(len(some)), anys(some)...))
	}
	if len(list) == 0 {
		return all, nil
	}
	err := a.read(ctx, "subscriptions", func(results []result) error {
		for _, r := range results {
			if err := r.each(func(r *row) { all = append(all, r.subscription()) }); err != nil {
				return err
			}
		}
		return nil
	}, list...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// PutSubscription implements [storage.SubscriptionStore].
func (a *Adapter) PutSubscription(ctx context.Context, s storage.Subscription) (stored storage.Subscription, err error) {
	err = a.write(ctx, "put subscription", func(t *tx) error {
		customers, err := document(s.Customers)
		if err != nil {
			return err
		}
		t.exec(anyRows, putSubscription, s.Tenant, s.Plan, s.PlanVersion, s.Anchor, string(s.Interval), s.Timezone, customers, t.now)
		return t.query(func(r *row) { stored = r.subscription() }, selectSubscriptions+"tenant = ?", s.Tenant)
	})
	if err != nil {
		return storage.Subscription{}, err
	}
	return stored, nil
}

// ListSubscriptions implements [storage.SubscriptionStore].
func (a *Adapter) ListSubscriptions(ctx context.Context, after string, limit int) ([]storage.Subscription, error) {
	if limit < 1 || limit > 1000 {
		return nil, sdk.Invalid("limit", "1 to 1000")
	}
	all := []storage.Subscription{}
	err := a.read(ctx, "list subscriptions", func(r []result) error {
		return r[0].each(func(r *row) { all = append(all, r.subscription()) })
	}, read(selectSubscriptions+"tenant > ? ORDER BY tenant LIMIT ?", after, limit))
	if err != nil {
		return nil, err
	}
	return all, nil
}
