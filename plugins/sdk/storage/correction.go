package storage

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// CorrectionStore is the capability corrections.
type CorrectionStore interface {
	// LoadCorrectable returns a usage event with what is known of its
	// corrections and its items, or not_found. It takes no lock: what it
	// answers is checked again by RecordCorrection.
	LoadCorrectable(ctx context.Context, original EventKey) (Correctable, error)
	// RecordCorrection writes one correction. See [CorrectRequest].
	RecordCorrection(ctx context.Context, req CorrectRequest) (CorrectResult, error)
}

// CorrectionLister is a part of corrections that an adapter may lack: a caller
// asks for it by type assertion.
type CorrectionLister interface {
	// ListCorrections returns a page of the corrections of one event, at most
	// limit (1 to 1000) of those with a seq above after, in the order of their
	// seq. Of an event that has none, or is not known, it is empty. One that
	// commits later may have a lower seq than one that was listed.
	ListCorrections(ctx context.Context, original EventKey, after int64, limit int) (EventPage, error)
}

// Correctable is an event that may be corrected.
type Correctable struct {
	Original Event
	// Corrected is the sum of the magnitudes of its corrections so far.
	Corrected decimal.Decimal
	// Items are its outbox items, superseded ones left out.
	Items []Item
}

// CorrectRequest is one correction, and the event that replaces what it
// reverses, if there is one.
//
// The adapter works in one transaction, in this order: it takes the shared side
// of the route lock and checks RoutesRevision (moved: [CorrectResult].Stale);
// looks the correction's id up (equal dedupe hash: duplicate, different:
// conflict); locks the row of the original exclusively, never a totals row;
// looks the id up again; sums the corrections of the original in a statement
// that began after the lock was granted; decides, see below; inserts the
// correction, and Replacement as [EventStore].RecordEvents would; inserts the
// items of both; moves the totals of the active generation, and of the building
// one, by what both add up to for each key; then, likewise, the buckets;
// commits. Rows are taken in the order of RecordEvents: totals by (tenant,
// feature, period start), all of them before the first bucket, so that neither
// corrections nor records wait for each other in a circle.
//
// Replacement is inserted by this correction or the call is a conflict: an
// event that exists under its id, with equal content or not, has its own place,
// and taking it for this one would take usage back and record nothing. Only the
// repeat of the correction itself finds it there and is a duplicate, with the
// same replacement.
//
// Decision, with corrected the sum under the lock. ExpectCorrected set and
// different from corrected: Stale. Original absent: Refused not_found; itself a
// correction: Refused not_usage. Quantity zero: Refused nothing_remaining.
// corrected + Quantity above the original's magnitude: Refused exceeds_original.
// WholeOnly and corrected + Quantity below it: Refused partial.
//
// A refusal returns: nothing was written and a transaction of the caller's
// stays usable. A conflict rolls back what this call did.
type CorrectRequest struct {
	// Event is the correction: Kind is Correction, Quantity the magnitude,
	// never negative. Effect, Reverses, Feature, times, period, plan and
	// dimensions are the adapter's to copy or derive from the original.
	// Its DedupeHash covers Replacement, id and content: where the stored hash
	// is equal, the stored correction was made with this replacement.
	Event Event
	// ExpectCorrected is set where Quantity was computed from it ("what is
	// left").
	ExpectCorrected *decimal.Decimal
	// WholeOnly refuses to correct a part: the feature is measured by
	// maximum, minimum, latest or unique values.
	WholeOnly bool
	// Signed says that the feature takes negative quantities.
	Signed bool
	Bucket *BucketKey // of the original; nil: the feature has no buckets
	Items  []NewItem
	// Counted: the period of the original belongs to the feature's counter, so
	// the correction's effect is added to that, too. // Q21
	Counted bool
	// Replacement is recorded in the same transaction, nil for none. That it
	// exists already is the conflict of the whole call.
	Replacement    *Entry
	RoutesRevision int64
	Subscriptions  []SubscriptionRevision // as in RecordRequest, for Replacement
}

// Why a correction was refused.
const (
	RefusedNotFound         = "not_found"
	RefusedNotUsage         = "not_usage"
	RefusedNothingRemaining = "nothing_remaining"
	RefusedExceedsOriginal  = "exceeds_original"
	RefusedPartial          = "partial"
)

// CorrectResult answers RecordCorrection. Exactly one of Stale, Refused and
// Outcome is set.
type CorrectResult struct {
	Stale   *Stale
	Refused string
	Outcome Outcome // inserted, duplicate or conflict
	// Correction is the stored correction when inserted or duplicate.
	Correction EntryResult
	// Replacement is the stored replacement, if the request has one: inserted
	// by this call or, for a duplicate, by the first one.
	Replacement *EntryResult
	// Remaining is what can still be corrected.
	Remaining decimal.Decimal
}
