//go:build faults && unix

package faults

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// books is what a store holds, read by SQL of its own and not through the
// adapter.
type books struct {
	events   map[int64]storedEvent
	byKey    map[eventKey]storedEvent
	items    []storedItem
	routes   []storedRoute
	totals   map[totalKey]storedTotal
	attempts map[int64][]storedAttempt
	counts   map[string]int64 // by route and state, as the store keeps them
	problems []string         // of integrity_check and foreign_key_check
}

type storedEvent struct {
	seq      int64
	key      eventKey
	feature  string
	quantity decimal.Decimal
	effect   decimal.Decimal // on totals
	kind     string
	original string // of a correction
	at       time.Time
	period   int64
}

type storedItem struct {
	id, route, seq                                  int64
	identifier, exporter, account, mode, customer   string
	feature, state, quarantine, providerRef, serial string
	attempts, budget                                int
	unresolved                                      bool
	token                                           int64
	code                                            string // of the last error
	kind, method                                    string // of the subject; how a correction is told
	dependsOn                                       int64  // the original's item
	disputed                                        string // the provider's code of a late refusal
}

type storedRoute struct {
	id, after                                  int64
	exporter, account, mode, feature, disposed string
	retired                                    bool
}

type totalKey struct {
	tenant, feature string
	period          int64
}

type storedTotal struct {
	quantity decimal.Decimal
	events   int64
}

type storedAttempt struct {
	token                       int64
	owner, class, decided, code string
	fenced                      bool
}

// read reads the whole store. A server may be running.
func (r *rig) read() *books {
	r.t.Helper()
	b, err := r.books()
	if err != nil {
		r.t.Fatalf("read the store: %v", err)
	}
	return b
}

func readBooks(path string) (*books, error) {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	c.SetBusyTimeout(patience)
	b := &books{
		events: map[int64]storedEvent{}, byKey: map[eventKey]storedEvent{}, totals: map[totalKey]storedTotal{},
		attempts: map[int64][]storedAttempt{}, counts: map[string]int64{},
	}
	// One snapshot for all of it.
	if err := sqlitex.ExecuteTransient(c, "BEGIN", nil); err != nil {
		return nil, err
	}
	for _, q := range []struct {
		sql string
		row func(*sqlite.Stmt) error
	}{
		{"SELECT seq, tenant_key, event_id, feature, quantity, occurred_at, period_start, coalesce(effect, quantity), kind, coalesce(original_event_id, '') FROM fencepost_events", b.event},
		{`SELECT i.item, i.route, coalesce(i.event_seq, 0), 'fencepost_' || lower(hex(i.digest)), i.exporter, i.destination_account, i.mode,
		         i.customer, i.feature, coalesce(s.state, ''), coalesce(s.quarantine_reason, ''), coalesce(s.provider_ref, ''), coalesce(s.serial_key, ''),
		         coalesce(s.attempts, 0), coalesce(s.attempt_budget, 0), coalesce(s.unresolved, 0), coalesce(s.lease_token, 0), coalesce(s.last_error, '{}'),
		         i.subject_kind, coalesce(s.method, ''), coalesce(i.depends_on, 0), coalesce(s.disputed, '')
		  FROM fencepost_outbox_items AS i LEFT JOIN fencepost_outbox_state AS s ON s.item = i.item ORDER BY i.item`, b.item},
		{"SELECT route, applies_after, exporter, destination_account, mode, feature, disposition, retired_at IS NOT NULL FROM fencepost_routes", b.route},
		{`SELECT tenant_key, feature, period_start, quantity, events FROM fencepost_totals
		  WHERE generation = (SELECT active FROM fencepost_generations)`, b.total},
		{"SELECT item, lease_token, owner, host_class, decided, code, fenced FROM fencepost_attempts ORDER BY item, n", b.attempt},
		{"SELECT route, state, items FROM fencepost_outbox_counts WHERE items <> 0", b.count},
		{"SELECT s.item FROM fencepost_outbox_state AS s WHERE s.item NOT IN (SELECT item FROM fencepost_outbox_items)", b.orphan},
		{"PRAGMA integrity_check", b.problem},
		{"PRAGMA foreign_key_check", b.problem},
	} {
		if err := sqlitex.ExecuteTransient(c, q.sql, &sqlitex.ExecOptions{ResultFunc: q.row}); err != nil {
			return nil, fmt.Errorf("%s: %w", q.sql, err)
		}
	}
	return b, nil
}

