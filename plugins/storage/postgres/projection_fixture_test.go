package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// recordUsage records usage events in one call.
func recordUsage(ctx context.Context, s storage.EventStore, events ...storage.Event) error {
	req := storage.RecordRequest{Mode: storage.Atomic}
	tenants := map[string]bool{}
	for _, e := range events {
		key := keyOfBucket(e)
		req.Units = append(req.Units, storage.Unit{Entries: []storage.Entry{{Event: e, Bucket: &key}}})
		if !tenants[e.Tenant] {
			req.Subscriptions = append(req.Subscriptions, storage.SubscriptionRevision{Tenant: e.Tenant})
		}
		tenants[e.Tenant] = true
	}
	res, err := s.RecordEvents(ctx, req)
	if err != nil {
		return err
	}
	if res.Stale != nil {
		return errors.New("stale")
	}
	for _, u := range res.Units {
		if u.Outcome != storage.Inserted {
			return fmt.Errorf("outcome %q", u.Outcome)
		}
	}
	return nil
}

// correctUsage takes a part of an original back, or answers false when there is
// not so much left.
func correctUsage(ctx context.Context, a *Adapter, original storage.Event, id, magnitude string) (bool, error) {
	key := keyOfBucket(original)
	res, err := a.RecordCorrection(ctx, storage.CorrectRequest{
		Event: correctionOf(original, id, magnitude, false), Bucket: &key,
	})
	switch {
	case err != nil:
		return false, err
	case res.Stale != nil:
		return false, errors.New("stale")
	case res.Refused == storage.RefusedExceedsOriginal || res.Refused == storage.RefusedNothingRemaining:
		return false, nil
	case res.Outcome != storage.Inserted:
		return false, fmt.Errorf("outcome %q, refused %q", res.Outcome, res.Refused)
	}
	return true, nil
}

// totalOf is what an event adds to its total.
func totalOf(e storage.Event) storage.TotalDelta {
	d := storage.TotalDelta{
		Tenant: e.Tenant, Feature: e.Feature, PeriodStart: e.PeriodStart, PeriodEnd: e.PeriodEnd,
		Quantity: e.Effect, Events: 1,
	}
	switch {
	case e.Kind == storage.Usage:
		d.Count = 1
	case e.Reverses:
		d.Count = -1
	}
	return d
}

// bucketOf is what an event adds to its bucket; the buckets keep "model".
func bucketOf(e storage.Event, seq int64) storage.BucketDelta {
	d := storage.BucketDelta{
		Tenant: e.Tenant, Feature: e.Feature, Seq: seq, Sum: e.Effect, Count: totalOf(e).Count, Key: keyOfBucket(e),
	}
	if e.Kind == storage.Usage {
		d.Min, d.Max = &e.Quantity, &e.Quantity
	} else {
		d.Reversed = true
	}
	return d
}

func keyOfBucket(e storage.Event) storage.BucketKey {
	k := storage.BucketKey{Start: e.OccurredAt.Truncate(storage.BucketLength)}
	if v, ok := e.Dimensions["model"]; ok {
		k.Dimensions = map[string]string{"model": v}
	}
	return k
}

// scan reads the events of the next batch and answers what they add up to: what
// a replay does. It returns false when the watermark is reached.
func scan(ctx context.Context, a *Adapter, st storage.ProjectionState, limit int) (b storage.ProjectionBatch, more bool, err error) {
	b = storage.ProjectionBatch{Generation: st.Building, After: st.Cursor, Cursor: st.Watermark}
	if st.Cursor >= st.Watermark {
		return b, false, nil
	}
	const text = `SELECT seq, tenant_key, event_id, feature, quantity::text, effect::text, kind, reverses, occurred_at,
  period_start, period_end, dimensions FROM {schema}.fencepost_events WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3`
	rows, err := a.pools[workPool].Query(ctx, withSchema(text, a.target.schema), st.Cursor, st.Watermark, limit)
	if err != nil {
		return b, false, err
	}
	events, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (e storage.Event, err error) {
		err = r.Scan(&e.Seq, &e.Tenant, &e.EventID, &e.Feature, decimalInto{&e.Quantity}, decimalInto{&e.Effect}, &e.Kind,
			&e.Reverses, utcInto{&e.OccurredAt}, utcInto{&e.PeriodStart}, utcInto{&e.PeriodEnd}, &e.Dimensions)
		return e, err
	})
	if err != nil {
		return b, false, err
	}
	for _, e := range events {
		b.Totals, b.Buckets = append(b.Totals, totalOf(e)), append(b.Buckets, bucketOf(e, e.Seq))
		b.Cursor = e.Seq
	}
	return b, true, nil
}

