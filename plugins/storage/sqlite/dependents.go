package sqlite

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// dependent is an item that depends on the one that moves.
type dependent struct {
	item, route int64
	state       storage.ItemState
	open, waits bool
}

func loadDependents(c *conn, item int64) (all []dependent, err error) {
	err = c.bind(qDependents).int(item).each(func(r *row) error {
		all = append(all, dependent{
			item: r.int(), route: r.int(), state: storage.ItemState(r.text()), open: r.bool(), waits: r.bool(),
		})
		return nil
	})
	return all, err
}

// dependents applies what a transition means for the items that depend on its
// item, in item order. Who waits is read before anything is released.
func (m *mover) dependents(t *storage.Transition) error {
	all, err := loadDependents(m.c, t.ItemID)
	if err != nil {
		return err
	}
	for _, d := range all {
		set := storage.Change{}
		switch {
		case d.waits && t.Waiting != nil:
			var applies bool
			if set, applies = whileWaiting(d, t.Waiting); !applies {
				continue
			}
		case !d.waits && t.Dependents != nil:
			set = storage.Change{State: d.state, Disputed: t.Dependents.Disputed, Settled: t.Dependents.Settled}
		default:
			continue
		}
		if err := m.moveDependent(d, &set); err != nil {
			return err
		}
	}
	return nil
}

// whileWaiting is what a change means for an item that waits, and whether it
// means anything. Being released takes no item out of quarantine, and what may
// have been sent does not go there.
func whileWaiting(d dependent, w *storage.Change) (storage.Change, bool) {
	set := storage.Change{
		State: d.state, Release: w.Release, NextAttemptAfter: w.NextAttemptAfter, Disputed: w.Disputed,
	}
	if w.State == storage.Pending {
		return set, true
	}
	set.State, set.QuarantineReason, set.Settled = storage.Quarantined, w.QuarantineReason, w.Settled
	return set, d.state == storage.Pending || d.state == storage.Quarantined
}

func (m *mover) moveDependent(d dependent, set *storage.Change) error {
	var next time.Time
	if set.NextAttemptAfter != nil {
		next = m.now.Add(*set.NextAttemptAfter)
	}
	n, err := m.c.bind(qDependentMove).int(d.item).text(string(set.State)).optTime(next).ptrText(set.QuarantineReason).
		ptrBool(set.Settled).time(m.now).ptrText(set.Disputed).bool(set.Release).run()
	if err != nil {
		return err
	}
	if n != 1 {
		return errRowMoved
	}
	m.counts.moved(d.route, d.state, d.open, set.State, openAfter(d.open, set.Settled))
	return nil
}
