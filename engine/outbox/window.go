package outbox

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Stretch is what the item of a usage window is made of.
type Stretch struct {
	Tenant    string
	Window    Window
	PeriodEnd time.Time
	// Route is an export route in force, with its Mapping.
	Route    storage.Route
	Mapping  storage.Mapping
	Customer string // empty: unknown
	// Manifest is the exporter's; nil if this host does not run it.
	Manifest      *exporter.Manifest
	AttemptBudget int
	Now           time.Time
}

// windowMargin is how long before the end of its period a late window is dated.
const windowMargin = time.Second

// BuildWindow makes the item of a window. Its value is To less From, negative
// where the counter fell, and its time is now, or the last second of a period
// that has ended; in a span, the start of the span. What a provider cannot be told is quarantined with its reason:
// a negative value that came too late as correction_late. // O22, A-T17, Q20.
func BuildWindow(s Stretch) storage.NewItem {
	identity := storage.Identity{
		Tenant: s.Tenant, SubjectKind: storage.SubjectWindow, SubjectRef: WindowRef(s.Window),
		Exporter: s.Route.Exporter, Account: s.Route.Account, Mode: s.Route.Mode, MappingVersion: s.Route.MappingVersion,
	}
	digest, _ := Identifier(identity)
	item := storage.NewItem{
		Identity: identity, Digest: digest, SubjectKey: SubjectKey(identity), RouteID: s.Route.ID,
		Customer: s.Customer, AttemptBudget: s.AttemptBudget,
	}
	value := s.Window.To.Sub(s.Window.From)
	at := s.Now
	if last := s.PeriodEnd.Add(-windowMargin); at.After(last) {
		at = last
	}
	if at.Before(s.Window.PeriodStart) {
		at = s.Window.PeriodStart
	}
	if !s.Window.Span.IsZero() {
		at = s.Window.Span
	}
	var err error
	item.Payload, err = FreezePayload(exporter.Item{
		Feature: s.Window.Feature, Value: value.String(), Timestamp: at, PeriodStart: s.Window.PeriodStart, PeriodEnd: s.PeriodEnd,
	})
	reason, manifest := ReasonPayloadInvalid, unlimited()
	if s.Manifest != nil {
		manifest = *s.Manifest
	}
	if err == nil {
		var intent exporter.Item
		intent, err = Payload(storage.ClaimedItem{
			Identity: identity, Digest: digest, Customer: s.Customer, Payload: item.Payload, Mapping: s.Mapping,
		})
		if err == nil {
			if !s.Window.Span.IsZero() {
				item.SubjectKey = spanSubject(s, &manifest, intent.Mapping)
			}
			item.SerialKey = SerialKey(DestinationOf(s.Route), manifest.SerialBy, intent)
			reason = Check(manifest, DestinationOf(s.Route), intent, s.Now)
		}
	}
	item.QuarantineReason = string(reason)
	return item
}

// ExportRoutes returns the route in force of each destination that reports a
// feature, in the order of the routes.
func ExportRoutes(routes []storage.Route, feature string) []storage.Route {
	var out []storage.Route
	for _, r := range routesFor(routes, feature) {
		if r.Disposition == storage.RouteExport {
			out = append(out, r)
		}
	}
	return out
}

// Split returns a reading between two others, nearer to the first, for a window
// that must not end at to: about half the way, whole where the way is whole. It
// reports false where there is none.
func Split(from, to decimal.Decimal) (decimal.Decimal, bool) {
	way := to.Sub(from)
	half := way.Mean(2)
	if way.Scale() == 0 && half.Scale() > 0 && way.Abs().Cmp(decimal.One) > 0 {
		odd := decimal.FromScaled(5, 1)
		if way.Sign() < 0 {
			odd = odd.Neg()
		}
		half = half.Sub(odd)
	}
	mid := from.Add(half)
	return mid, !mid.Equal(from) && !mid.Equal(to)
}
