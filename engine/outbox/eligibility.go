package outbox

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Reason is why an item may not be sent. Empty: it may.
type Reason string

// The reasons of a quarantine.
const (
	ReasonNone Reason = ""

	// Decided by the engine from the event, before any route is looked at.
	ReasonFeatureBuffered       Reason = "feature_buffered"
	ReasonPeriodBuffered        Reason = "period_buffered"
	ReasonAttributionUnresolved Reason = "attribution_unresolved"
	ReasonOriginalIneligible    Reason = "original_ineligible"
	ReasonPlanUnresolved        Reason = "plan_unresolved"

	// Decided here.
	ReasonFeatureUnmapped         Reason = "feature_unmapped"
	ReasonNoCustomer              Reason = "no_customer"
	ReasonNoAccount               Reason = "no_account"
	ReasonModeMismatch            Reason = "mode_mismatch"
	ReasonAccountMismatch         Reason = "account_mismatch"
	ReasonTimestampWindow         Reason = "timestamp_window"
	ReasonValueDomain             Reason = "value_domain"
	ReasonCorrectionInexpressible Reason = "correction_inexpressible"
	ReasonPayloadInvalid          Reason = "payload_invalid"
	ReasonProviderRefused         Reason = CodeProviderRefused

	// Of corrections, decided from their original's item.
	ReasonOriginalNotCharged Reason = "original_not_charged"
	ReasonOriginalDisputed   Reason = "original_disputed"
	ReasonCorrectionLate     Reason = "correction_late"
)

// QuarantineReasons lists every reason with which an item can be in quarantine.
func QuarantineReasons() []Reason {
	return []Reason{
		ReasonFeatureBuffered, ReasonPeriodBuffered, ReasonAttributionUnresolved, ReasonOriginalIneligible, ReasonPlanUnresolved,
		ReasonFeatureUnmapped, ReasonNoCustomer, ReasonNoAccount, ReasonModeMismatch, ReasonAccountMismatch, ReasonTimestampWindow,
		ReasonValueDomain, ReasonCorrectionInexpressible, ReasonPayloadInvalid, ReasonProviderRefused,
		ReasonOriginalNotCharged, ReasonOriginalDisputed, ReasonCorrectionLate, ReasonRouteRetired,
	}
}

// BornSettled reports whether nobody needs to act on an item of this reason.
func (r Reason) BornSettled() bool {
	return r == ReasonFeatureBuffered || r == ReasonPeriodBuffered
}

// Destination is one account of one exporter in one mode.
type Destination struct {
	Exporter string
	Account  string
	Mode     string
}

// DestinationOf returns where a route leads.
func DestinationOf(r storage.Route) Destination {
	return Destination{Exporter: r.Exporter, Account: r.Account, Mode: r.Mode}
}

// Check says whether a destination can take an item now: the first reason, in a
// fixed order, why not. It is asked when the item is made and again before it
// is sent, because time passes in between.
func Check(m exporter.Manifest, dest Destination, item exporter.Item, now time.Time) Reason {
	switch {
	case item.Mode != dest.Mode:
		return ReasonModeMismatch
	case item.Account != dest.Account:
		return ReasonAccountMismatch
	case m.NeedsAccount && item.Account == "":
		return ReasonNoAccount
	case !mapped(m.MappingKeys, item.Mapping):
		return ReasonFeatureUnmapped
	case item.Customer == "":
		return ReasonNoCustomer
	case m.IdentifierMaxLength > 0 && len(item.Identifier) > m.IdentifierMaxLength:
		return ReasonPayloadInvalid
	}
	value, err := decimal.ParseTotal(item.Value)
	if err != nil || item.Timestamp.IsZero() {
		return ReasonPayloadInvalid
	}
	if c := item.Corrects; c != nil && c.Method == exporter.CorrectCancel {
		return ReasonNone // tells neither value nor time; how late it may be was judged with the method
	} else if c != nil && c.Method == exporter.CorrectTotal { // tells what is left
		of, err := decimal.ParseTotal(c.Value)
		if err != nil {
			return ReasonPayloadInvalid
		}
		value = value.Add(of)
	}
	if !inDomain(m.Values, value) || m.Every > 0 && item.Kind != string(storage.SubjectWindow) {
		// A provider that knows a value by its span cannot be told single events.
		return ReasonValueDomain
	}
	switch {
	case !outside(m, item.Timestamp, now):
		return ReasonNone
	case item.Corrects != nil, item.Kind == string(storage.SubjectWindow) && value.Sign() < 0:
		return ReasonCorrectionLate
	}
	return ReasonTimestampWindow
}

func mapped(keys []string, fields map[string]string) bool {
	for _, k := range keys {
		if fields[k] == "" {
			return false
		}
	}
	return true
}

func inDomain(v exporter.ValueDomain, d decimal.Decimal) bool {
	switch {
	case d.IsZero():
		return v.Zero
	case d.Sign() < 0 && !v.Negative:
		return false
	case v.SignificantDigits > 0 && d.SignificantDigits() > v.SignificantDigits:
		return false
	case v.MaxDecimals >= 0 && d.Scale() > v.MaxDecimals:
		return false
	}
	return true
}

