//go:build faults && linux

package faults

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// dated are events with these ids at these times.
func dated(at map[string]time.Time) []event {
	var all []event
	for id, when := range at {
		all = append(all, event{id: id, feature: "tokens", quantity: "1.5", at: when})
	}
	return all
}

// invalid sends an event whose time is none.
func (r *rig) invalid(when string) {
	r.t.Helper()
	var answer string
	body := fmt.Sprintf(`[{"id":"invalid","tenant":%q,"feature":"tokens","quantity":"1","time":%q}]`, tenant, when)
	if err := r.call(http.MethodPost, "/v1/events", "application/json", []byte(body), &answer); err != nil {
		answer = err.Error()
	}
	if !strings.Contains(answer, "invalid") || !strings.Contains(answer, "time") {
		r.t.Errorf("an event of %s was answered %s", when, answer)
	}
}

// held checks the items of events that were not sent.
func (r *rig) held(b *books, reason string, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		it := b.of(r.t, id)
		if it.state != "quarantined" || it.quarantine != reason || it.attempts != 0 {
			r.t.Errorf("%s is %s (%s%s) after %d attempts, want quarantined (%s) and never sent", id, it.state, it.quarantine, it.code, it.attempts, reason)
		}
		if e, ok := r.double.Entry(account, false, it.identifier); ok {
			r.t.Errorf("%s was sent %d times", id, e.TimesSeen)
		}
	}
}

// taken checks the items of events that were.
func (r *rig) taken(b *books, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		if it := b.of(r.t, id); it.state != "accepted" {
			r.t.Errorf("%s is %s (%s%s)", id, it.state, it.quarantine, it.code)
		}
	}
}

// F27, D4: the edges of the time that the provider takes. It takes 35 days back; we
// send 34, a day for what waits and for clocks that differ. What is older is counted
// and held back, and so is what becomes older while it waits; what may have been sent
// by then is not held back but uncertain. (Two hosts on PostgreSQL.)
func TestEdgesOfTheProvidersTime(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	b := newTimed(t, shortLease())
	b.subscribe()
	b.both()
	now := time.Now()
	first := map[string]time.Time{
		"36 days": now.Add(-36 * day), "35 days": now.Add(-35 * day), "34 days and a minute": now.Add(-34*day - time.Minute),
		"34 days less an hour": now.Add(-34*day + time.Hour), "now": now, "in 3 minutes": now.Add(3 * time.Minute),
	}
	b.record(dated(first))
	b.drain()
	old := []string{"36 days", "35 days", "34 days and a minute"}
	books := b.read()
	b.held(books, "timestamp_window", old...)
	b.taken(books, "34 days less an hour", "now", "in 3 minutes")
	b.invalid(now.Add(time.Hour).UTC().Format(time.RFC3339))
	b.quit()

	// Late: one that was charged without anybody hearing of it, and one that waited.
	at := now.Add(-34*day + 2*time.Hour)
	b.load(dated(map[string]time.Time{"late and open": at}))
	b.launch("d7=kill@n1").died("d7")
	b.load(dated(map[string]time.Time{"late": at}))
	b.later(3 * time.Hour) // well within the horizon
	b.server, b.second = b.skewed(b.config(), "", b.ahead), b.skewed(b.secondConfig(), "", b.ahead)
	books = b.healed()
	b.held(books, "timestamp_window", append(old, "late")...)
	if it := books.of(t, "late and open"); it.state != "uncertain" || it.code != "timestamp_window" || !it.unresolved {
		t.Errorf("what may have been sent is %s (%s%s), unresolved %t", it.state, it.quarantine, it.code, it.unresolved)
	}
}

// F27: the provider's clock is not ours. A day is left for that in the past, and
// nothing in the future, where the provider's word is taken: what it refuses was not
// charged, and is never called accepted.
func TestProvidersClockIsOff(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		offset time.Duration
		at     time.Duration
		state  string
	}{
		"20 hours ahead": {20 * time.Hour, -34*day + time.Hour, "accepted"},
		"26 hours ahead": {26 * time.Hour, -34*day + time.Hour, "rejected"},
		"20 hours late":  {-20 * time.Hour, -21 * time.Hour, "accepted"},
		"10 minutes":     {-10 * time.Minute, 0, "quarantined"},
	} {
		onPairs(t, subtest(name), func(t *testing.T, open opener) {
			t.Helper()
			r := open(defaults(), func(c *stripedouble.Config) { c.ClockOffset = test.offset })
			r.subscribe()
			r.both()
			r.record(dated(map[string]time.Time{"e": time.Now().Add(test.at)}))
			r.drain()
			it := r.healed().of(t, "e")
			if it.state != test.state {
				t.Errorf("%s (%s%s), want %s", it.state, it.quarantine, it.code, test.state)
			}
			if n := r.double.Ledger().Charges; n != b2i(test.state == "accepted") {
				t.Errorf("%d charges", n)
			}
		})
	}
}

// F27: billing periods are those of the event's time in UTC, whatever offset it is
// written with and on whichever side of the edge; a leap second is refused, not
// guessed. The provider is told the same instants.
func TestEdgesOfPeriods(t *testing.T) {
	t.Parallel()
	onPairs(t, "", func(t *testing.T, open opener) {
		t.Helper()
		r := open(defaults())
		r.subscribe()
		r.both()
		now := time.Now().UTC()
		edge := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
		east, west := time.FixedZone("", 14*3600), time.FixedZone("", -12*3600)
		at := map[string]time.Time{
			"last":           edge.Add(-time.Microsecond),
			"first":          edge,
			"next month":     edge.Add(-time.Hour).In(east), // where it is written
			"last month":     edge.Add(time.Hour).In(west),
			"before an hour": edge.Add(-90 * time.Minute),
		}
		if edge.Add(time.Hour).After(now) {
			delete(at, "last month")
		}
		r.record(dated(at))
		for _, leap := range []string{"2016-12-31T23:59:60Z", "2026-06-30T23:59:60+00:00"} {
			r.invalid(leap)
		}
		b := r.healed()
		b.accepted(r)
		for id, when := range at {
			want := edge.UnixMicro()
			if when.Before(edge) {
				want = edge.AddDate(0, -1, 0).UnixMicro()
			}
			if got := b.byKey[eventKey{tenant, id}].period; got != want {
				t.Errorf("%s, %s, is in the period of %v, want %v", id, when, time.UnixMicro(got).UTC(), time.UnixMicro(want).UTC())
			}
		}
	})
}
