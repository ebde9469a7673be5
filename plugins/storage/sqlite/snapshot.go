package sqlite

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	maxName     = 128
	maxMeters   = 100
	maxAskedIDs = 1000
)

// Snapshot answers an outpost. The version is written in the transaction that
// reads: nobody else writes meanwhile, so what is counted and what is confirmed
// are of one moment, and versions rise with what they saw. // G1 to G5.
func (a *Adapter) Snapshot(ctx context.Context, q storage.SnapshotQuery) (out storage.Snapshot, err error) {
	const op = "snapshot"
	if err := checkSnapshot(&q); err != nil {
		return out, fmt.Errorf("%s: %w", op, err)
	}
	err = a.write(ctx, op, func(_ context.Context, c *conn) error {
		out = storage.Snapshot{AsOf: a.now(), Events: []string{}, Receipts: []string{}}
		if err := checkKept(c, &storage.AggregateQuery{Feature: q.Feature, Filter: q.Filter}); err != nil {
			return err
		}
		open := out.AsOf.Truncate(storage.BucketLength)
		end := open.Add(storage.BucketLength)
		if q.ColdFloor.After(end) {
			return &sdk.Error{Tag: sdk.TagConflict, Code: "cold_regressed", Field: "cold_floor", Rule: "at most the end of the store's bucket of now"}
		}
		out.ColdUntil = open
		if q.Bootstrap {
			out.ColdUntil = end
		}
		if q.ColdFloor.After(out.ColdUntil) {
			out.ColdUntil = q.ColdFloor.UTC()
		}
		if _, err := c.bind(qSnapshotVersion).text(q.Tenant).text(q.Reducer).time(out.AsOf).one(func(r *row) { out.Version = r.int() }); err != nil {
			return err
		}
		if err := snapshotTotals(c, &q, &out); err != nil {
			return err
		}
		if err := snapshotIDs(c, &q, &out); err != nil {
			return err
		}
		out.Credited, err = credited(c, q.Tenant, q.Meters)
		if err != nil {
			return err
		}
		_, err = c.bind(qTenantKnown).text(q.Tenant).one(func(r *row) { out.Known = r.bool() })
		return err
	})
	if err != nil {
		return storage.Snapshot{}, err
	}
	return out, nil
}

func snapshotTotals(c *conn, q *storage.SnapshotQuery, out *storage.Snapshot) error {
	if _, err := c.bind(qSealLast).text(q.Tenant).text(q.Feature).one(func(r *row) { _, out.WindowStart = r.int(), r.time() }); err != nil {
		return err
	}
	const all = -1
	return c.bind(qBuckets).text(q.Tenant).text(q.Feature).int(math.MinInt64).time(out.ColdUntil).bool(true).int(all).int(0).
		each(func(r *row) error {
			b := r.bucket()
			for name, want := range q.Filter {
				if got, ok := b.Dimensions[name]; !ok || got != want {
					return nil
				}
			}
			out.Sum = out.Sum.Add(b.Sum)
			out.Count += b.Count
			out.Min, out.Max = least(out.Min, b.Min), most(out.Max, b.Max)
			return nil
		})
}

func snapshotIDs(c *conn, q *storage.SnapshotQuery, out *storage.Snapshot) error {
	for _, of := range []struct {
		query query
		asked []string
		into  *[]string
	}{{qSnapshotEvent, q.Events, &out.Events}, {qSnapshotReceipt, q.Receipts, &out.Receipts}} {
		for _, id := range of.asked {
			found, err := c.bind(of.query).text(q.Tenant).text(id).time(out.ColdUntil).one(func(*row) {})
			if err != nil {
				return err
			}
			if found {
				*of.into = append(*of.into, id)
			}
		}
	}
	return nil
}

func checkSnapshot(q *storage.SnapshotQuery) error {
	switch {
	case q.Tenant == "":
		return sdk.Invalid("tenant", "required")
	case q.Feature == "":
		return sdk.Invalid("feature", "required")
	case q.Reducer == "" || len(q.Reducer) > maxName:
		return sdk.Invalid("reducer", nameRule)
	case len(q.Meters) > maxMeters:
		return sdk.Invalid("meters", "at most 100")
	case len(q.Events)+len(q.Receipts) > maxAskedIDs:
		return sdk.Invalid("events", "with the receipts at most 1000")
	case !q.ColdFloor.Equal(q.ColdFloor.Truncate(storage.BucketLength)):
		return sdk.Invalid("cold_floor", "the start of a bucket")
	}
	return nil
}

const nameRule = "1 to 128 bytes"

