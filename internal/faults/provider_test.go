//go:build faults && unix

package faults

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/host/api"
)

// round records n events while the double misbehaves, waits until all are
// settled and returns their items.
func (r *rig) round(schedule string, n int) []api.ItemView {
	r.t.Helper()
	r.rounds++
	r.faults(schedule)
	sent := events(fmt.Sprint("round", r.rounds), n)
	r.record(sent)
	r.drain()
	items := make([]api.ItemView, n)
	for i, e := range sent {
		items[i] = r.item(e.id)
	}
	return items
}

// The effect happened, and the answer says something else, or nothing. The
// first two requests of each round are hit.
//
// F31, P1, P4: never rejected, charged once, and in the end accepted: the same
// identifier is sent again and the provider knows it.
func TestEffectAppliedAndAnswerLost(t *testing.T) {
	t.Parallel()
	for store, open := range pairs() {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			effectAppliedAndAnswerLost(t, open(t, shortLease()))
		})
	}
}

func effectAppliedAndAnswerLost(t *testing.T, r *rig) {
	t.Helper()
	tests := []string{
		"500", "502", "503(retry_after=1)", "504", "400", "401", "403", "404", "408", "409",
		"reset", "close", "truncate", "empty", "html", "html(status=200)", "foreign", "redirect",
		"headers", "huge(bytes=8388608)", "gzip(bytes=8388608)",
		"slow(delay=5s)", "slowloris(delay=500ms)",
	}
	r.subscribe()
	r.both()
	n := 0
	for _, kind := range tests {
		const each = 3
		for _, it := range r.round("after:"+kind+"@first2", each) {
			n++
			if it.State != "accepted" {
				t.Errorf("%s: item %s is %s: %+v", kind, it.ID, it.State, it.LastError)
			}
			if e, _ := r.charged(it); e.Charges != 1 {
				t.Errorf("%s: charged %d times", kind, e.Charges)
			}
		}
	}
	r.fired()
	b := r.audit()
	if got := b.accepted(r); got != n {
		t.Errorf("%d items, want %d", got, n)
	}
	l := r.double.Ledger()
	if l.Charges != n || l.DoubleCharges != 0 || l.DuplicatesRefused < len(tests) {
		t.Errorf("%d charges of %d, %d double, %d duplicates refused in %d rounds", l.Charges, n, l.DoubleCharges, l.DuplicatesRefused, len(tests))
	}
	// A repeated Idempotency-Key would have replayed the stored 500 for ever.
	if l.Replays != 0 {
		t.Errorf("%d replays: an Idempotency-Key was used twice", l.Replays)
	}
	t.Logf("%d rounds: %d requests, %d charges, %d duplicates refused", len(tests), l.Requests, l.Charges, l.DuplicatesRefused)
}

// F30, P2: nothing happened, whatever the answer. Tried again until accepted.
func TestNoEffectAndNoAnswer(t *testing.T) {
	t.Parallel()
	for store, open := range pairs() {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			noEffectAndNoAnswer(t, open(t, defaults()))
		})
	}
}

func noEffectAndNoAnswer(t *testing.T, r *rig) {
	t.Helper()
	tests := []string{
		"500", "502", "503", "503(retry_after=1)", "400", "401", "403", "404", "408", "409",
		"reset", "close", "truncate", "empty", "html", "foreign",
	}
	r.subscribe()
	r.both()
	n := 0
	for _, kind := range tests {
		for _, it := range r.round("before:"+kind+"@first2", 3) {
			n++
			if e, _ := r.charged(it); it.State != "accepted" || e.Charges != 1 {
				t.Errorf("%s: item %s is %s, charged %d times: %+v", kind, it.ID, it.State, e.Charges, it.LastError)
			}
		}
	}
	r.fired()
	r.audit().accepted(r)
	if l := r.double.Ledger(); l.Charges != n || l.Replays != 0 || l.DuplicatesRefused != 0 {
		t.Errorf("%d charges of %d, %d replays, %d duplicates", l.Charges, n, l.Replays, l.DuplicatesRefused)
	}
}

