package sqlite

import (
	"cmp"
	"errors"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// errItemsMoved: an item that a new one depends on is not as the caller saw it.
// Recording and correcting answer it as stale.
var errItemsMoved error = &sdk.Error{
	Tag: sdk.TagConflict, Code: "items_moved", Field: "items", Rule: "the items that they depend on as they are",
}

// itemPlace is what an item gets from where it is inserted.
type itemPlace struct {
	id      int64
	seq     int64 // of the event; zero: none
	feature string
	now     time.Time
	at      time.Time // of the event; zero: not known here
}

// insertItem inserts one item, unless its identity or its sendable subject
// exists. The moving row goes first: it carries the key that decides whether the
// subject may be sent at all.
func insertItem(c *conn, n *storage.NewItem, p itemPlace, counts countDeltas) (bool, error) {
	state, next, settled := storage.Pending, p.now, time.Time{}
	if n.QuarantineReason != "" {
		state, next = storage.Quarantined, time.Time{}
	}
	if n.Settled {
		settled = p.now
	}
	var dependsOn, waitsFor int64
	if d := n.DependsOn; d != nil {
		dependsOn = d.ItemID
		if d.Wait {
			waitsFor = d.ItemID
		}
	}
	rows, err := c.bind(qStateInsert).int(p.id).int(n.RouteID).hash(&n.SubjectKey).text(n.SerialKey).
		text(string(state)).int(int64(n.AttemptBudget)).optTime(next).optText(n.QuarantineReason).
		optTime(settled).optInt(waitsFor).run()
	if err != nil || rows == 0 {
		return false, err
	}
	if n.Identity.SubjectKind == storage.SubjectWindow {
		if p.at, _, err = windowValue(n.Payload); err != nil {
			return false, err
		}
	}
	rows, err = c.bind(qItemInsert).int(p.id).text(n.Identity.Tenant).text(string(n.Identity.SubjectKind)).
		text(n.Identity.SubjectRef).text(n.Identity.Exporter).text(n.Identity.Account).
		text(n.Identity.Mode).text(n.Identity.MappingVersion).hash(&n.Digest).int(n.RouteID).
		optInt(p.seq).text(p.feature).text(n.Customer).json(n.Payload).time(p.now).optInt(dependsOn).optTime(p.at).run()
	if err != nil {
		return false, err
	}
	if rows == 0 { // the identity exists, superseded: the moving row goes again
		_, err := c.bind(qStateDelete).int(p.id).run()
		return false, err
	}
	counts.add(n.RouteID, state, 1, !n.Settled)
	return true, nil
}

// dependencyMoved reports whether an item is not as a dependent was computed
// from. The writer lock stands for the lock of its row.
func dependencyMoved(c *conn, d *storage.Dependency) (bool, error) {
	if d == nil {
		return false, nil
	}
	moved := true
	_, err := c.bind(qDependency).int(d.ItemID).one(func(r *row) {
		state, settled, superseded := storage.ItemState(r.text()), r.bool(), r.bool()
		moved = state != d.State || settled != d.Settled || superseded != d.Superseded
	})
	return moved, err
}

// staleItems answers errItemsMoved as what it is to a caller that reads again:
// a stale assumption.
func staleItems(err error) (*storage.Stale, error) {
	if errors.Is(err, errItemsMoved) {
		return &storage.Stale{Items: true}, errUndo
	}
	return nil, err
}

// originalItem reads the item that another one depends on; nil for none.
func originalItem(c *conn, id int64, now time.Time) (*storage.OriginalItem, error) {
	if id == 0 {
		return nil, nil
	}
	o := storage.OriginalItem{ItemID: id}
	found, err := c.bind(qOriginal).int(id).one(func(r *row) {
		o.State, o.Unresolved, o.Disputed = storage.ItemState(r.text()), r.bool(), r.text()
		if first := r.time(); !first.IsZero() {
			o.SinceFirstAttempt = max(now.Sub(first), 0)
		}
		o.Digest, o.Dependents = r.hash(), int(r.int())
	})
	if err != nil || !found {
		return nil, cmp.Or(err, error(sdk.Unavailable("corrupt", errors.New("an item depends on one that is not stored"))))
	}
	return &o, nil
}
