package reconcile

import (
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// The causes of a line. Of several the first in this order is given.
const (
	CauseProviderUnknown = "provider_unknown" // the provider gave no sum
	CauseLag             = "lag"              // it may not show yet what was accepted lately
	CauseOpenItems       = "open_items"       // what is not settled explains it
	CauseDisputed        = "disputed"         // what the provider refused late explains it
	CauseHeldItems       = "held_items"       // it agrees, or nobody can be asked; something recorded is not sent
	CauseProviderMore    = "provider_more"    // it counts more than we reported
	CauseProviderLess    = "provider_less"    // it counts less than it accepted
	CauseNone            = "none"             // everything recorded is reported and counted
)

// Codes of sums that were not asked for, or not understood.
const (
	CodeNoCustomer = "no_customer"
	CodeNoMapping  = "mapping_unknown"
	CodeNoNumber   = "no_number"
)

// cause says what a line comes to. It names what is known to be in the way, and
// where nothing is, only which way the difference goes: a difference is never
// guessed away (O25).
func cause(t storage.ItemSum, difference *decimal.Decimal) string {
	switch {
	case difference == nil:
		return CauseProviderUnknown
	case difference.IsZero():
		return behind(t)
	case t.Fresh > 0:
		return CauseLag
	case within(*difference, t.OpenValue):
		return CauseOpenItems
	case within(*difference, t.DisputedValue):
		return CauseDisputed
	case within(*difference, t.OpenValue.Add(t.DisputedValue)):
		return CauseOpenItems
	case difference.Sign() > 0:
		return CauseProviderMore
	}
	return CauseProviderLess
}

// behind says what of a sum that agrees is recorded and not reported.
func behind(t storage.ItemSum) string {
	switch {
	case t.Open > 0:
		return CauseOpenItems
	case t.Disputed > 0:
		return CauseDisputed
	case t.Held > 0:
		return CauseHeldItems
	}
	return CauseNone
}

// onlyHeld reports whether everything of a sum is quarantined or rejected.
func onlyHeld(t storage.ItemSum) bool {
	return t.Held > 0 && t.ReportedItems == 0 && t.Open == 0 && t.Disputed == 0
}

// within reports whether a difference is no more than a value, in its direction.
func within(difference, value decimal.Decimal) bool {
	return difference.Sign() == value.Sign() && difference.Abs().Cmp(value.Abs()) <= 0
}

// confirmable reports whether a sum that was compared may be confirmed: it
// agrees, nothing of it may still move, and nothing is so fresh that two of its
// items which the provider does not show yet could have cancelled out (Q24).
func confirmable(t storage.ItemSum, difference *decimal.Decimal) bool {
	return difference != nil && difference.IsZero() && t.Open == 0 && t.Disputed == 0 && t.Fresh == 0 &&
		t.ReportedItems > t.Confirmed
}
