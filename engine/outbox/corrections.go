package outbox

import (
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Corrected is what the items of one correction are made of. Nothing in it is
// changed.
type Corrected struct {
	// Correction is the correction's own key.
	Correction storage.EventKey
	// Effect is what the correction adds to the totals: the other sign than
	// the original's.
	Effect   decimal.Decimal
	Original storage.Event
	// Items are those of the original, superseded ones left out.
	Items         []storage.Item
	AttemptBudget int
}

// BuildCorrectionItems makes the items of a correction: one for each item of its
// original, with the destination, customer and mapping of that one, because it
// takes back what that one reports. // Q18
//
// This version sends no correction: how a provider is told (cancelled, or sent a
// negative event) is decided when that comes. Until then each waits in
// quarantine, with its payload and the reason why, and none is dropped.
func BuildCorrectionItems(c Corrected) []storage.NewItem {
	var items []storage.NewItem
	for _, of := range c.Items {
		if of.Identity.SubjectKind == storage.SubjectEvent {
			items = append(items, correctionItem(c, of))
		}
	}
	return items
}

func correctionItem(c Corrected, of storage.Item) storage.NewItem {
	identity := of.Identity
	identity.SubjectKind, identity.SubjectRef = storage.SubjectCorrection, CorrectionRef(c.Correction)
	digest, _ := Identifier(identity)
	item := storage.NewItem{
		Identity: identity, Digest: digest, SubjectKey: SubjectKey(identity), RouteID: of.RouteID,
		SerialKey: of.SerialKey, Customer: of.Customer, AttemptBudget: c.AttemptBudget,
		QuarantineReason: string(correctionReason(of)),
	}
	payload, err := FreezePayload(exporter.Item{
		Feature: c.Original.Feature, Value: c.Effect.String(), Timestamp: c.Original.OccurredAt,
		PeriodStart: c.Original.PeriodStart, PeriodEnd: c.Original.PeriodEnd,
	})
	if err != nil {
		item.QuarantineReason = string(ReasonPayloadInvalid)
		return item
	}
	item.Payload = payload
	return item
}

// correctionReason says why the correction of what an item reports is not sent.
func correctionReason(of storage.Item) Reason {
	switch {
	case Reason(of.QuarantineReason).BornSettled() && of.State == storage.Quarantined:
		return ReasonOriginalIneligible
	case of.State == storage.Rejected, !of.SettledAt.IsZero() && of.State != storage.Accepted && of.State != storage.Confirmed:
		return ReasonOriginalNotCharged // refused for good, or given up
	}
	return ReasonCorrectionUnsupported
}
