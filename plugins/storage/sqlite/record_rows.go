package sqlite

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// insertEvent inserts usage and answers how many rows went in: 0 when the
// identity exists. receipt is the CloudEvent that it came from, empty for none.
func (r *recorder) insertEvent(c *conn, ev *storage.Event, seq int64, receipt string) (int, error) {
	dimensions, err := eventDimensions(ev)
	if err != nil {
		return 0, err
	}
	return c.bind(qEventInsert).int(seq).
		text(ev.Tenant).text(ev.EventID).text(ev.Feature).decimal(ev.Quantity).text(string(ev.Kind)).
		optText(ev.OriginalEventID).time(ev.OccurredAt).time(ev.PeriodStart).time(ev.PeriodEnd).
		text(string(ev.PeriodSource)).optText(ev.Plan).optText(ev.PlanVersion).json(dimensions).
		json(ev.Metadata).hash(&ev.PayloadHash).hash(&ev.DedupeHash).time(r.now).
		optText(receipt).run()
}

// eventDimensions is nil for none.
func eventDimensions(ev *storage.Event) (json.RawMessage, error) {
	if len(ev.Dimensions) == 0 {
		return nil, nil
	}
	return json.Marshal(ev.Dimensions)
}

// writeItems inserts the items of inserted events.
func (r *recorder) writeItems(c *conn) error {
	if len(r.items) == 0 {
		return nil
	}
	slices.SortFunc(r.items, func(a, b itemOf) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), bytes.Compare(a.new.Digest[:], b.new.Digest[:]))
	})
	var last int64
	if _, err := c.bind(qLastItem).one(func(row *row) { last = row.int() }); err != nil {
		return err
	}
	for _, it := range r.items {
		if moved, err := dependencyMoved(c, it.new.DependsOn); err != nil || moved {
			return cmp.Or(err, errItemsMoved)
		}
	}
	for _, it := range r.items {
		inserted, err := r.item(c, it, last+1)
		if err != nil {
			return err
		}
		if inserted {
			last++
		}
	}
	if _, err := c.bind(qLastItemSet).int(last).run(); err != nil {
		return err
	}
	return r.counts.write(c)
}

// item inserts one item under the given id. The moving row goes first: it
// carries the key that decides whether the subject may be sent at all.
func (r *recorder) item(c *conn, it itemOf, id int64) (bool, error) {
	n := it.new
	p := itemPlace{id: id, seq: it.seq, feature: it.feature, now: r.now, at: it.at}
	inserted, err := insertItem(c, n, p, r.counts)
	if err != nil || inserted {
		return inserted, err
	}
	return false, r.standing(c, n)
}

// standing counts an item whose subject is sendable already, unless it is the
// very same item.
func (r *recorder) standing(c *conn, n *storage.NewItem) error {
	var digest storage.Hash
	found, err := c.bind(qStateBySubject).hash(&n.SubjectKey).one(func(row *row) { digest = row.hash() })
	if err != nil {
		return err
	}
	if found && digest != n.Digest {
		r.res.Superseded++
	}
	return nil
}

// countKey is one line of the gauge.
type countKey struct {
	route int64
	state storage.ItemState
}

type countDelta struct{ items, open int64 }

// countDeltas are the moves of one transaction between the lines of the gauge.
type countDeltas map[countKey]countDelta

// add notes that n items came to (or, negative, left) a state.
func (d countDeltas) add(route int64, state storage.ItemState, n int64, open bool) {
	k := countKey{route, state}
	v := d[k]
	v.items += n
	if open {
		v.open += n
	}
	d[k] = v
}

// open notes that an item that counts as open came to (+1) or left (−1) a
// state.
func (d countDeltas) open(route int64, state storage.ItemState, open bool, n int64) {
	if !open {
		return
	}
	k := countKey{route, state}
	v := d[k]
	v.open += n
	d[k] = v
}

// moved notes that one item went from one state to another.
func (d countDeltas) moved(route int64, from storage.ItemState, wasOpen bool, to storage.ItemState, isOpen bool) {
	d.add(route, from, -1, false)
	d.add(route, to, 1, false)
	d.open(route, from, wasOpen, -1)
	d.open(route, to, isOpen, 1)
}

func (d countDeltas) write(c *conn) error {
	keys := slices.SortedFunc(maps.Keys(d), func(a, b countKey) int {
		return cmp.Or(cmp.Compare(a.route, b.route), cmp.Compare(a.state, b.state))
	})
	for _, k := range keys {
		v := d[k]
		if v == (countDelta{}) {
			continue
		}
		if _, err := c.bind(qCountAdd).int(k.route).text(string(k.state)).int(v.items).int(v.open).run(); err != nil {
			return err
		}
	}
	return nil
}
