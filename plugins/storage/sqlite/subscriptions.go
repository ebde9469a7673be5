package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Subscriptions returns those of the named tenants that exist.
func (a *Adapter) Subscriptions(ctx context.Context, tenants []string) (all []storage.Subscription, err error) {
	err = a.read(ctx, "load subscriptions", func(c *conn) (err error) {
		all, err = subscriptions(c, tenants)
		return err
	})
	return all, err
}

func subscriptions(c *conn, tenants []string) ([]storage.Subscription, error) {
	all := make([]storage.Subscription, 0, len(tenants))
	for _, tenant := range tenants {
		if _, err := c.bind(qSubscription).text(tenant).one(func(r *row) {
			all = append(all, r.subscription())
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (r *row) subscription() (s storage.Subscription) {
	s.Tenant, s.Plan, s.PlanVersion = r.text(), r.text(), r.text()
	s.Anchor, s.Interval, s.Timezone = r.time(), storage.Interval(r.text()), r.text()
	r.decode(&s.Customers)
	s.Revision, s.UpdatedAt = r.int(), r.time()
	return s
}

// PutSubscription creates or replaces a tenant's subscription and raises its
// revision. The revision and the time of s are ignored.
func (a *Adapter) PutSubscription(ctx context.Context, s storage.Subscription) (stored storage.Subscription, err error) {
	err = a.write(ctx, "put subscription", func(_ context.Context, c *conn) (err error) {
		stored, err = putSubscription(c, s, a.now())
		return err
	})
	return stored, err
}

func putSubscription(c *conn, s storage.Subscription, now time.Time) (stored storage.Subscription, err error) {
	if s.Tenant == "" {
		return stored, sdk.Invalid("tenant", "required")
	}
	var customers json.RawMessage
	if len(s.Customers) > 0 {
		if customers, err = json.Marshal(s.Customers); err != nil {
			return stored, err
		}
	}
	_, err = c.bind(qSubscriptionPut).text(s.Tenant).text(s.Plan).text(s.PlanVersion).time(s.Anchor).
		text(string(s.Interval)).text(s.Timezone).json(customers).time(now).
		one(func(r *row) { stored = r.subscription() })
	return stored, err
}

// ListSubscriptions returns at most limit (1 to 1000) subscriptions with a
// tenant key greater than after, in tenant order.
func (a *Adapter) ListSubscriptions(ctx context.Context, after string, limit int) (all []storage.Subscription, err error) {
	const op = "list subscriptions"
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) (err error) {
		all, err = listSubscriptions(c, after, limit)
		return err
	})
	return all, err
}

func listSubscriptions(c *conn, after string, limit int) ([]storage.Subscription, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	all := []storage.Subscription{}
	err := c.bind(qSubscriptions).text(after).int(int64(limit)).each(func(r *row) error {
		all = append(all, r.subscription())
		return nil
	})
	return all, err
}
