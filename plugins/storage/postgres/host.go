package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qBeat         query = "beat"
	qHosts        query = "hosts"
	qClockSamples query = "clock_samples"
	qRoleHold     query = "role_hold"
	qRoleRelease  query = "role_release"
	qRole         query = "role"
)

var _ storage.HostStore = (*Adapter)(nil)

// incarnationInto receives id, system, timeline, claims, restores and what
// it was restored through. NULL is zero.
func incarnationInto(in *storage.Incarnation) []any {
	return []any{
		textInto(&in.Store), textInto(&in.System), intInto(&in.Timeline), intInto(&in.Claims), intInto(&in.Restores),
		utcInto{&in.RestoredThrough},
	}
}

// Beat notes that a host lives, and samples the clocks; see
// [storage.Heartbeat]. One that leaves is answered like any other.
func (a *Adapter) Beat(ctx context.Context, b storage.Heartbeat) (res storage.HeartbeatResult, err error) {
	const op = "beat"
	if b.Host == "" {
		return res, storeError(ctx, op, sdk.Invalid("host", "required"))
	}
	err = a.run.write(ctx, op, writing{pool: deliveryPool}, func(ctx context.Context, t *tx) error {
		res = storage.HeartbeatResult{}
		dest := append([]any{utcInto{&res.Now}, utcInto{&res.LastBeat}}, incarnationInto(&res.Incarnation)...)
		return t.row(ctx, qBeat, dest,
			b.Host, clean(b.Version), clean(b.BootID), int64(b.Boottime), optTime(b.FlushedThrough), b.Claims, b.Leaving, optTime(b.Noticed))
	})
	if err != nil {
		return storage.HeartbeatResult{}, err
	}
	return res, nil
}

// Hosts returns every host that beat in the last age, by name.
func (a *Adapter) Hosts(ctx context.Context, age time.Duration) (all []storage.HostRow, err error) {
	err = a.run.read(ctx, "list hosts", func(ctx context.Context, t *tx) error {
		all = []storage.HostRow{}
		return t.each(ctx, qHosts, func(rows pgx.Rows) error {
			var h storage.HostRow
			err := rows.Scan(&h.Host, &h.Version, utcInto{&h.StartedAt}, utcInto{&h.BeatAt}, utcInto{&h.FlushedThrough}, &h.Claims, utcInto{&h.Noticed})
			all = append(all, h)
			return err
		}, age)
	})
	return all, err
}

// ClockSamples returns the samples of the last two days, in the order in which
// they were taken.
func (a *Adapter) ClockSamples(ctx context.Context) (all []storage.ClockSample, err error) {
	err = a.run.read(ctx, "list clock samples", func(ctx context.Context, t *tx) error {
		all = []storage.ClockSample{}
		return t.each(ctx, qClockSamples, func(rows pgx.Rows) error {
			var s storage.ClockSample
			var boottime int64
			err := rows.Scan(&s.Host, &s.BootID, &boottime, utcInto{&s.StoreAt})
			s.Boottime = time.Duration(boottime)
			all = append(all, s)
			return err
		})
	})
	return all, err
}

// Hold takes, renews or gives up a role; see [storage.HostStore]. It is a row,
// not a lock of the session: a pooler may stand in between, and who is cut off
// loses it in time.
func (a *Adapter) Hold(ctx context.Context, role, owner string, ttl time.Duration) (h storage.Holding, err error) {
	const op = "hold a role"
	switch {
	case role == "" || owner == "":
		err = sdk.Invalid("role", "a role and an owner")
	case ttl < 0:
		err = sdk.Invalid("ttl", "zero or more")
	}
	if err != nil {
		return h, storeError(ctx, op, err)
	}
	err = a.run.write(ctx, op, writing{pool: deliveryPool}, func(ctx context.Context, t *tx) error {
		h = storage.Holding{}
		dest := []any{&h.Owner, utcInto{&h.Until}, &h.Fence}
		if ttl > 0 {
			err := t.row(ctx, qRoleHold, dest, role, owner, ttl)
			h.Held = err == nil
			if !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
		} else if _, err := t.exec(ctx, qRoleRelease, role, owner); err != nil {
			return err
		}
		err := t.row(ctx, qRole, dest, role) // somebody else has it, or nobody
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return storage.Holding{}, err
	}
	return h, nil
}
