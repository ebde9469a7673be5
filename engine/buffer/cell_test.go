package buffer

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

func month(t *testing.T) Slot {
	t.Helper()
	return Slot{Period: period.Calendar{}.At(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))}
}

// Whoever finds a cell and adds to it after it was emptied for good is told so,
// whichever lane the quantity takes.
func TestDeadCellsTakeNothing(t *testing.T) {
	t.Parallel()
	for _, q := range []string{"1", "-1", "1099511627776", "-1099511627776", "0.5", "0.000000000001", "12345678901234567890"} {
		c := newCell(name{"acme", "calls"}, time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), month(t))
		d := decimal.MustParse(q)
		l, m := laneOf(d)
		if !c.add(d, l, m) {
			t.Fatalf("%s: a new cell is dead", q)
		}
		if sum := c.take(true); !sum.Equal(d) {
			t.Errorf("%s: held %s", q, sum)
		}
		for range 1000 {
			if c.add(d, l, m) {
				t.Fatalf("%s: added to a dead cell", q)
			}
		}
		if sum := c.take(true).Add(c.take(false)).Add(c.peek()); !sum.IsZero() {
			t.Errorf("%s: a dead cell held %s", q, sum)
		}
	}
}

// Whoever holds an entry that was removed from the map is sent back to the map.
func TestRemovedEntriesTakeNothing(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	e, n, room := &entry{}, name{"acme", "calls"}, func() bool { return true }
	if c, ok := e.find(n, now, month(t), room); c == nil || !ok {
		t.Fatal("no cell")
	}
	if _, _, ended, empty := e.collect(now.UnixNano(), false); ended != 0 || empty {
		t.Errorf("removed in the middle of its step: %d, %t", ended, empty)
	}
	if _, _, ended, empty := e.collect(now.Add(5*time.Minute).UnixNano(), false); ended != 1 || !empty {
		t.Errorf("kept after its step: %d, %t", ended, empty)
	}
	if c, _ := e.find(n, now, month(t), room); c != nil {
		t.Error("a removed entry gave a cell")
	}
}

// A cell ends with its period, also in the middle of a step.
func TestCellsEndWithThePeriod(t *testing.T) {
	t.Parallel()
	edge := time.Date(2026, 11, 30, 12, 2, 30, 0, time.UTC)
	slot := Slot{Period: period.Period{Start: edge.AddDate(0, -1, 0), End: edge}}
	before := newCell(name{}, edge.Add(-1), slot)
	after := newCell(name{}, edge, Slot{Period: period.Period{Start: edge, End: edge.AddDate(0, 1, 0)}})
	if !before.covers(edge.UnixNano()-1) || before.covers(edge.UnixNano()) || !after.covers(edge.UnixNano()) || after.covers(edge.UnixNano()-1) {
		t.Errorf("%+v %+v", before, after)
	}
}
