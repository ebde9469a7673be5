package outbox

import "github.com/fencepost/fencepost/plugins/sdk/storage"

// NoState is where an item comes from that does not exist yet.
const NoState storage.ItemState = ""

// Trigger names what moves an item.
type Trigger string

// The triggers. No other exists.
const (
	TriggerEnqueue    Trigger = "enqueue"
	TriggerIneligible Trigger = "enqueue_ineligible"
	TriggerClaim      Trigger = "claim"
	TriggerExhausted  Trigger = "claim_exhausted"
	TriggerAccepted   Trigger = "accepted"
	TriggerRetry      Trigger = "retry"
	TriggerNotSent    Trigger = "not_sent"
	TriggerUnknown    Trigger = "unknown"
	TriggerRefused    Trigger = "refused"
	TriggerProblem    Trigger = "problem"
	TriggerConfirm    Trigger = "confirm"
	TriggerRecover    Trigger = "recover"
	TriggerRequeue    Trigger = "requeue"
)

// What people do beside the machine: the state stays. See [Marks].
const (
	TriggerAbandon  Trigger = "abandon"
	TriggerEvidence Trigger = "evidence"
)

// Rule is one row of the transition table.
type Rule struct {
	Name      string
	From      storage.ItemState // NoState: the item is inserted
	To        storage.ItemState
	Trigger   Trigger
	Predicate string // what must hold, in the statement that writes
	Stale     string // what a writer is told when it does not hold
}

const (
	fenced     = "state is leased, lease_token is the claim's"
	fencedSure = fenced + ", unresolved is false"
	staleLease = "zero rows: counted as a stale worker, never written again"
	due        = "pending and due, or leased and expired; not superseded"
	dry        = due + "; attempts used up, or unresolved for longer than the horizon or since before the clock is trusted"
	notFirst   = "zero rows: the existing item stands"
	quietly    = "state is uncertain, lease_token is the one expected, settled_at is absent, nothing claimed for the quiet time"
	mismatch   = "zero rows: the current state is reported"
)

// Table returns every transition there is. An item changes state by one of
// these rows or not at all.
func Table() []Rule {
	return []Rule{
		{"T0", NoState, storage.Pending, TriggerEnqueue, "no item has the identity or its subject", notFirst},
		{"T0q", NoState, storage.Quarantined, TriggerIneligible, "no item has the identity or its subject", notFirst},
		{"T1", storage.Pending, storage.Leased, TriggerClaim, due, "nothing: another worker has it"},
		{"T1", storage.Leased, storage.Leased, TriggerClaim, due, "nothing: another worker has it"},
		{"T2", storage.Leased, storage.Accepted, TriggerAccepted, fenced, staleLease},
		{"T3", storage.Leased, storage.Pending, TriggerRetry, fenced, staleLease},
		{"T3n", storage.Leased, storage.Pending, TriggerNotSent, fenced, staleLease},
		{"T4", storage.Leased, storage.Uncertain, TriggerUnknown, fenced, staleLease},
		{"T4c", storage.Leased, storage.Uncertain, TriggerExhausted, dry, "nothing: another worker has it"},
		{"T4c", storage.Pending, storage.Uncertain, TriggerExhausted, dry, "nothing: another worker has it"},
		{"T5", storage.Leased, storage.Rejected, TriggerRefused, fencedSure, staleLease},
		{"T6", storage.Leased, storage.Quarantined, TriggerProblem, fencedSure, staleLease},
		{"T7", storage.Accepted, storage.Confirmed, TriggerConfirm, "state is accepted", mismatch},
		{"T8", storage.Uncertain, storage.Accepted, TriggerRecover, quietly, mismatch},
		{"T8", storage.Uncertain, storage.Pending, TriggerRecover, quietly + ", unresolved for less than the horizon and since the clock is trusted", mismatch},
		{"T8", storage.Uncertain, storage.Rejected, TriggerRecover, quietly, mismatch},
		{"T8", storage.Uncertain, storage.Quarantined, TriggerRecover, quietly + "; it has the reason of the quarantine in which it was before a restore", mismatch},
		{"T9", storage.Quarantined, storage.Pending, TriggerRequeue, "state is quarantined, lease_token and mapping_version are those expected, settled_at is absent", "zero rows: the current state, or mapping changed"},
	}
}

// Marks returns what is written beside the state, which stays as it is. // O11, O12, Q25.
func Marks() []Rule {
	stuck := "state is the one expected, lease_token is the one expected, settled_at is absent"
	disputed := stuck + "; disputed"
	var marks []Rule
	for _, s := range []storage.ItemState{storage.Uncertain, storage.Rejected, storage.Quarantined} {
		holds := stuck
		if s == storage.Uncertain {
			holds = quietly
		}
		marks = append(marks, Rule{"A", s, s, TriggerAbandon, holds, mismatch})
	}
	for _, s := range []storage.ItemState{storage.Accepted, storage.Confirmed} {
		marks = append(marks, Rule{"A", s, s, TriggerAbandon, disputed, mismatch})
	}
	for _, s := range storage.ItemStates {
		marks = append(marks, Rule{"E", s, s, TriggerEvidence, "state is the one expected", mismatch})
	}
	return marks
}

// Allowed reports whether the table has the transition.
func Allowed(from, to storage.ItemState, trigger Trigger) bool {
	for _, r := range Table() {
		if r.From == from && r.To == to && r.Trigger == trigger {
			return true
		}
	}
	return false
}
