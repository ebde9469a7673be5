package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qItemsInsert query = "items_insert"
	qDependLock  query = "depend_lock"
)

// itemOf is an item of what is stored. seq is zero for a window.
type itemOf struct {
	new     *storage.NewItem
	seq     int64
	feature string
	// id is the item's own; zero: one is given to it.
	id int64
}

// insertedItems says what became of items, in their order.
type insertedItems struct {
	// ids are zero where nothing was inserted.
	ids []int64
	// superseded counts those whose subject is sendable already.
	superseded int
}

// insertItems inserts items, doing nothing where an item's identity exists or
// its subject is sendable already. The record statement does the same for the
// events that it inserts. What items depend on must have been locked.
func insertItems(ctx context.Context, t *tx, items []itemOf) (done insertedItems, err error) {
	if len(items) == 0 {
		return done, nil
	}
	n := len(items)
	var c itemArrays
	seqs, features := make([]int64, n), make([]string, n)
	depends, waits, usageAt, given := make([]int64, n), make([]bool, n), make([]*time.Time, n), make([]int64, n)
	for i, it := range items {
		seqs[i], features[i], given[i] = it.seq, it.feature, it.id
		c.add(it.new, 0)
		if d := it.new.DependsOn; d != nil {
			depends[i], waits[i] = d.ItemID, d.Wait
		}
		if it.new.Identity.SubjectKind == storage.SubjectWindow {
			usageAt[i] = windowOf(it.new.Payload).Timestamp
		}
	}
	done.ids = make([]int64, n)
	args := append([]any{seqs, features}, c.args()...)
	err = t.each(ctx, qItemsInsert, func(rows pgx.Rows) error {
		var ord int
		var id int64
		err := rows.Scan(&ord, intInto(&id))
		done.ids[ord-1] = id
		if id == 0 {
			done.superseded++
		}
		return err
	}, append(args, depends, waits, usageAt, given)...)
	return done, err
}

// window is what is read from the payload of a window.
type window struct {
	Feature   string     `json:"feature"`
	Timestamp *time.Time `json:"timestamp"`
}

// windowOf reads what it can.
func windowOf(payload json.RawMessage) (w window) {
	if json.Unmarshal(payload, &w) != nil {
		return window{}
	}
	return w
}

// dependencies locks what items depend on, in item order, and reports whether
// all of it is what the items were computed from. Whoever moves one of these
// later sees what depends on it.
func dependencies(ctx context.Context, t *tx, items []storage.NewItem) (same bool, err error) {
	var ids []int64
	for i := range items {
		if d := items[i].DependsOn; d != nil {
			ids = append(ids, d.ItemID)
		}
	}
	if len(ids) == 0 {
		return true, nil
	}
	slices.Sort(ids)
	found := map[int64]storage.Dependency{}
	err = t.each(ctx, qDependLock, func(rows pgx.Rows) error {
		var d storage.Dependency
		err := rows.Scan(&d.ItemID, textInto(&d.State), &d.Settled, &d.Superseded)
		found[d.ItemID] = d
		return err
	}, slices.Compact(ids))
	if err != nil {
		return false, err
	}
	for i := range items {
		if d := items[i].DependsOn; d != nil {
			want := *d
			want.Wait = false
			if found[d.ItemID] != want {
				return false, nil
			}
		}
	}
	return true, nil
}

func itemsMoved() *sdk.Error {
	return &sdk.Error{
		Tag: sdk.TagConflict, Code: "items_moved", Field: "items",
		Rule: "items that depend on others as they are",
	}
}
