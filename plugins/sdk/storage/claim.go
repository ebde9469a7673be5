package storage

import (
	"encoding/json"
	"time"
)

// ClaimRequest asks for work on the routes of one destination.
//
// In one transaction, by the store's clock, the adapter takes at most Limit
// items that are (pending and due) or (leased and expired), not superseded, on
// the given routes, oldest due time first, skipping what others hold. An item
// whose serial key is held by a live lease is skipped; a claim may take many
// items of one serial key.
//
// Expired leases come before pending items, and if one is taken it is the only
// item of the claim: an item that kills its worker takes nobody with it. Re-claiming sets unresolved, and
// first_unresolved_at to the old claimed_at unless it is set already.
//
// An item whose attempts have reached its budget, or that is unresolved with
// first_unresolved_at absent or older than Horizon, is not handed out: it
// moves to uncertain with the code of [Exhausted] and its lease token raised.
//
// What is handed out gets attempts+1, lease_token+1, claimed_at, the lease, and
// first_attempt_at if it had none.
type ClaimRequest struct {
	Owner   string // who claims: random for each process
	Routes  []int64
	Limit   int
	Lease   time.Duration
	Horizon time.Duration // zero: no horizon
	// TrustedSince is an instant of the store's clock: an item unresolved since
	// before it moves to uncertain with [CodeClockUntrusted], because how long
	// ago that was cannot be told. Zero: no such rule. // Q16
	TrustedSince time.Time
}

// Codes that a claim writes as the last error of an exhausted item.
const (
	CodeAttemptsExhausted = "attempts_exhausted"
	CodeHorizonPassed     = "horizon_passed"
	CodeClockUntrusted    = "clock_untrusted"
)

// Claim is what a worker got.
type Claim struct {
	Items     []ClaimedItem
	Exhausted []Exhausted
	// Incarnation is that of the store when the claim was made, its Claims
	// raised by this claim. A claim that took nothing need not raise it.
	Incarnation Incarnation
}

// Exhausted is an item that the claim moved to uncertain instead.
type Exhausted struct {
	ItemID int64
	Code   string
}

// ClaimedItem is an item under lease, with all that its payload is made of.
type ClaimedItem struct {
	ItemID         int64
	Identity       Identity
	Digest         Hash
	RouteID        int64
	SerialKey      string
	Customer       string
	Payload        json.RawMessage
	Event          Event // of an item of kind event
	Mapping        Mapping
	LeaseToken     int64
	Attempts       int // this one included
	AttemptBudget  int
	Unresolved     bool // before this attempt
	FirstAttemptAt time.Time
	// Method is how a correction is expressed, chosen once; see [Change].
	Method string
	// Original is the item that this one depends on; nil without.
	Original *OriginalItem
}

// OriginalItem is what a correction's item needs to know of the item that it
// depends on, at the moment of the claim.
type OriginalItem struct {
	ItemID     int64
	Digest     Hash
	State      ItemState
	Unresolved bool
	Disputed   string
	// SinceFirstAttempt is how long ago, by the store's clock, it was first
	// attempted; zero if it never was.
	SinceFirstAttempt time.Duration
	// Dependents is how many items depend on it, superseded ones left out,
	// this one included.
	Dependents int
}