// credited adds up what each meter was credited since its last reset.
func credited(c *conn, tenant string, meters []string) ([]storage.MeterCredit, error) {
	all := make([]storage.MeterCredit, len(meters))
	for i, m := range meters {
		all[i].Meter = m
		err := c.bind(qCreditAmounts).text(tenant).text(m).each(func(r *row) error {
			all[i].Amount = all[i].Amount.Add(r.total())
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// AddCredit appends a credit, or answers with the one that is stored.
func (a *Adapter) AddCredit(ctx context.Context, credit storage.Credit) (stored storage.Credit, err error) {
	const op = "add a credit"
	if err := checkCredit(&credit); err != nil {
		return stored, fmt.Errorf("%s: %w", op, err)
	}
	err = a.write(ctx, op, func(_ context.Context, c *conn) (err error) {
		stored, err = addCredit(c, credit, a.now())
		return err
	})
	if err != nil {
		return storage.Credit{}, err
	}
	return stored, nil
}

func addCredit(c *conn, credit storage.Credit, now time.Time) (stored storage.Credit, err error) {
	found, err := c.bind(qCredit).text(credit.Tenant).text(credit.Meter).text(credit.ID).one(func(r *row) { stored = r.credit(credit.Tenant) })
	switch {
	case err != nil:
		return stored, err
	case found && (stored.Kind != credit.Kind || !stored.Amount.Equal(credit.Amount) || stored.Reason != credit.Reason):
		return storage.Credit{}, &sdk.Error{
			Tag: sdk.TagConflict, Code: "credit_exists", Field: "id", Rule: "a name that no other credit of this tenant and meter has",
		}
	case found:
		return stored, nil
	}
	credit.CreatedAt = now
	_, err = c.bind(qCreditInsert).text(credit.Tenant).text(credit.Meter).text(credit.ID).text(string(credit.Kind)).
		decimal(credit.Amount).text(credit.Reason).time(now).one(func(r *row) { credit.Seq = r.int() })
	return credit, err
}

func (r *row) credit(tenant string) storage.Credit {
	return storage.Credit{
		Tenant: tenant, Seq: r.int(), Meter: r.text(), ID: r.text(), Kind: storage.CreditKind(r.text()),
		Amount: r.total(), Reason: r.text(), CreatedAt: r.time(),
	}
}

func checkCredit(c *storage.Credit) error {
	switch {
	case c.Tenant == "":
		return sdk.Invalid("tenant", "required")
	case c.Meter == "" || len(c.Meter) > maxName:
		return sdk.Invalid("meter", nameRule)
	case c.ID == "" || len(c.ID) > maxName:
		return sdk.Invalid("id", nameRule)
	case c.Kind != storage.CreditGrant && c.Kind != storage.CreditReset:
		return sdk.Invalid("kind", "grant or reset")
	case len(c.Reason) > 1000:
		return sdk.Invalid("reason", "at most 1000 bytes")
	}
	return nil
}

// LastSeals returns the last seal of each tenant that has one.
func (a *Adapter) LastSeals(ctx context.Context, feature string, tenants []string) (all []storage.Seal, err error) {
	const op = "load seals"
	if len(tenants) > maxAskedIDs {
		return nil, fmt.Errorf("%s: %w", op, sdk.Invalid("tenants", "at most 1000"))
	}
	err = a.read(ctx, op, func(c *conn) error {
		all = []storage.Seal{}
		for _, t := range tenants {
			s := storage.Seal{Tenant: t, Feature: feature}
			found, err := c.bind(qSealLast).text(t).text(feature).one(func(r *row) {
				s.Generation, s.Before, s.SealedAt = int(r.int()), r.time(), r.time()
			})
			if err != nil {
				return err
			}
			if found {
				all = append(all, s)
			}
		}
		return nil
	})
	return all, err
}

// Credits returns a page of a tenant's credits.
func (a *Adapter) Credits(ctx context.Context, q storage.CreditQuery) (page storage.CreditPage, err error) {
	const op = "list credits"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) error {
		page = storage.CreditPage{Credits: []storage.Credit{}, Next: q.After}
		return c.bind(qCredits).text(q.Tenant).int(q.After).optText(q.Meter).int(int64(q.Limit) + 1).
			each(func(r *row) error {
				page.Credits = append(page.Credits, r.credit(q.Tenant))
				return nil
			})
	})
	if page.More = len(page.Credits) > q.Limit; page.More {
		page.Credits = page.Credits[:q.Limit]
	}
	if n := len(page.Credits); n > 0 {
		page.Next = page.Credits[n-1].Seq
	}
	return page, err
}
