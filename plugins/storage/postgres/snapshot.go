package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qSnapshotVersion query = "snapshot_version"
	qSnapshot        query = "snapshot"
	qSealsLast       query = "seals_last"
)

var _ storage.SnapshotStore = (*Adapter)(nil)

const (
	maxName     = 128
	maxMeters   = 100
	maxAskedIDs = 1000
)

// Snapshot answers an outpost. The version's row is locked first, and what is
// counted is read by the statement after it: at read committed that one sees all
// that any answer with a lower version saw. // G1 to G5.
func (a *Adapter) Snapshot(ctx context.Context, q storage.SnapshotQuery) (out storage.Snapshot, err error) {
	const op = "snapshot"
	if err := checkSnapshot(&q); err != nil {
		return out, fmt.Errorf("%s: %w", op, err)
	}
	filter, err := filterText(q.Filter)
	if err != nil {
		return out, fmt.Errorf("%s: %w", op, err)
	}
	meters, events, receipts := orEmpty(q.Meters), orEmpty(q.Events), orEmpty(q.Receipts)
	err = a.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) error {
		out = storage.Snapshot{Credited: make([]storage.MeterCredit, len(meters))}
		if err := bucketsKeep(ctx, t, storage.AggregateQuery{Feature: q.Feature, Filter: q.Filter}); err != nil {
			return err
		}
		if err := t.row(ctx, qSnapshotVersion, []any{&out.Version}, q.Tenant, q.Reducer); err != nil {
			return err
		}
		var openEnd time.Time
		var credited []string
		err := t.row(ctx, qSnapshot, []any{
			utcInto{&out.AsOf},
			utcInto{&out.ColdUntil},
			utcInto{&openEnd},
			utcInto{&out.WindowStart},
			decimalInto{&out.Sum},
			&out.Count,
			optDecimalInto{&out.Min},
			optDecimalInto{&out.Max},
			&credited, &out.Events, &out.Receipts, &out.Known,
		}, q.Tenant, q.Feature, filter, optTime(q.ColdFloor), q.Bootstrap, meters, events, receipts)
		if err != nil {
			return err
		}
		if out.ColdUntil.After(openEnd) {
			return coldRegressed()
		}
		for i, text := range credited {
			out.Credited[i].Meter = meters[i]
			if out.Credited[i].Amount, err = decimal.ParseTotal(text); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return storage.Snapshot{}, err
	}
	return out, nil
}

// LastSeals returns the last seal of each tenant that has one.
func (a *Adapter) LastSeals(ctx context.Context, feature string, tenants []string) (all []storage.Seal, err error) {
	const op = "load seals"
	if len(tenants) > maxPage {
		return nil, fmt.Errorf("%s: %w", op, sdk.Invalid("tenants", "at most 1000"))
	}
	err = a.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		all = []storage.Seal{}
		return t.each(ctx, qSealsLast, func(r pgx.Rows) error {
			s := storage.Seal{Feature: feature}
			err := r.Scan(&s.Tenant, &s.Generation, utcInto{&s.Before}, utcInto{&s.SealedAt})
			all = append(all, s)
			return err
		}, feature, tenants)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// coldRegressed is for an asker that has discarded more than the store's clock
// allows: it must begin anew.
func coldRegressed() error {
	return &sdk.Error{Tag: sdk.TagConflict, Code: "cold_regressed", Field: "cold_floor", Rule: "at most the end of the store's bucket of now"}
}

func orEmpty(list []string) []string { return append([]string{}, list...) }

func checkSnapshot(q *storage.SnapshotQuery) error {
	switch {
	case q.Tenant == "" || !storable(q.Tenant):
		return sdk.Invalid("tenant", "required, UTF-8 without NUL")
	case q.Feature == "" || !storable(q.Feature):
		return sdk.Invalid("feature", "required, UTF-8 without NUL")
	case !named(q.Reducer):
		return sdk.Invalid("reducer", nameRule)
	case len(q.Meters) > maxMeters:
		return sdk.Invalid("meters", "at most 100")
	case len(q.Events)+len(q.Receipts) > maxAskedIDs:
		return sdk.Invalid("events", "with the receipts at most 1000")
	case !q.ColdFloor.IsZero() && q.ColdFloor.UnixMicro()%storage.BucketLength.Microseconds() != 0:
		return sdk.Invalid("cold_floor", "the start of a bucket")
	}
	for _, ids := range [][]string{q.Meters, q.Events, q.Receipts} {
		for _, id := range ids {
			if !storable(id) {
				return sdk.Invalid("query", "UTF-8 without NUL")
			}
		}
	}
	for name, value := range q.Filter {
		if !storable(name) || !storable(value) {
			return sdk.Invalid("filter", "UTF-8 without NUL")
		}
	}
	return nil
}

const nameRule = "1 to 128 bytes of UTF-8 without NUL"

func named(s string) bool { return s != "" && len(s) <= maxName && storable(s) }
