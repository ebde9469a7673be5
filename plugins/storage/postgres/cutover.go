package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qCutoversDecide query = "cutovers_decide"
	qCutoversOf     query = "cutovers_of"
	qCutovers       query = "cutovers"
)

// DecideCutovers stores what is not decided yet, and answers what is stored, in
// the order of list. In a transaction of the caller's the answer is as
// conditional as all else.
func (s store) DecideCutovers(ctx context.Context, list []storage.Cutover) (stored []storage.Cutover, err error) {
	const op = "decide cutovers"
	n := len(list)
	if n == 0 {
		return []storage.Cutover{}, nil
	}
	tenants, features, from := make([]string, n), make([]string, n), make([]time.Time, n)
	for i, c := range list {
		if c.Tenant == "" || c.Feature == "" || c.DurableFrom.IsZero() {
			return nil, fmt.Errorf("%s: %w", op, sdk.Invalid("cutovers", "a tenant, a feature and a time").At(i))
		}
		tenants[i], features[i], from[i] = c.Tenant, c.Feature, c.DurableFrom
	}
	err = s.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) error {
		if _, err := t.exec(ctx, qCutoversDecide, tenants, features, from); err != nil {
			return err
		}
		// A statement of its own sees what somebody else decided meanwhile.
		stored, err = cutovers(ctx, t, qCutoversOf, tenants, features)
		if err == nil && len(stored) != n {
			err = errUndecided
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

var errUndecided = errors.New("a cutover exists and cannot be read")

// Cutovers returns a page in key order.
func (a *Adapter) Cutovers(ctx context.Context, after storage.Cutover, limit int) (all []storage.Cutover, err error) {
	const op = "list cutovers"
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	err = a.run.read(ctx, op, func(ctx context.Context, t *tx) (err error) {
		all, err = cutovers(ctx, t, qCutovers, after.Tenant, after.Feature, limit)
		return err
	})
	return all, err
}

func cutovers(ctx context.Context, t *tx, q query, args ...any) ([]storage.Cutover, error) {
	all := []storage.Cutover{}
	err := t.each(ctx, q, func(rows pgx.Rows) error {
		var c storage.Cutover
		err := rows.Scan(&c.Tenant, &c.Feature, utcInto{&c.DurableFrom})
		all = append(all, c)
		return err
	}, args...)
	return all, err
}
