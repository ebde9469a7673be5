//go:build faults && linux

package faults

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// readPostgres is readBooks of a schema in PostgreSQL.
func readPostgres(dsn, schema string) (*books, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, pgtest.Plain(dsn))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close(ctx) }()
	// One snapshot for all of it.
	tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, err
	}
	b := &books{
		events: map[int64]storedEvent{}, byKey: map[eventKey]storedEvent{}, totals: map[totalKey]storedTotal{},
		attempts: map[int64][]storedAttempt{}, counts: map[string]int64{},
	}
	for _, q := range []struct {
		sql string
		row func(pgx.Rows) error
	}{
		{`SELECT seq, tenant_key, event_id, feature, quantity::text, effect::text, kind, coalesce(original_event_id, ''), occurred_at,
		         (extract(epoch FROM period_start) * 1000000)::bigint FROM $.fencepost_events`, b.pgEvent},
		{`SELECT i.item, i.route, coalesce(i.event_seq, 0), 'fencepost_' || encode(i.digest, 'hex'), i.exporter, i.destination_account, i.mode,
		         i.customer, i.feature, coalesce(s.state, ''), coalesce(s.quarantine_reason, ''), coalesce(s.provider_ref, ''), coalesce(s.serial_key, ''),
		         coalesce(s.attempts, 0), coalesce(s.attempt_budget, 0), coalesce(s.unresolved, false), coalesce(s.lease_token, 0),
		         coalesce(nullif(s.last_error, '')::jsonb ->> 'code', ''), i.subject_kind, coalesce(s.method, ''), coalesce(i.depends_on, 0), coalesce(s.disputed, '')
		  FROM $.fencepost_outbox_items AS i LEFT JOIN $.fencepost_outbox_state AS s ON s.item = i.item ORDER BY i.item`, b.pgItem},
		{"SELECT route, applies_after, exporter, destination_account, mode, feature, disposition, retired_at IS NOT NULL FROM $.fencepost_routes", b.pgRoute},
		{`SELECT tenant_key, feature, (extract(epoch FROM period_start) * 1000000)::bigint, quantity::text, events FROM $.fencepost_totals
		  WHERE generation = (SELECT active FROM $.fencepost_generations)`, b.pgTotal},
		{"SELECT item, lease_token, owner, host_class, decided, code, fenced FROM $.fencepost_attempts ORDER BY item, attempt", b.pgAttempt},
		{"SELECT route, state, sum(items)::bigint FROM $.fencepost_outbox_counts GROUP BY 1, 2 HAVING sum(items) <> 0", b.pgCount},
		{"SELECT 'item ' || item || ' has a state and no item row' FROM $.fencepost_outbox_state AS s WHERE NOT EXISTS (SELECT FROM $.fencepost_outbox_items AS i WHERE i.item = s.item)", b.pgProblem},
		{"SELECT 'item ' || item || ' is of no event' FROM $.fencepost_outbox_items AS i WHERE event_seq IS NOT NULL AND NOT EXISTS (SELECT FROM $.fencepost_events AS e WHERE e.seq = i.event_seq)", b.pgProblem},
		{"SELECT 'event ' || seq || ' is above the sequence' FROM $.fencepost_events WHERE seq > (SELECT last_value FROM $.fencepost_event_seq)", b.pgProblem},
		{`SELECT 'totals of ' || tenant_key || '/' || feature || ' are ' || quantity FROM $.fencepost_totals
		  WHERE NOT signed AND quantity < 0`, b.pgProblem},
		{`SELECT 'event ' || event_id || ' is corrected by more than it is' FROM $.fencepost_events AS e WHERE kind = 'usage'
		  AND quantity < (SELECT sum(c.quantity) FROM $.fencepost_events AS c WHERE c.tenant_key = e.tenant_key AND c.original_event_id = e.event_id AND NOT c.reverses)`, b.pgProblem},
	} {
		sql := strings.ReplaceAll(q.sql, "$.", schema+".")
		rows, err := tx.Query(ctx, sql)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sql, err)
		}
		for err == nil && rows.Next() {
			err = q.row(rows)
		}
		rows.Close()
		if err == nil {
			err = rows.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sql, err)
		}
	}
	return b, nil
}

func (b *books) pgEvent(rows pgx.Rows) error {
	var e storedEvent
	var quantity, effect string
	var at time.Time
	if err := rows.Scan(&e.seq, &e.key.tenant, &e.key.id, &e.feature, &quantity, &effect, &e.kind, &e.original, &at, &e.period); err != nil {
		return err
	}
	var err error
	if e.quantity, err = decimal.Parse(quantity); err != nil {
		return err
	}
	if e.effect, err = decimal.Parse(effect); err != nil {
		return err
	}
	e.at = at.UTC()
	b.events[e.seq], b.byKey[e.key] = e, e
	return nil
}

func (b *books) pgItem(rows pgx.Rows) error {
	var i storedItem
	if err := rows.Scan(&i.id, &i.route, &i.seq, &i.identifier, &i.exporter, &i.account, &i.mode, &i.customer, &i.feature, &i.state, &i.quarantine,
		&i.providerRef, &i.serial, &i.attempts, &i.budget, &i.unresolved, &i.token, &i.code, &i.kind, &i.method, &i.dependsOn, &i.disputed); err != nil {
		return err
	}
	b.items = append(b.items, i)
	return nil
}

func (b *books) pgRoute(rows pgx.Rows) error {
	var r storedRoute
	if err := rows.Scan(&r.id, &r.after, &r.exporter, &r.account, &r.mode, &r.feature, &r.disposed, &r.retired); err != nil {
		return err
	}
	b.routes = append(b.routes, r)
	return nil
}

func (b *books) pgTotal(rows pgx.Rows) error {
	var k totalKey
	var t storedTotal
	var quantity string
	if err := rows.Scan(&k.tenant, &k.feature, &k.period, &quantity, &t.events); err != nil {
		return err
	}
	var err error
	t.quantity, err = decimal.ParseTotal(quantity)
	b.totals[k] = t
	return err
}

func (b *books) pgAttempt(rows pgx.Rows) error {
	var item int64
	var a storedAttempt
	if err := rows.Scan(&item, &a.token, &a.owner, &a.class, &a.decided, &a.code, &a.fenced); err != nil {
		return err
	}
	b.attempts[item] = append(b.attempts[item], a)
	return nil
}

func (b *books) pgCount(rows pgx.Rows) error {
	var route, items int64
	var state string
	if err := rows.Scan(&route, &state, &items); err != nil {
		return err
	}
	b.counts[fmt.Sprint(route, " ", state)] = items
	return nil
}

func (b *books) pgProblem(rows pgx.Rows) error {
	var text string
	if err := rows.Scan(&text); err != nil {
		return err
	}
	b.problems = append(b.problems, text)
	return nil
}
