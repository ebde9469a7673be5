package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qSubscriptionsOf query = "subscriptions_of"
	qSubscriptionPut query = "subscription_put"
	qSubscriptions   query = "subscriptions"
)

// Subscriptions returns those of the named tenants that exist.
func (s store) Subscriptions(ctx context.Context, tenants []string) ([]storage.Subscription, error) {
	return s.subscriptions(ctx, "load subscriptions", qSubscriptionsOf, tenants)
}

// ListSubscriptions returns at most limit (1 to 1000) subscriptions with a
// tenant key greater than after, in tenant order.
func (s store) ListSubscriptions(ctx context.Context, after string, limit int) ([]storage.Subscription, error) {
	const op = "list subscriptions"
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return s.subscriptions(ctx, op, qSubscriptions, after, limit)
}

func (s store) subscriptions(ctx context.Context, op string, q query, args ...any) (all []storage.Subscription, err error) {
	err = s.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		all = []storage.Subscription{}
		return t.each(ctx, q, func(rows pgx.Rows) error {
			sub, err := scanSubscription(rows)
			all = append(all, sub)
			return err
		}, args...)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func scanSubscription(rows pgx.Rows) (s storage.Subscription, err error) {
	var customers *string
	err = rows.Scan(&s.Tenant, &s.Plan, &s.PlanVersion, &s.Anchor, &s.Interval, &s.Timezone,
		&customers, &s.Revision, &s.UpdatedAt)
	if err != nil {
		return s, err
	}
	s.Anchor, s.UpdatedAt = s.Anchor.UTC(), s.UpdatedAt.UTC()
	if customers != nil {
		err = json.Unmarshal([]byte(*customers), &s.Customers)
	}
	return s, err
}

// PutSubscription creates or replaces a tenant's subscription and raises its
// revision. The revision and the time of sub are ignored.
func (s store) PutSubscription(ctx context.Context, sub storage.Subscription) (stored storage.Subscription, err error) {
	const op = "put subscription"
	if sub.Tenant == "" {
		return stored, fmt.Errorf("%s: %w", op, sdk.Invalid("tenant", "required"))
	}
	var customers *string
	if len(sub.Customers) > 0 {
		b, err := json.Marshal(sub.Customers)
		if err != nil {
			return stored, fmt.Errorf("%s: %w", op, err)
		}
		doc := string(b)
		customers = &doc
	}
	err = s.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) error {
		return t.each(ctx, qSubscriptionPut, func(rows pgx.Rows) (err error) {
			stored, err = scanSubscription(rows)
			return err
		}, sub.Tenant, sub.Plan, sub.PlanVersion, sub.Anchor, string(sub.Interval), sub.Timezone, customers)
	})
	if err != nil {
		return storage.Subscription{}, err
	}
	return stored, nil
}
