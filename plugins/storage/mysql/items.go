package mysql

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// item is a row of fencepost_items: what the contract shows, and what is used
// to decide.
type item struct {
	storage.Item
	subject storage.Hash
	event   int64 // seq; zero: none
	payload json.RawMessage
	usageAt time.Time
	value   decimal.Decimal
	// changed says that the row is to be written; before is what it was.
	changed bool
}

const (
	// What never changes of an item, and what does.
	fixedColumns = "item, digest, subject_key, tenant, subject_kind, subject_ref, exporter, account, mode, mapping_version, route, " +
		"event_seq, feature, payload, created_at, usage_at, usage_value, depends_on"
	movingColumns = "subject, customer, serial_key, state, attempts, attempt_budget, unresolved, first_attempt_at, first_unresolved_at, " +
		"next_attempt_at, claimed_at, lease_owner, lease_expires_at, lease_token, provider_ref, accepted_at, confirmed_at, confirmed_by, " +
		"disputed, last_error, quarantine_reason, settled_at, superseded_by, method, waits"
	itemColumns = fixedColumns + ", " + movingColumns
	selectItems = "SELECT " + itemColumns + " FROM fencepost_items WHERE "
	itemCount   = 18 + 25
)

var (
	insertItemText = "INSERT INTO fencepost_items (" + itemColumns + ") VALUES " + places(itemCount)
	updateItemText = "UPDATE fencepost_items SET " + strings.ReplaceAll(movingColumns, ",", " = ?,") + " = ? WHERE item = ?"
)

func (r *row) item() *item {
	it := &item{Item: storage.Item{ItemID: r.int(), Digest: r.hash()}, subject: r.hash()}
	id := &it.Identity
	id.Tenant, id.SubjectKind, id.SubjectRef, id.Exporter = r.text(), storage.SubjectKind(r.text()), r.text(), r.text()
	id.Account, id.Mode, id.MappingVersion, it.RouteID = r.text(), r.text(), r.text(), r.int()
	it.event, it.Feature, it.payload, it.CreatedAt, it.usageAt, it.value, it.DependsOn = r.int(), r.text(), r.json(), r.time(), r.time(), r.decimal(), r.int()
	_ = r.bytes() // subject follows from superseded_by
	it.Customer, it.SerialKey, it.State, it.Attempts = r.text(), r.text(), storage.ItemState(r.text()), int(r.int())
	it.AttemptBudget, it.Unresolved, it.FirstAttemptAt, it.FirstUnresolvedAt = int(r.int()), r.bool(), r.time(), r.time()
	it.NextAttemptAt, it.ClaimedAt, it.LeaseOwner, it.LeaseExpiresAt, it.LeaseToken = r.time(), r.time(), r.text(), r.time(), r.int()
	it.ProviderRef, it.AcceptedAt, it.ConfirmedAt, it.ConfirmedBy, it.Disputed = r.text(), r.time(), r.time(), r.text(), r.text()
	r.decode(&it.LastError)
	it.QuarantineReason, it.SettledAt, it.SupersededBy, it.Method, it.Waits = r.text(), r.time(), r.int(), r.text(), r.bool()
	return it
}

func (it *item) fixed() []any {
	id := &it.Identity
	return []any{
		it.ItemID, it.Digest, it.subject, id.Tenant, string(id.SubjectKind), id.SubjectRef, id.Exporter, id.Account, id.Mode,
		id.MappingVersion, it.RouteID, it.event, it.Feature, it.payload, it.CreatedAt, it.usageAt, it.value, it.DependsOn,
	}
}

func (it *item) moving() []any {
	var subject any
	if it.SupersededBy == 0 {
		subject = it.subject
	}
	var last json.RawMessage
	if it.LastError != nil {
		last, _ = json.Marshal(it.LastError) // two strings and a number
	}
	return []any{
		subject, it.Customer, it.SerialKey, string(it.State), it.Attempts, it.AttemptBudget, it.Unresolved, it.FirstAttemptAt,
		it.FirstUnresolvedAt, it.NextAttemptAt, it.ClaimedAt, it.LeaseOwner, it.LeaseExpiresAt, it.LeaseToken, it.ProviderRef,
		it.AcceptedAt, it.ConfirmedAt, it.ConfirmedBy, it.Disputed, last, it.QuarantineReason, it.SettledAt, it.SupersededBy,
		it.Method, it.Waits,
	}
}

// save writes the rows that changed, in their order.
func (t *tx) save(items ...*item) error {
	slices.SortFunc(items, func(a, b *item) int { return int(a.ItemID - b.ItemID) })
	for _, it := range items {
		if !it.changed {
			continue
		}
		it.changed = false
		t.exec(1, updateItemText, append(it.moving(), it.ItemID)...)
		if err := t.room(); err != nil {
			return err
		}
	}
	return nil
}

// insertItem keeps the insert of an item unless its identity or its sendable
// subject exists, and answers its id: zero if it does, and whether it is another
// item of the same subject that stands in its place.
func (t *tx) insertItem(n *known, x *newItem) (id int64, superseded bool) {
	switch {
	case n.digests[x.Digest]:
		return 0, false
	case n.subjects[x.SubjectKey]:
		return 0, true
	}
	t.state.lastItem++
	t.moved = true
	it := &item{
		Item: storage.Item{
			ItemID: t.state.lastItem, Identity: x.Identity, Digest: x.Digest, RouteID: x.RouteID, Feature: x.feature,
			Customer: x.Customer, SerialKey: x.SerialKey, State: storage.Pending, AttemptBudget: x.AttemptBudget,
			NextAttemptAt: t.now, QuarantineReason: x.QuarantineReason, CreatedAt: t.now,
		},
		subject: x.SubjectKey, event: x.event, payload: x.Payload, usageAt: x.at, value: x.value,
	}
	if x.QuarantineReason != "" {
		it.State, it.NextAttemptAt = storage.Quarantined, time.Time{}
	}
	if x.Settled {
		it.SettledAt = t.now
	}
	if d := x.DependsOn; d != nil {
		it.DependsOn, it.Waits = d.ItemID, d.Wait
	}
	n.digests[x.Digest], n.subjects[x.SubjectKey] = true, true
	t.exec(1, insertItemText, append(it.fixed(), it.moving()...)...)
	return it.ItemID, false
}
