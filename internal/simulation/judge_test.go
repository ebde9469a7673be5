package simulation

import (
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// judge holds after every change of an item: no lie about money, and no attempt
// beyond what was granted: I7, I8, I10.
func (w *world) judge(r *row) {
	if w.store.stale || r.lost { // a restored store knows nothing of it yet
		return
	}
	booked, fact := w.provider.booked[r.ItemID], w.provider.facts[r.subject]
	switch r.State {
	case storage.Accepted, storage.Confirmed:
		if fact == 0 && !(r.foreign && r.Unresolved) && !w.provider.gone[r.ItemID] {
			w.fail("item %d is %s and was not charged", r.ItemID, r.State)
		}
	case storage.Rejected, storage.Quarantined:
		if booked > 0 || fact > 0 && r.SupersededBy == 0 {
			w.fail("item %d is %s and was charged", r.ItemID, r.State)
		}
	default: // may be either
	}
	if r.Attempts < 0 || r.Attempts > r.AttemptBudget {
		w.fail("item %d has %d attempts of %d", r.ItemID, r.Attempts, r.AttemptBudget)
	}
}

// judgeMove holds for every change of state: what ended stays, I9.
func (w *world) judgeMove(r *row, to storage.ItemState) {
	switch {
	case r.State == to:
	case r.State == storage.Rejected, r.State == storage.Confirmed, r.State == storage.Accepted && to != storage.Confirmed:
		w.fail("item %d went from %s to %s", r.ItemID, r.State, to)
	}
}

// judgeBooking holds after every effect at the provider: one for each fact,
// whatever its identifier, nothing after it was said to be refused, and nothing
// taken back that was not charged.
func (w *world) judgeBooking(id int64) {
	r := w.store.row(id)
	if total := w.provider.facts[r.subject]; total > 1 {
		w.fail("the fact of item %d was booked %d times", id, total)
	}
	if r.DependsOn != 0 {
		of := w.store.row(r.DependsOn)
		// The message is not there yet, a restore lost it, or the credit was under way.
		withdrawn := w.provider.gone[of.ItemID] && (w.told[of.ItemID] == 0 || w.since()-w.provider.toldAt[of.ItemID] < quiet)
		if w.provider.facts[of.subject] == 0 && !of.foreign && !withdrawn {
			w.fail("item %d takes back item %d, which was not charged", id, of.ItemID)
		}
	}
	w.judge(r)
}

// judgeHealed is liveness, I11: some hours after the last fault nothing moves any
// more but what waits for a decision, and that is on the list that people see.
func (w *world) judgeHealed() {
	for _, r := range w.store.rows {
		w.judgeEvidence(r)
		moving := r.State == storage.Pending || r.State == storage.Leased
		switch {
		case r.SupersededBy != 0:
		case moving && r.Waits && w.decision(w.store.row(r.DependsOn)):
		case moving:
			w.fail("item %d is still %s twelve hours after the last fault", r.ItemID, r.State)
		case r.SettledAt.IsZero() && r.State == storage.Accepted && r.Disputed == "":
			w.fail("item %d is accepted and not settled", r.ItemID)
		case !r.SettledAt.IsZero() && r.State == storage.Uncertain:
			w.fail("item %d is uncertain and on nobody's list", r.ItemID)
		}
	}
}

func (w *world) decision(r *row) bool {
	return r.SettledAt.IsZero() && r.State != storage.Pending && r.State != storage.Leased
}

// judgeEnd: after people have looked at what was left, every item is settled.
func (w *world) judgeEnd() {
	w.judgeCounters()
	for _, r := range w.store.rows {
		w.judgeEvidence(r)
		if r.SettledAt.IsZero() {
			w.fail("item %d is never settled: %s, %s", r.ItemID, r.State, r.QuarantineReason)
		}
	}
}
