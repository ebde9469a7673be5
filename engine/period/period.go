// Package period computes billing periods: which half-open interval of time an
// instant belongs to, on a calendar with an anchor, an interval and a time zone.
//
// Periods are a matter of the local calendar. A boundary has the anchor's local
// time of day, on its day of the month or on the month's last day where that is
// shorter (an anchor on the 31st gives Jan 31, Feb 28, Mar 31), and is the first
// instant at which the zone's clocks show that time or a later one: where clocks
// go forward over it, the moment of the change; where they go back and show it
// twice, the first time. That rule never lets boundaries cross, so periods tile
// all of time, in both directions from the anchor.
package period

import (
	"time"
	// Containers without zone files must compute the same periods: 450 KB of
	// the binary. A system's own files, if it has them, come first.
	_ "time/tzdata"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Period is the half-open interval [Start, End), in UTC.
type Period struct{ Start, End time.Time }

// Contains reports whether t lies in p.
func (p Period) Contains(t time.Time) bool { return !t.Before(p.Start) && t.Before(p.End) }

// Calendar divides all time into periods. The zero value is the calendar month
// in UTC, which applies to a tenant without a subscription. A Calendar is
// immutable and safe for concurrent use.
type Calendar struct {
	interval storage.Interval
	zone     *time.Location
	// anchor is the anchor's wall clock in zone, written as if it were UTC.
	anchor time.Time
}

// At returns the period that t belongs to. It takes constant time, however far
// t is from the anchor.
func (c Calendar) At(t time.Time) Period {
	c = c.orDefault()
	// Where the clock has reached a boundary's time, the boundary has passed;
	// a later one may have too, if clocks have since gone back.
	n := c.reached(wall(t.In(c.zone)))
	start := c.boundary(n)
	for {
		end := c.boundary(n + 1)
		if t.Before(end) {
			return Period{Start: start.UTC(), End: end.UTC()}
		}
		n++
		start = end
	}
}

// orDefault replaces the zero value by what it stands for.
func (c Calendar) orDefault() Calendar {
	if c.zone == nil {
		c.zone = time.UTC
		c.interval = storage.Month
		c.anchor = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return c
}

// reached returns the number of the last boundary whose wall clock is not after
// local; the anchor is boundary 0.
func (c Calendar) reached(local time.Time) int {
	var n int
	switch c.interval {
	case storage.Day, storage.Week:
		n = floorDiv(int(local.Unix()-c.anchor.Unix()), c.days()*secondsPerDay)
	default:
		n = floorDiv(months(local)-months(c.anchor), c.months())
	}
	if c.wallOf(n).After(local) {
		n--
	}
	return n
}

const secondsPerDay = 24 * 60 * 60

// days and months are the length of an interval in its unit.
func (c Calendar) days() int {
	if c.interval == storage.Week {
		return 7
	}
	return 1
}

func (c Calendar) months() int {
	if c.interval == storage.Year {
		return 12
	}
	return 1
}

// months counts months, so that arithmetic on them is on integers.
func months(t time.Time) int { return t.Year()*12 + int(t.Month()) - 1 }

// wallOf returns the wall clock of boundary n, written as UTC.
func (c Calendar) wallOf(n int) time.Time {
	a := c.anchor
	if c.interval == storage.Day || c.interval == storage.Week {
		return a.AddDate(0, 0, n*c.days())
	}
	m := months(a) + n*c.months()
	year, month := floorDiv(m, 12), time.Month(m-floorDiv(m, 12)*12+1)
	day := min(a.Day(), daysIn(year, month))
	return time.Date(year, month, day, a.Hour(), a.Minute(), a.Second(), a.Nanosecond(), time.UTC)
}

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// boundary returns the instant of boundary n.
func (c Calendar) boundary(n int) time.Time { return firstInstant(c.wallOf(n), c.zone) }

// wall returns the wall clock that t shows in its zone, written as UTC.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// beforeAnyOffset is longer than any zone has ever been ahead of UTC.
const beforeAnyOffset = 26 * time.Hour

// firstInstant returns the first instant at which the clocks of zone show local
// or later. It walks the spans between two changes of the zone's offset, of
// which at most a few lie within a day of the answer.
func firstInstant(local time.Time, zone *time.Location) time.Time {
	if zone == time.UTC {
		return local
	}
	at := local.Add(-beforeAnyOffset)
	for {
		t := at.In(zone)
		_, offset := t.Zone()
		candidate := local.Add(-time.Duration(offset) * time.Second)
		if candidate.Before(at) {
			return at // clocks went forward over local, at this change
		}
		_, end := t.ZoneBounds()
		if end.IsZero() || candidate.Before(end) {
			return candidate
		}
		at = end
	}
}
