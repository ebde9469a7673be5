package period

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Unit is the length of a window of time.
type Unit string

// The units of windows.
const (
	Minute Unit = "minute"
	Hour   Unit = "hour"
	Day    Unit = "day"
	Month  Unit = "month"
)

// Grid divides all time into windows of one unit, on the clocks of one zone. It
// is immutable and safe for concurrent use. The zero value is not usable: see
// [Zones.Grid].
//
// Days and months begin where a [Calendar] that is anchored at local midnight
// has its boundaries: a day has 23 or 25 hours where clocks change, and one that
// a zone left out has no window. Hours and minutes begin whenever the clocks
// show a whole hour or minute, and where they go forward over one. So the hour
// that clocks show twice is two windows, and a change by half an hour leaves an
// hour of thirty minutes or of ninety.
type Grid struct {
	unit Unit
	zone *time.Location
}

// Grid returns the grid of a unit in a zone, an IANA name; empty is UTC. It
// fails with tag invalid naming "window" or "timezone".
func (z *Zones) Grid(unit Unit, zone string) (Grid, error) {
	switch unit {
	case Minute, Hour, Day, Month:
	default:
		return Grid{}, sdk.Invalid("window", "one of minute, hour, day, month, period")
	}
	location, err := z.load(zone)
	if err != nil {
		return Grid{}, err
	}
	return Grid{unit: unit, zone: location}, nil
}

// Edges returns the edges of the windows in p, ascending: p's own start and end,
// and between them every instant at which a window of the grid begins. So the
// first and the last window are cut where p begins or ends inside one. It
// reports false if that makes more than limit windows. An empty period has no
// edges.
func (g Grid) Edges(p Period, limit int) ([]time.Time, bool) {
	if !p.Start.Before(p.End) {
		return nil, true
	}
	edges := []time.Time{p.Start.UTC()}
	next := g.iterator(p.Start)
	for e := next(); e.Before(p.End); e = next() {
		if edges = append(edges, e); len(edges) > limit {
			return nil, false
		}
	}
	return append(edges, p.End.UTC()), len(edges) <= limit
}

// iterator returns a function that returns the edges after t, one at a time.
func (g Grid) iterator(t time.Time) func() time.Time {
	switch g.unit {
	case Minute:
		return g.clock(t, time.Minute)
	case Hour:
		return g.clock(t, time.Hour)
	case Day, Month:
	}
	c := Calendar{interval: storage.Day, zone: g.zone, anchor: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
	if g.unit == Month {
		c.interval = storage.Month
	}
	return func() time.Time {
		t = c.At(t).End
		return t
	}
}

// clock iterates over the instants after t at which the clocks show a multiple
// of step, or go forward over one. It walks the spans between two changes of
// the zone's offset.
func (g Grid) clock(t time.Time, step time.Duration) func() time.Time {
	return func() time.Time {
		for {
			local := t.In(g.zone)
			w := wall(local)
			next := t.Add(w.Truncate(step).Add(step).Sub(w))
			_, change := local.ZoneBounds()
			if change.IsZero() || next.Before(change) {
				t = next.UTC()
				return t
			}
			t = change.UTC()
			// The clocks were about to show one time and show another.
			about, w := w.Add(change.Sub(local)), wall(change.In(g.zone))
			begun := w.Truncate(step)
			if w.Equal(begun) || (w.After(about) && !begun.Before(about)) {
				return t
			}
		}
	}
}