// replay scans, drains and activates the build that exists. after runs after
// every commit of its own. Each second step is folded by the server.
func replay(ctx context.Context, a *Adapter, size int, after func() error) error {
	model := []string{"model"}
	kept := map[string][]string{"tokens": model, "calls": model, "f0": model, "f1": model, "f2": model}
	for step := 0; ; step++ {
		st, err := a.ProjectionState(ctx)
		if err != nil {
			return err
		}
		b, more, err := scan(ctx, a, st, size)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if step%2 == 0 {
			err = a.WriteProjection(ctx, b)
		} else {
			_, err = a.FoldProjection(ctx, storage.ProjectionFold{Generation: st.Building, After: st.Cursor, Limit: size, Buckets: kept})
		}
		if err != nil {
			return err
		}
		if err := after(); err != nil {
			return err
		}
	}
	st, err := a.ProjectionState(ctx)
	if err != nil {
		return err
	}
	for n := size; n == size; {
		if n, err = a.DrainSeed(ctx, st.Building, size); err != nil {
			return err
		}
		if err := after(); err != nil {
			return err
		}
	}
	_, err = a.ActivateProjection(ctx, st.Building)
	return err
}

// checkEquations recomputes every generation from the events, in one snapshot:
// active = all events and what was pruned; building = what was scanned, what
// was recorded since the announcement, what was pruned, and what is left of the
// seed (I4, B44).
func checkEquations(ctx context.Context, a *Adapter) error {
	const text = `
WITH g AS (SELECT * FROM {schema}.fencepost_generations),
e AS (
  SELECT e.tenant_key, e.feature, e.period_start, x.generation, e.effect AS quantity, 1::bigint AS events,
    CASE WHEN e.kind = 'usage' THEN 1 WHEN e.reverses THEN -1 ELSE 0 END AS count
  FROM {schema}.fencepost_events AS e, g,
    LATERAL (VALUES (g.active, true), (g.building, e.seq <= g.cursor OR e.seq > g.watermark)) AS x (generation, counts)
  WHERE x.counts AND x.generation IS NOT NULL
  UNION ALL
  SELECT t.tenant_key, t.feature, t.period_start, x.generation, t.quantity, t.events, t.count
  FROM {schema}.fencepost_totals AS t, g,
    LATERAL (VALUES (g.active, 0), (g.building, 0), (g.building, -g.building)) AS x (generation, source)
  WHERE t.generation = x.source AND x.generation IS NOT NULL
),
want AS (
  SELECT tenant_key, feature, period_start, generation, sum(quantity) AS quantity, sum(events) AS events, sum(count) AS count
  FROM e GROUP BY 1, 2, 3, 4
),
got AS (
  SELECT t.* FROM {schema}.fencepost_totals AS t, g WHERE t.generation = g.active OR t.generation = g.building
)
SELECT format('%s/%s of generation %s: total %s (%s rows, %s net), events add up to %s (%s rows, %s net)',
  coalesce(w.tenant_key, t.tenant_key), coalesce(w.feature, t.feature), coalesce(w.generation, t.generation),
  t.quantity, t.events, t.count, w.quantity, w.events, w.count)
FROM want AS w FULL JOIN got AS t
  ON (w.tenant_key, w.feature, w.period_start, w.generation) = (t.tenant_key, t.feature, t.period_start, t.generation)
WHERE (coalesce(w.quantity, 0), coalesce(w.events, 0), coalesce(w.count, 0))
  <> (coalesce(t.quantity, 0), coalesce(t.events, 0), coalesce(t.count, 0))
LIMIT 3`
	rows, err := a.pools[workPool].Query(ctx, withSchema(text, a.target.schema))
	if err != nil {
		return err
	}
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(wrong) > 0 {
		err = fmt.Errorf("the totals are not those of the events: %q", wrong)
	}
	return err
}

func state(t testing.TB, a *Adapter) storage.ProjectionState {
	t.Helper()
	st, err := a.ProjectionState(t.Context())
	must(t, err)
	return st
}

func begin(t testing.TB, a *Adapter) storage.ProjectionState {
	t.Helper()
	st, err := a.BeginProjection(t.Context(), "")
	must(t, err)
	return st
}
