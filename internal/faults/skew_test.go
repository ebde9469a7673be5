//go:build faults && linux

package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// skewed starts a host whose wall clock is off.
func (r *rig) skewed(config, rules string, off time.Duration) *server {
	r.t.Helper()
	r.skew = off
	defer func() { r.skew = 0 }()
	s := r.counter(config, rules)
	if !s.serving() {
		r.t.Fatalf("a host whose clock is off by %v ended: %v", off, s.err)
	}
	return s
}

// F25, O13, S12: of two hosts one is ten minutes ahead of the database and the
// provider, the other ten minutes behind. They take over each other's items, one is
// killed, answers are lost. Leases, ages and turns are the database's: nothing that it
// stores about delivery is of a host's clock, nothing is charged twice, and all of
// it arrives.
func TestHostsDisagreeAboutTheTime(t *testing.T) {
	t.Parallel()
	b := newBed(t, shortLease())
	b.apart()
	b.subscribeCrowd()
	admin := b.session()
	var began, ended time.Time
	if err := admin.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&began); err != nil {
		t.Fatal(err)
	}
	b.faults("after:500@every5; before:500@every7")
	ahead := b.skewed(b.config(), "d7=kill@n20", 10*time.Minute)
	behind := b.skewed(b.secondConfig(), "", -10*time.Minute)
	sent := map[bool]int{}
	var calls [][]event
	for late := true; !ahead.hasEnded(); {
		if len(calls) == 300 {
			t.Fatal("the fault never killed the first host")
		}
		b.server = behind
		if late = !late; late {
			b.server = ahead
		}
		calls = append(calls, crowd(fmt.Sprint("e", len(calls)), 5))
		if _, err := b.post(calls[len(calls)-1]); err == nil {
			sent[late]++
		}
	}
	ahead.died("d7")
	if sent[true] == 0 || sent[false] == 0 {
		t.Errorf("calls that were answered: %v", sent)
	}
	b.server, b.second = behind, b.skewed(b.config(), "", 10*time.Minute)
	for _, call := range calls {
		b.record(call) // those that the killed one did not answer, too
	}
	books := b.healed()
	books.accepted(b.rig)
	b.fired()
	if err := admin.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&ended); err != nil {
		t.Fatal(err)
	}
	for table, columns := range map[string][]string{
		"outbox_state": {"first_attempt_at", "first_unresolved_at", "claimed_at", "lease_expires_at", "accepted_at", "settled_at"},
		"outbox_items": {"created_at"}, "events": {"recorded_at"}, "attempts": {"recorded_at"},
		"hosts": {"started_at", "beat_at"}, "roles": {"held_until"},
	} {
		for _, column := range columns {
			var wrong, all int
			// A lease lasts three seconds, a role thirty.
			sql := fmt.Sprintf("SELECT count(*) FILTER (WHERE %[1]s < $1 OR %[1]s > $2::timestamptz + interval '1 minute'), count(%[1]s) FROM %[2]s.fencepost_%[3]s", column, b.schema, table)
			from := began
			if slices.Contains([]string{"hosts", "roles"}, table) {
				from = began.Add(-time.Minute) // of apart
			}
			if err := admin.QueryRow(t.Context(), sql, from, ended).Scan(&wrong, &all); err != nil {
				t.Fatal(err)
			}
			if wrong != 0 {
				t.Errorf("%d of %d %s.%s are not of the database's clock", wrong, all, table, column)
			}
		}
	}
	owners := map[string]bool{}
	for _, it := range books.items {
		for _, a := range books.attempts[it.id] {
			owners[a.owner] = true
		}
	}
	if len(owners) < 2 {
		t.Errorf("%d hosts delivered", len(owners))
	}
}

// F25: events that come without a time. They count at the host's clock, and a host
// that is ten minutes ahead dates them where no provider takes them yet; sent again
// to the other host they are duplicates. What is held back or refused is not charged,
// and said to be so.
func TestHostsDisagreeAboutTheTimeOfReceipt(t *testing.T) {
	t.Parallel()
	b := newBed(t, shortLease())
	b.apart()
	b.subscribe()
	hosts := map[string]*server{"ahead": b.skewed(b.config(), "", 10*time.Minute), "behind": b.skewed(b.secondConfig(), "", -10*time.Minute)}
	for name, s := range hosts {
		b.server = s
		call := events(name, 5)
		for i := range call {
			call[i].at = time.Time{}
		}
		if n := b.record(call); n != 5 {
			t.Errorf("%d inserted", n)
		}
		for _, other := range hosts {
			b.server = other
			if n := b.record(call); n != 0 {
				t.Errorf("%d inserted by the other host", n)
			}
		}
	}
	b.server, b.second = hosts["behind"], hosts["ahead"]
	books := b.healed()
	for i := range 5 {
		b.taken(books, fmt.Sprintf("behind-%04d", i))
		it := books.of(t, fmt.Sprintf("ahead-%04d", i))
		refused := it.state == "quarantined" && it.quarantine == "provider_refused" && it.code == "timestamp_in_future" // time mends it
		heldBack := it.state == "quarantined" && it.quarantine == "timestamp_window"                                    // the host that is behind had it
		if !refused && !heldBack {
			t.Errorf("an event of the future is %s (%s%s)", it.state, it.quarantine, it.code)
		}
	}
}
