//go:build faults && unix

package faults

import (
	"cmp"
	"fmt"

	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// verdict is what the ledger of one double says of the items that report to it.
type verdict struct {
	items    int
	ledger   stripedouble.Ledger
	problems []string
	// difference is the provider's sum less what the store says it took, by event
	// name, where it is not zero.
	difference map[string]string
}

func (v *verdict) problem(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

func (v *verdict) String() string {
	l := v.ledger
	return fmt.Sprintf("%d items, %d requests, %d charges, %d double, %d duplicates refused, ledger difference %v",
		v.items, l.Requests, l.Charges, l.DoubleCharges, l.DuplicatesRefused, v.difference)
}

// auditLedgers has every double judge, and prints what it says.
func (r *rig) auditLedgers(b *books) {
	r.t.Helper()
	for exporter, d := range r.judges() {
		v := r.judge(b, exporter, d)
		for _, p := range v.problems {
			r.t.Errorf("%s: %s", exporter, p)
		}
		r.t.Logf("ledger of %s: %s", exporter, v)
	}
}

// judge compares items with what the provider charged: at most one charge for an
// identity (I7), no lie in either direction (I8), nothing to another account or
// mode than the identity names (I10), and sums that agree. It is the same for
// every fault.
func (r *rig) judge(b *books, exporter string, d *stripedouble.Server) *verdict {
	r.t.Helper()
	v := &verdict{ledger: d.Ledger(), difference: map[string]string{}}
	entries, cancelled, byItem := map[string]stripedouble.Entry{}, map[string]bool{}, map[int64]storedItem{}
	for _, it := range b.items {
		byItem[it.id] = it
	}
	for _, e := range d.Entries() {
		cancelled[e.Identifier] = !e.CancelledAt.IsZero()
		if _, twice := entries[e.Identifier]; twice {
			v.problem("%s is in two accounts or modes", e.Identifier)
		}
		entries[e.Identifier] = e
	}
	took := sums{}
	for _, it := range b.items {
		if it.exporter != exporter {
			continue
		}
		v.items++
		entry, ok := entries[it.identifier]
		delete(entries, it.identifier)
		if r.foreign[it.identifier] {
			took.add(entry.EventName, decimal.MustParse(entry.Value))
			if entry.Charges != 1 || it.state != "uncertain" {
				v.problem("item %d is %s, a stranger was charged %d times under its identifier", it.id, it.state, entry.Charges)
			}
			continue
		}
		if entry.Charges > 1 {
			v.problem("DOUBLE CHARGE: item %d (%s) was charged %d times", it.id, it.state, entry.Charges)
		}
		effects := entry.Charges
		if it.method == "cancel" {
			// What it does is seen in the original's entry.
			if effects = b2i(cancelled[byItem[it.dependsOn].identifier]); ok {
				v.problem("item %d cancels, and was charged too", it.id)
			}
		}
		if entry.Rejected != "" && it.state == "accepted" {
			continue // taken, and not counted after all: reported, never sent again
		}
		if problem := honest(it, effects); problem != "" {
			v.problem("item %d, %s, unresolved %t, code %q, had its effect %d times: %s", it.id, it.state, it.unresolved, it.code, effects, problem)
		}
		if ok {
			r.compareEntry(v, b, it, entry)
		}
		if it.state == "accepted" || it.state == "confirmed" || effects > 0 {
			took.add("llm_"+it.feature, b.events[it.seq].effect)
		}
	}
	for id, e := range entries {
		if !r.foreign[id] {
			v.problem("charged %s %s under %s, which is no item's", e.EventName, e.Value, id)
		}
	}
	v.compareSums(b, took)
	return v
}

// sums are exact sums by event name.
type sums map[string]decimal.Decimal

func (s sums) add(name string, d decimal.Decimal) { s[name] = s[name].Add(d) }

// compareSums compares what the store says was taken with what is billed, to the
// last digit. Windows are no events: their tests add up what was counted.
func (v *verdict) compareSums(b *books, took sums) {
	for _, it := range b.items {
		if it.kind == string(storage.SubjectWindow) {
			return
		}
	}
	for name := range v.ledger.NetTotal {
		took.add(name, decimal.Decimal{})
	}
	for name, want := range took {
		got, err := decimal.ParseTotal(cmp.Or(v.ledger.NetTotal[name], "0"))
		if err == nil && got.Equal(want) {
			continue
		}
		v.difference[name] = got.Sub(want).String()
		v.problem("it bills %q of %s, the store says that it took %s (%v)", v.ledger.NetTotal[name], name, want, err)
	}
}

// honest says what is wrong with a state, given the charges; empty: nothing.
func honest(it storedItem, charges int) string {
	switch it.state {
	case "accepted", "confirmed":
		if charges != 1 {
			return "an accepted item is charged once"
		}
	case "rejected", "quarantined":
		if charges != 0 {
			return "what is refused or held back is not charged"
		}
	case "pending", "uncertain":
		// A provider that charges and says that it did not even look makes
		// its own duplicate foreign; somebody has to look at that.
		if charges != 0 && !it.unresolved && it.code != "foreign_duplicate" {
			return "what took effect and is not settled is unresolved"
		}
	}
	return ""
}

func (r *rig) compareEntry(v *verdict, b *books, it storedItem, e stripedouble.Entry) {
	r.t.Helper()
	if it.kind == string(storage.SubjectWindow) {
		return // its test adds up what was counted
	}
	ev := b.events[it.seq]
	value, err := decimal.Parse(e.Value)
	if err != nil || !value.Equal(ev.effect) || e.EventName != "llm_"+ev.feature || e.Customer != it.customer || e.Timestamp != ev.at.Unix() {
		v.problem("item %d charged %s %s to %s at %d; the event is %s %s of %s at %d",
			it.id, e.EventName, e.Value, e.Customer, e.Timestamp, ev.feature, ev.effect, it.customer, ev.at.Unix())
	}
	if e.Account != it.account || (e.Livemode != (it.mode == "live") && it.code != "mode_mismatch") {
		v.problem("item %d of %s/%s was charged to %s, live %t", it.id, it.account, it.mode, e.Account, e.Livemode)
	}
}

// healed ends the double's faults, waits for what is left to be delivered (I11),
// and judges: what is not accepted then has a reason that a person can read.
func (r *rig) healed() *books {
	r.t.Helper()
	r.faults("")
	r.drain()
	b := r.audit()
	for _, it := range b.items {
		switch it.state {
		case "pending", "leased":
			r.t.Errorf("item %d is still %s after the faults have ended", it.id, it.state)
		case "uncertain":
			if it.code == "" {
				r.t.Errorf("item %d is uncertain and does not say why", it.id)
			}
		case "quarantined":
			if it.quarantine == "" {
				r.t.Errorf("item %d is quarantined and does not say why", it.id)
			}
		}
	}
	return b
}