// An answer that comes twice is one answer; one that names the other mode is
// settled by nobody but a person (Q15).
func TestOddSuccesses(t *testing.T) {
	t.Parallel()
	r := newRig(t, defaults())
	r.subscribe()
	r.start("")
	for _, it := range r.round("after:dup@first2", 3) {
		if it.State != "accepted" {
			t.Errorf("an answer sent twice: %s", it.State)
		}
	}
	for _, it := range r.round("after:livemode@first1", 1) {
		if it.State != "uncertain" || it.LastError == nil || it.LastError.Code != "mode_mismatch" {
			t.Errorf("the other mode: %s, %+v", it.State, it.LastError)
		}
	}
	// Not of this provider, but of a proxy before it: charged, and then told
	// that it was not looked at. The next answer, a duplicate, cannot be ours.
	for _, it := range r.round("after:429@first1", 1) {
		if it.State != "uncertain" || it.LastError == nil || it.LastError.Code != "foreign_duplicate" {
			t.Errorf("429 after the effect: %s, %+v", it.State, it.LastError)
		}
	}
	r.fired()
	r.audit()
}

// F32, Q13: the provider knows an identifier that we never sent. Not accepted:
// somebody else's charge is not ours.
func TestForeignDuplicate(t *testing.T) {
	t.Parallel()
	for store, open := range pairs() {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			foreignDuplicate(t, open(t, defaults()))
		})
	}
}

func foreignDuplicate(t *testing.T, r *rig) {
	t.Helper()
	r.subscribe()
	r.load(events("e", 4))
	for i, it := range r.read().items[:2] {
		value := "999"
		if i == 1 { // even with the very same content
			value = r.read().events[it.seq].quantity.String()
		}
		r.preload(it.identifier, value)
	}
	r.both()
	r.drain()
	b := r.audit()
	for _, it := range b.items {
		want := "accepted"
		if r.foreign[it.identifier] {
			want = "uncertain"
			if it.code != "foreign_duplicate" {
				t.Errorf("code %s", it.code)
			}
		}
		if it.state != want || it.attempts != 1 {
			t.Errorf("item %d is %s after %d attempts, want %s", it.id, it.state, it.attempts, want)
		}
	}
}

// F33, R1, Q10: what a parsed refusal of the value means depends on whether an
// earlier attempt is open.
func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		schedule string
		change   bool // a customer that the provider does not know
		state    string
		reason   string
		charges  int
	}{
		"first":                       {"before:refuse@n1", false, "rejected", "", 0},
		"after one without effect":    {"before:500@n1; before:refuse@n2", false, "uncertain", "refused_while_unresolved", 0},
		"after one with effect":       {"after:500@n1; before:refuse@n2", false, "uncertain", "refused_while_unresolved", 1},
		"after a lost one":            {"after:reset@n1; before:refuse@n2", false, "uncertain", "refused_while_unresolved", 1},
		"mendable":                    {"", true, "quarantined", "provider_refused", 0},
		"mendable, one is open":       {"before:500@n1", true, "uncertain", "refused_while_unresolved", 0},
		"after a rate limit":          {"before:429@n1; before:refuse@n2", false, "rejected", "", 0},
		"mendable, and lost at first": {"after:truncate@n1", true, "uncertain", "refused_while_unresolved", 0},
	}
	for name, test := range tests {
		onPairs(t, subtest(name), func(t *testing.T, open opener) {
			t.Helper()
			r := open(defaults(), withCustomers("cus_acme"))
			customer := "cus_acme"
			if test.change {
				customer = "cus_stranger"
			}
			r.subscribe("stripe=" + customer)
			r.load(events("e", 1))
			r.faults(test.schedule)
			r.both()
			r.drain()
			b := r.audit()
			it := b.items[0]
			reason := it.code
			if it.state == "quarantined" {
				reason = it.quarantine
			}
			if it.state != test.state || (test.reason != "" && reason != test.reason) {
				t.Errorf("%s (%s), want %s (%s)", it.state, reason, test.state, test.reason)
			}
			if n := r.double.Ledger().Charges; n != test.charges {
				t.Errorf("%d charges, want %d", n, test.charges)
			}
		})
	}
}

// Q10: a meter that is missing or archived can be mended; the value cannot.
func TestMeterMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t, defaults(), withMeters("llm_tokens", "archived"))
	r.subscribe()
	r.load(events("e", 3))
	r.start("")
	r.record(completions("c", 1)) // its meters do not exist
	r.drain()
	for _, it := range r.audit().items {
		if it.state != "quarantined" || it.quarantine != "provider_refused" || it.attempts != 1 {
			t.Errorf("item %d is %s (%s) after %d attempts", it.id, it.state, it.quarantine, it.attempts)
		}
	}
}