func outside(m exporter.Manifest, at, now time.Time) bool {
	if m.WindowPast > 0 && at.Before(now.Add(-m.WindowPast)) {
		return true
	}
	return m.WindowFuture > 0 && at.After(now.Add(m.WindowFuture))
}

// Enqueue is what the items of one usage event are made of. Nothing in it is changed.
type Enqueue struct {
	Event storage.Event
	// Routes are all stored routes, retired ones included, and Mappings the
	// stored mappings by version.
	Routes   []storage.Route
	Mappings map[string]storage.Mapping
	// Fields are the mappings read once by [MappingFields], by version; what
	// is absent is read for each event.
	Fields map[string]map[string]string
	// Manifests are those of the exporters that this host runs, by their
	// configured name. For any other exporter only what the store knows is
	// checked; the host that runs it checks again before it sends.
	Manifests map[string]exporter.Manifest
	// Customers names the tenant at each exporter.
	Customers map[string]string
	// Reason is what the engine already holds against exporting this event.
	Reason Reason
	// AttemptBudget is given to every item.
	AttemptBudget int
	Now           time.Time
}

// BuildItems makes the items of one event: one for each destination that has a
// route in force for its feature, or for any feature. An event that cannot be
// sent is quarantined with its reason, never dropped. A zero quantity leads to
// no item.
func BuildItems(e Enqueue) []storage.NewItem {
	if e.Event.Quantity.IsZero() {
		return nil
	}
	var items []storage.NewItem
	for _, r := range routesFor(e.Routes, e.Event.Feature) {
		items = append(items, buildItem(e, r))
	}
	return items
}

// routesFor picks one route for each destination, the feature's own before the
// one for any feature, in the order of the routes. Ignoring routes are left out
// after they have won.
func routesFor(routes []storage.Route, feature string) []storage.Route {
	best := make(map[Destination]storage.Route)
	var order []Destination
	for _, r := range routes {
		if !r.RetiredAt.IsZero() || (r.Feature != feature && r.Feature != storage.AnyFeature) {
			continue
		}
		dest := DestinationOf(r)
		old, seen := best[dest]
		if !seen {
			order = append(order, dest)
		}
		if !seen || (old.Feature == storage.AnyFeature && r.Feature == feature) {
			best[dest] = r
		}
	}
	var out []storage.Route
	for _, dest := range order {
		if best[dest].Disposition != storage.RouteIgnore {
			out = append(out, best[dest])
		}
	}
	return out
}

func buildItem(e Enqueue, r storage.Route) storage.NewItem {
	key := storage.EventKey{Tenant: e.Event.Tenant, EventID: e.Event.EventID}
	identity := storage.Identity{
		Tenant: e.Event.Tenant, SubjectKind: storage.SubjectEvent, SubjectRef: EventRef(key),
		Exporter: r.Exporter, Account: r.Account, Mode: r.Mode, MappingVersion: r.MappingVersion,
	}
	digest, _ := Identifier(identity)
	item := storage.NewItem{
		Identity: identity, Digest: digest, SubjectKey: SubjectKey(identity),
		RouteID: r.ID, Customer: e.Customers[r.Exporter], AttemptBudget: e.AttemptBudget,
	}
	reason, serial := judge(e, r, item)
	item.QuarantineReason, item.Settled = string(reason), reason.BornSettled()
	item.SerialKey = serial
	return item
}

// judge decides the reason of a new item and its serial key.
func judge(e Enqueue, r storage.Route, item storage.NewItem) (Reason, string) {
	intent, err := e.intent(r, item)
	manifest, known := e.Manifests[r.Exporter]
	if !known {
		manifest = unlimited()
	}
	dest := DestinationOf(r)
	serial := SerialKey(dest, manifest.SerialBy, intent)
	_, hasMapping := e.Mappings[r.MappingVersion]
	switch {
	case e.Reason != ReasonNone:
		return e.Reason, serial
	case r.Disposition != storage.RouteExport || !hasMapping:
		return ReasonFeatureUnmapped, serial
	case err != nil:
		return ReasonPayloadInvalid, serial
	}
	return Check(manifest, dest, intent, e.Now), serial
}

// unlimited is the manifest of an exporter that this host does not run.
func unlimited() exporter.Manifest {
	return exporter.Manifest{Values: exporter.ValueDomain{MaxDecimals: -1, Negative: true, Zero: true}}
}

// intent is the payload that the item will have.
func (e Enqueue) intent(r storage.Route, item storage.NewItem) (exporter.Item, error) {
	c := storage.ClaimedItem{
		Identity: item.Identity, Digest: item.Digest, Customer: item.Customer,
		Event: e.Event, Mapping: e.Mappings[r.MappingVersion],
	}
	if fields, known := e.Fields[r.MappingVersion]; known {
		return payload(c, fields)
	}
	return Payload(c)
}

func invalid(field, rule string) error { return sdk.Invalid(field, rule) }
