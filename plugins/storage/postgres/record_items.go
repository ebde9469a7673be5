package postgres

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const qItemsInsert query = "items_insert"

// itemOf is an item of an event that is stored.
type itemOf struct {
	new     *storage.NewItem
	seq     int64
	feature string
}

// insertItems inserts items, doing nothing where an item's identity exists or
// its subject is sendable already; the latter are counted. The record statement
// does the same for the events that it inserts.
func insertItems(ctx context.Context, t *tx, items []itemOf) (superseded int, err error) {
	if len(items) == 0 {
		return 0, nil
	}
	var c itemArrays
	seqs, features := make([]int64, len(items)), make([]string, len(items))
	for n, it := range items {
		seqs[n], features[n] = it.seq, it.feature
		c.add(it.new, 0)
	}
	err = t.row(ctx, qItemsInsert, []any{&superseded}, append([]any{seqs, features}, c.args()...)...)
	return superseded, err
}

// args are the columns after the order.
func (a *itemArrays) args() []any {
	return []any{
		a.tenant, a.kind, a.ref, a.exporter, a.account, a.mode, a.mapping,
		a.digest, a.subject, a.route, a.serial, a.customer, a.payload, a.quarantine, a.settled, a.budget,
	}
}
