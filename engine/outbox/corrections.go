package outbox

import (
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// ReasonRouteRetired is of a correction whose original was told to a destination
// that nothing is sent to any more.
const ReasonRouteRetired Reason = "route_retired"

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
	Items []storage.Item
	// Manifests are those of the exporters that this host runs, by their
	// configured name. For any other exporter the host that runs it decides.
	Manifests     map[string]exporter.Manifest
	AttemptBudget int
	// Routes are all stored routes, retired ones included.
	Routes []storage.Route
}

// BuildCorrectionItems makes the items of a correction: one for each item of its
// original, with the destination, customer and mapping of that one, because it
// takes back what that one reports. Each waits for its original's item until
// that was accepted, so that no credit goes out for what was not charged; what
// can never be sent is quarantined with its reason, and none is dropped. // Q18.
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
		QuarantineReason: string(correctionReason(c, of)),
		DependsOn:        &storage.Dependency{ItemID: of.ItemID, State: of.State, Settled: !of.SettledAt.IsZero()},
	}
	payload, err := correctionPayload(c.Original, c.Effect, of.Digest)
	if err != nil {
		item.QuarantineReason = string(ReasonPayloadInvalid)
	}
	item.Payload = payload
	item.DependsOn.Wait = item.QuarantineReason == "" && !Charged(of.State)
	return item
}

// correctionPayload freezes what a correction says: the original's feature, time
// and period, the effect as its value, and what it takes back.
func correctionPayload(original storage.Event, effect decimal.Decimal, digest storage.Hash) ([]byte, error) {
	return FreezePayload(exporter.Item{
		Feature: original.Feature, Value: effect.String(), Timestamp: original.OccurredAt,
		PeriodStart: original.PeriodStart, PeriodEnd: original.PeriodEnd,
		Corrects: &exporter.Corrects{Identifier: IdentifierOf(digest), Value: original.Quantity.String()},
	})
}

// Charged reports whether the provider took what an item in this state says.
func Charged(s storage.ItemState) bool { return s == storage.Accepted || s == storage.Confirmed }

// correctionReason says why the correction of what an item reports can never be
// sent. What may change, such as a dispute, is judged before the send.
func correctionReason(c Corrected, of storage.Item) Reason {
	m, known := c.Manifests[of.Identity.Exporter]
	switch {
	case Reason(of.QuarantineReason).BornSettled() && of.State == storage.Quarantined:
		return ReasonOriginalIneligible
	case of.State == storage.Rejected, !of.SettledAt.IsZero() && !Charged(of.State):
		return ReasonOriginalNotCharged // refused for good, or given up
	case known && !correctable(m):
		return ReasonCorrectionInexpressible
	case Charged(of.State) && retired(c.Routes, of.RouteID):
		// It would wait for a deliverer for ever; one that waits for its original
		// is seen to with that one.
		return ReasonRouteRetired
	}
	return ReasonNone
}

// retired reports whether no route leads to the destination of a route any more,
// whatever its exporter is called by now. A change of the mapping retires routes
// and leaves others in force.
func retired(routes []storage.Route, id int64) bool {
	var dest Destination
	for _, r := range routes {
		if r.ID == id {
			dest = DestinationOf(r)
		}
	}
	return dest != Destination{} && !slices.ContainsFunc(routes, func(r storage.Route) bool {
		return r.RetiredAt.IsZero() && DestinationOf(r) == dest
	})
}

func correctable(m exporter.Manifest) bool {
	return m.Corrections != "" && m.Corrections != exporter.CorrectNone
}

// Effects says what it means for the items that depend on an item of this kind
// that it moves to a state: waiting are those that wait for it, dependents the
// others. nil: nothing. Every transition of an item gets them here. // Q18.
func Effects(kind storage.SubjectKind, to storage.ItemState, trigger Trigger) (waiting, dependents *storage.Change) {
	if kind != storage.SubjectEvent { // nothing depends on anything else
		return nil, nil
	}
	switch {
	case trigger == TriggerEvidence, trigger == TriggerAbandon && Charged(to):
	case Charged(to):
		return &storage.Change{State: storage.Pending, Release: true}, nil
	case to == storage.Rejected, trigger == TriggerAbandon:
		reason := string(ReasonOriginalNotCharged)
		return &storage.Change{State: storage.Quarantined, Release: true, QuarantineReason: &reason}, nil
	}
	return nil, nil
}

// ChooseMethod says how a claimed correction is to be told, or why it cannot be:
// as stored if that was decided before, otherwise by what its exporter takes and
// what became of its original. item is its payload. // Q19.
//
// Cancelling is left to what nothing can go wrong with: all of an original is
// taken back, by nothing else, early, and the original is known to be one charge.
func ChooseMethod(m exporter.Manifest, c storage.ClaimedItem, item exporter.Item) (exporter.CorrectionMode, Reason) {
	of := c.Original
	if of == nil || item.Corrects == nil {
		return "", ReasonPayloadInvalid
	}
	value, err := decimal.ParseTotal(item.Value)
	if err != nil {
		return "", ReasonPayloadInvalid
	}
	inTime := of.SinceFirstAttempt < m.CancelWithin
	switch {
	case !Charged(of.State):
		return "", ReasonOriginalNotCharged
	case of.Disputed != "":
		return "", ReasonOriginalDisputed
	case c.Method == string(exporter.CorrectCancel) && !inTime:
		return "", ReasonCorrectionLate
	case c.Method != "":
		return exporter.CorrectionMode(c.Method), ReasonNone
	case !correctable(m):
		return "", ReasonCorrectionInexpressible
	}
	alone := of.Dependents == 1
	whole := alone && !of.Unresolved && reverses(value, item.Corrects.Value)
	switch {
	case m.Corrections == exporter.CorrectCancel && whole && inTime && of.SinceFirstAttempt > 0:
		return exporter.CorrectCancel, ReasonNone
	case m.Corrections == exporter.CorrectTotal && alone:
		return exporter.CorrectTotal, ReasonNone
	case value.Sign() > 0 || m.Values.Negative:
		return exporter.CorrectNegative, ReasonNone
	case m.Corrections == exporter.CorrectCancel && whole:
		return "", ReasonCorrectionLate
	}
	return "", ReasonCorrectionInexpressible
}

// reverses reports whether a correction leaves nothing of its original.
func reverses(value decimal.Decimal, original string) bool {
	of, err := decimal.ParseTotal(original)
	return err == nil && value.Add(of).IsZero()
}
