package buffer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// name is one feature of one tenant.
type name struct{ tenant, feature string }

// entry holds the cells of one name: the current one, which adders use without
// a lock, and those of earlier steps until they are emptied.
type entry struct {
	current atomic.Pointer[cell]

	mu      sync.Mutex
	earlier []*cell
	removed bool // no longer in the map: look it up again
}

// find returns a living cell that counts now, making one if there is none; nil
// if the entry was removed. room is asked before one is made.
func (e *entry) find(n name, now time.Time, slot Slot, room func() bool) (*cell, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.removed {
		return nil, true
	}
	at := now.UnixNano()
	current := e.current.Load()
	if current != nil && current.covers(at) {
		return current, true
	}
	for _, c := range e.earlier {
		if c.covers(at) && c.key.PeriodStart.Equal(slot.Period.Start) && c.end.Equal(slot.Period.End) {
			return c, true
		}
	}
	if !room() {
		return nil, false
	}
	c := newCell(n, now, slot)
	// A clock that stepped back, or a caller that read it just before the
	// step ended, does not push out the newer cell.
	if current != nil && current.from > c.from {
		e.earlier = append(e.earlier, c)
		return c, true
	}
	if current != nil {
		e.earlier = append(e.earlier, current)
	}
	e.current.Store(c)
	return c, true
}

// abandon removes an entry that has no cell, and says whether it did.
func (e *entry) abandon() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removed = e.removed || e.current.Load() == nil && len(e.earlier) == 0
	return e.removed
}

func newCell(n name, now time.Time, slot Slot) *cell {
	step := now.UTC().Truncate(storage.HistoryStep)
	from, until := step, step.Add(storage.HistoryStep)
	if from.Before(slot.Period.Start) {
		from = slot.Period.Start
	}
	if until.After(slot.Period.End) {
		until = slot.Period.End
	}
	return &cell{
		key: storage.CounterKey{Tenant: n.tenant, Feature: n.feature, PeriodStart: slot.Period.Start},
		end: slot.Period.End, step: step, from: from.UnixNano(), until: until.UnixNano(),
		revision: slot.Revision, signed: slot.Signed,
	}
}

// expire makes later calls ask for the period again if it came from another
// revision of the subscription.
func (e *entry) expire(revision int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.current.Load(); c != nil && c.revision != revision {
		// What it counted stays with the period it was counted in.
		e.earlier = append(e.earlier, c)
		e.current.Store(nil)
	}
}
