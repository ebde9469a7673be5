package storage

import "time"

// Expect is the predicate of a conditional update; a nil pointer is not tested.
// Every expectation also requires that the item is not superseded. Durations are
// compared with the store's clock in the statement that writes.
type Expect struct {
	State          ItemState
	LeaseToken     *int64
	MappingVersion *string
	Unresolved     *bool
	// Settled tests whether settled_at is set.
	Settled *bool
	// Attempts tests for exactly so many.
	Attempts *int
	// QuietFor: the last claim is at least so long ago. Never claimed counts.
	QuietFor *time.Duration
	// Within: first_unresolved_at is absent or less than so long ago.
	Within *time.Duration
	// TrustedSince: first_unresolved_at is absent or not before this instant
	// of the store's clock.
	TrustedSince *time.Time
}

// Change is what a conditional update sets. Leaving leased always clears the
// lease's owner and expiry. A nil pointer or false leaves a column as it is.
type Change struct {
	State ItemState
	// NextAttemptAfter sets next_attempt_at to the store's now plus this.
	NextAttemptAfter *time.Duration
	// ReturnAttempt takes one from attempts: nothing was sent, or it was a
	// probe of a destination that is down.
	ReturnAttempt bool
	// MarkUnresolved sets unresolved, and first_unresolved_at to claimed_at
	// unless it is set already.
	MarkUnresolved   bool
	ProviderRef      *string
	AcceptedNow      bool
	ConfirmedNow     bool
	ConfirmedBy      *string
	LastError        *ItemError
	QuarantineReason *string
	// Settled sets settled_at to now, or clears it. With AcceptedNow or
	// ConfirmedNow it leaves a disputed item unsettled. // Q25
	Settled *bool
	// ClearQuarantine removes the reason.
	ClearQuarantine bool
	// AddBudget is added to attempt_budget.
	AddBudget int
	// Disputed is evidence against the item, shown beside the state; an empty
	// text withdraws it.
	Disputed *string
	// Method says how a correction is expressed at the provider. It is set
	// once: where another one is stored the whole update changes nothing. With
	// State leased and Expect.State leased, the lease stays as it is.
	Method *string
	// Customer fills in a customer that was unknown, once, and SerialKey, which
	// counts only beside it, what follows from it; with another customer stored
	// the whole update changes nothing. // Q6
	Customer  *string
	SerialKey *string
	// Release lets an item be claimed that waited for another.
	Release bool
}

// Transition is one conditional update and the attempt that led to it.
type Transition struct {
	ItemID  int64
	Expect  Expect
	Set     Change
	Attempt *Attempt
	// Waiting is applied, if this transition changed its row, to every item
	// that depends on this one, is not superseded and still waits, in the same
	// transaction and in item order. nil: they are left alone. Only State,
	// Release, QuarantineReason, Settled, NextAttemptAfter and Disputed of it
	// count. State is pending or quarantined. Pending leaves the state, the
	// reason and what is settled of an item as they are: one that is
	// quarantined for a reason of its own is released and stays there.
	// Quarantined takes pending and quarantined items and leaves those of any
	// other state alone, waiting.
	Waiting *Change
	// Dependents likewise, but to every item that depends on this one, is not
	// superseded and did not wait before this transition: evidence against an
	// original concerns its corrections. Only Disputed and Settled of it count.
	Dependents *Change
	// Action is what a person or a reconciler did, appended if the row changed,
	// with the ItemID of the transition.
	Action *Action
}

// TransitionResult says how many rows a transition changed: 0 or 1.
type TransitionResult struct {
	ItemID int64
	Rows   int
}