func (b *books) event(s *sqlite.Stmt) error {
	q, err := decimal.Parse(s.ColumnText(4))
	if err != nil {
		return err
	}
	effect, err := decimal.Parse(s.ColumnText(7))
	if err != nil {
		return err
	}
	e := storedEvent{
		effect: effect, kind: s.ColumnText(8), original: s.ColumnText(9), seq: s.ColumnInt64(0), key: eventKey{s.ColumnText(1), s.ColumnText(2)}, feature: s.ColumnText(3),
		quantity: q, at: time.UnixMicro(s.ColumnInt64(5)).UTC(), period: s.ColumnInt64(6),
	}
	b.events[e.seq], b.byKey[e.key] = e, e
	return nil
}

func (b *books) item(s *sqlite.Stmt) error {
	var last struct{ Code string }
	if err := json.Unmarshal([]byte(s.ColumnText(17)), &last); err != nil {
		return fmt.Errorf("last_error: %w", err)
	}
	b.items = append(b.items, storedItem{
		id: s.ColumnInt64(0), route: s.ColumnInt64(1), seq: s.ColumnInt64(2), identifier: s.ColumnText(3),
		exporter: s.ColumnText(4), account: s.ColumnText(5), mode: s.ColumnText(6), customer: s.ColumnText(7),
		feature: s.ColumnText(8), state: s.ColumnText(9), quarantine: s.ColumnText(10), providerRef: s.ColumnText(11), serial: s.ColumnText(12),
		attempts: s.ColumnInt(13), budget: s.ColumnInt(14), unresolved: s.ColumnBool(15), token: s.ColumnInt64(16), code: last.Code,
		kind: s.ColumnText(18), method: s.ColumnText(19), dependsOn: s.ColumnInt64(20), disputed: s.ColumnText(21),
	})
	return nil
}

func (b *books) route(s *sqlite.Stmt) error {
	b.routes = append(b.routes, storedRoute{
		id: s.ColumnInt64(0), after: s.ColumnInt64(1), exporter: s.ColumnText(2), account: s.ColumnText(3), mode: s.ColumnText(4),
		feature: s.ColumnText(5), disposed: s.ColumnText(6), retired: s.ColumnBool(7),
	})
	return nil
}

func (b *books) total(s *sqlite.Stmt) error {
	q, err := decimal.ParseTotal(s.ColumnText(3))
	b.totals[totalKey{s.ColumnText(0), s.ColumnText(1), s.ColumnInt64(2)}] = storedTotal{q, s.ColumnInt64(4)}
	return err
}

func (b *books) attempt(s *sqlite.Stmt) error {
	id := s.ColumnInt64(0)
	b.attempts[id] = append(b.attempts[id], storedAttempt{
		token: s.ColumnInt64(1), owner: s.ColumnText(2), class: s.ColumnText(3), decided: s.ColumnText(4), code: s.ColumnText(5), fenced: s.ColumnBool(6),
	})
	return nil
}

func (b *books) count(s *sqlite.Stmt) error {
	b.counts[fmt.Sprint(s.ColumnInt64(0), " ", s.ColumnText(1))] = s.ColumnInt64(2)
	return nil
}

func (b *books) orphan(s *sqlite.Stmt) error {
	b.problems = append(b.problems, fmt.Sprintf("item %d has a state and no item row", s.ColumnInt64(0)))
	return nil
}

func (b *books) problem(s *sqlite.Stmt) error {
	if text := s.ColumnText(0); text != "ok" {
		b.problems = append(b.problems, text)
	}
	return nil
}

// states counts items by state.
func (b *books) states() map[string]int {
	n := map[string]int{}
	for _, it := range b.items {
		n[it.state]++
	}
	return n
}

// of returns the item of a plain event.
func (b *books) of(t *testing.T, id string) storedItem {
	t.Helper()
	e, ok := b.byKey[eventKey{tenant, id}]
	if !ok {
		t.Fatalf("event %s is not stored", id)
	}
	for _, it := range b.items {
		if it.seq == e.seq {
			return it
		}
	}
	t.Fatalf("event %s has no item", id)
	return storedItem{}
}
