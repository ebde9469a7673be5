package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Requeue sends a quarantined item after its cause was mended (T9).
type Requeue struct {
	LeaseToken *int64 // as in [Resolution]
	// MappingVersion is the mapping that somebody expects it to be sent with.
	// nil: the one in force.
	MappingVersion *string
	// Attempts is how many more it gets. Zero: the usual number, if it has none
	// left.
	Attempts int
}

// Surroundings are what an item's eligibility depends on beside the item.
type Surroundings struct {
	// Routes, Mappings and Manifests: see [Enqueue].
	Routes    []storage.Route
	Mappings  map[string]storage.Mapping
	Manifests map[string]exporter.Manifest
	// Customers names the tenant at each exporter.
	Customers map[string]string
	// Reason is what the engine holds against exporting the event.
	Reason Reason
	// Waiting are the items that wait for this one.
	Waiting []storage.ItemDetail
	// Original is the item that this one depends on, nil without.
	Original      *storage.Item
	AttemptBudget int
	// Standing bounds for how long an unresolved item may be sent again.
	Standing Standing
	Now      time.Time
}

// Requeued is what a requeue writes: transitions in one call, the item's own
// first, or a supersession.
type Requeued struct {
	Moves   []storage.Transition
	Replace *storage.Supersession
}

// PlanRequeue judges a quarantined item with the mapping and customer that are in
// force now.
//
// Under the same mapping the item itself goes to pending; a customer that was
// unknown is filled in, and in the corrections that wait for it. Under another
// mapping, account or mode it is superseded by an item of another identity, and
// they with it: only if the provider cannot have taken it, because a new
// identifier after a possible send is a second charge. // O19, R2, Q5, Q6.
//
// It fails with [ErrExpectedStateMismatch], with [ErrMappingChanged], and with a
// conflict of code "still_ineligible" that names the reason for which it would be
// quarantined again. An item that is unresolved, because it went through a restore,
// is bound by the horizon as one that is sent again; made anew it is not, on the
// evidence with which it came back to quarantine.
func PlanRequeue(d storage.ItemDetail, q Requeue, s Surroundings, a Act) (Requeued, error) {
	if err := a.Check(); err != nil {
		return Requeued{}, err
	}
	if q.Attempts < 0 || q.Attempts > maxMoreAttempts {
		return Requeued{}, invalid("attempts", "0 to 1000")
	}
	i := d.Item
	if err := Unmet(storage.Expect{State: storage.Quarantined, LeaseToken: q.LeaseToken, Settled: new(bool)}, i, s.Now); err != nil {
		return Requeued{}, err
	}
	feature, err := featureOf(d)
	if err != nil {
		return Requeued{}, err
	}
	own, now, found := s.route(i, feature)
	switch i.Identity.SubjectKind {
	case storage.SubjectCorrection:
		if q.MappingVersion != nil && *q.MappingVersion != i.Identity.MappingVersion {
			return Requeued{}, changed(i, i.Identity.MappingVersion, "a correction has the mapping of its original")
		}
		if retired(s.Routes, i.RouteID) {
			return Requeued{}, ineligible(ReasonRouteRetired)
		}
		return s.same(d, q, own, a)
	default:
	}
	switch {
	case !found || now.Disposition != storage.RouteExport:
		return Requeued{}, ineligible(ReasonFeatureUnmapped)
	case q.MappingVersion != nil && *q.MappingVersion != now.MappingVersion:
		return Requeued{}, changed(i, now.MappingVersion, "another mapping is in force than expected")
	case now.Account == i.Identity.Account && now.Mode == i.Identity.Mode && now.MappingVersion == i.Identity.MappingVersion:
		return s.same(d, q, now, a)
	case i.Identity.SubjectKind == storage.SubjectWindow:
		return Requeued{}, changed(i, now.MappingVersion, "its mapping is not in force: abandon the window and restage it")
	}
	return s.supersede(d, now, a)
}

// featureOf is the feature that an item reports.
func featureOf(d storage.ItemDetail) (string, error) {
	if d.Event != nil && d.Payload == nil {
		return d.Event.Feature, nil
	}
	var item exporter.Item
	if err := storedPayload(d.Payload, &item); err != nil {
		return "", err
	}
	return item.Feature, nil
}

// route returns the route that an item came by, and the one that its feature has
// now at the same exporter, which may have been renamed meanwhile.
func (s Surroundings) route(i storage.Item, feature string) (own, now storage.Route, found bool) {
	name := i.Identity.Exporter
	for _, r := range s.Routes {
		if r.ID == i.RouteID {
			own, name = r, r.Exporter
		}
	}
	if own.ID == 0 {
		own = storage.Route{ID: i.RouteID, Exporter: name, Account: i.Identity.Account, Mode: i.Identity.Mode, MappingVersion: i.Identity.MappingVersion}
	}
	for _, r := range routesFor(s.Routes, feature) {
		if r.Exporter == name {
			return own, r, true
		}
	}
	return own, storage.Route{}, false
}

// same is a requeue of the item as it is.
func (s Surroundings) same(d storage.ItemDetail, q Requeue, r storage.Route, a Act) (Requeued, error) {
	i := d.Item
	customer := i.Customer
	if s.Original != nil {
		customer = first(customer, s.Original.Customer)
	}
	customer = first(customer, s.Customers[r.Exporter])
	manifest, known := s.Manifests[r.Exporter]
	if !known {
		manifest = unlimited()
	}
	item, reason := s.reread(d, manifest, known, customer)
	if reason == ReasonNone {
		reason = Check(manifest, Destination{Exporter: r.Exporter, Account: i.Identity.Account, Mode: i.Identity.Mode}, item, s.Now)
	}
	if reason != ReasonNone {
		return Requeued{}, ineligible(reason)
	}
	pending := time.Duration(0)
	version := i.Identity.MappingVersion
	t := storage.Transition{
		ItemID: i.ItemID,
		Expect: storage.Expect{State: storage.Quarantined, MappingVersion: &version, LeaseToken: &i.LeaseToken, Settled: new(bool)},
		Set: storage.Change{
			State: storage.Pending, ClearQuarantine: true, NextAttemptAfter: &pending, Release: true, AddBudget: q.Attempts,
		},
	}
	if i.Unresolved {
		sendAgain(&t, s.Standing)
		if err := Unmet(t.Expect, i, s.Now); err != nil {
			return Requeued{}, tooLate(err)
		}
	}
	if left := i.AttemptBudget - i.Attempts; q.Attempts == 0 && left <= 0 {
		t.Set.AddBudget = s.AttemptBudget - left
	}
	if i.Disputed != "" && Reason(i.QuarantineReason) == ReasonOriginalDisputed {
		t.Set.Disputed = new(string) // its original's, which was withdrawn
	}
	detail := map[string]any{"reason": i.QuarantineReason}
	if t.Set.AddBudget > 0 {
		detail["attempts"] = t.Set.AddBudget
	}
	if i.Customer == "" {
		serial := SerialKey(DestinationOf(r), manifest.SerialBy, item)
		t.Set.Customer, t.Set.SerialKey = &customer, &serial
		detail["customer"] = customer
	}
	action := a.action(storage.ActionRequeue, i, storage.Pending, detail)
	t.Action = &action
	return Requeued{Moves: append([]storage.Transition{t}, s.complete(t.Set)...)}, nil
}

// complete fills a customer into what waits for the item.
func (s Surroundings) complete(set storage.Change) []storage.Transition {
	var moves []storage.Transition
	for _, w := range s.Waiting {
		if set.Customer != nil && w.Item.Customer == "" {
			moves = append(moves, storage.Transition{
				ItemID: w.Item.ItemID, Expect: storage.Expect{State: w.Item.State},
				Set: storage.Change{State: w.Item.State, Customer: set.Customer, SerialKey: set.SerialKey},
			})
		}
	}
	return moves
}

// reread is what the item would be sent as, or why it would not.
func (s Surroundings) reread(d storage.ItemDetail, m exporter.Manifest, known bool, customer string) (exporter.Item, Reason) {
	c := claimedOf(d)
	c.Customer = customer
	if d.Item.Identity.SubjectKind == storage.SubjectEvent && s.Reason != ReasonNone {
		return exporter.Item{}, s.Reason
	}
	if known {
		return intent(m, c)
	}
	item, err := Payload(c)
	switch {
	case err != nil:
		return item, ReasonPayloadInvalid
	case d.Original != nil && !Charged(d.Original.State):
		return item, ReasonOriginalNotCharged
	case d.Original != nil && d.Original.Disputed != "":
		return item, ReasonOriginalDisputed
	}
	return item, ReasonNone
}

// claimedOf is an item as a claim would hand it out.
func claimedOf(d storage.ItemDetail) storage.ClaimedItem {
	c := storage.ClaimedItem{
		ItemID: d.Item.ItemID, Identity: d.Item.Identity, Digest: d.Item.Digest, RouteID: d.Item.RouteID,
		Customer: d.Item.Customer, Payload: d.Payload, Mapping: d.Mapping, Method: d.Item.Method, Original: d.Original,
	}
	if d.Event != nil {
		c.Event = *d.Event
	}
	return c
}

// supersede makes the item anew for the route that is in force.
func (s Surroundings) supersede(d storage.ItemDetail, r storage.Route, a Act) (Requeued, error) {
	i := d.Item
	if d.Event == nil || !absent(d) {
		return Requeued{}, changed(i, r.MappingVersion, "another mapping is in force, and the provider may have taken what was sent: store evidence of the contrary, or resolve it")
	}
	fresh := buildItem(Enqueue{
		Event: *d.Event, Routes: s.Routes, Mappings: s.Mappings, Manifests: s.Manifests, Customers: s.Customers,
		Reason: s.Reason, AttemptBudget: s.AttemptBudget, Now: s.Now,
	}, r)
	if fresh.QuarantineReason != "" {
		return Requeued{}, ineligible(Reason(fresh.QuarantineReason))
	}
	version, unresolved, attempts := i.Identity.MappingVersion, i.Unresolved, i.Attempts
	detail := map[string]any{"reason": i.QuarantineReason, "mapping_version": r.MappingVersion, "digest": IdentifierOf(fresh.Digest)}
	sup := &storage.Supersession{
		ItemID: i.ItemID, New: fresh,
		Expect: storage.Expect{
			State: storage.Quarantined, MappingVersion: &version, LeaseToken: &i.LeaseToken,
			Unresolved: &unresolved, Attempts: &attempts, Settled: new(bool),
		},
		Action: a.action(storage.ActionSupersede, i, storage.Pending, detail),
	}
	for _, w := range s.Waiting {
		copied, err := follow(w, fresh)
		if err != nil {
			return Requeued{}, err
		}
		sup.Waiting = append(sup.Waiting, copied)
	}
	return Requeued{Replace: sup}, nil
}

// follow is a waiting correction for the new item of its original.
func follow(w storage.ItemDetail, of storage.NewItem) (storage.NewItem, error) {
	var item exporter.Item
	if err := storedPayload(w.Payload, &item); err != nil {
		return storage.NewItem{}, err
	}
	if item.Corrects != nil {
		item.Corrects.Identifier = IdentifierOf(of.Digest)
	}
	payload, err := FreezePayload(item)
	if err != nil {
		return storage.NewItem{}, err
	}
	identity := of.Identity
	identity.SubjectKind, identity.SubjectRef = w.Item.Identity.SubjectKind, w.Item.Identity.SubjectRef
	digest, _ := Identifier(identity)
	return storage.NewItem{
		Identity: identity, Digest: digest, SubjectKey: SubjectKey(identity), RouteID: of.RouteID, SerialKey: of.SerialKey,
		Customer: of.Customer, Payload: payload, AttemptBudget: w.Item.AttemptBudget,
	}, nil
}

// absent reports whether the provider cannot have taken the item: it was never
// sent, or every attempt is logged and was definitely refused or not sent, as the
// host itself saw it, or there is stored evidence, of which the latest counts.
// R2, Q11.
func absent(d storage.ItemDetail) bool {
	var latest Finding
	for _, x := range d.Actions {
		// What somebody looked up before it came back to quarantine counts: nothing
		// was sent since.
		looked := x.Kind == storage.ActionEvidence || x.Kind == storage.ActionResolve && x.To == storage.Quarantined
		if f := found(x); looked && f != "" {
			latest = f
		}
	}
	if latest != "" || d.Item.Unresolved {
		return latest == FoundRefused
	}
	for _, t := range d.Attempts {
		if t.Evidence != string(GradeHost) || !harmless(t.HostClass) {
			return false
		}
	}
	return d.Item.Attempts == 0 || len(d.Attempts) > 0
}

// harmless reports whether a request of this class had no effect.
func harmless(class string) bool {
	switch exporter.HostClass(class) {
	case exporter.ClassRefused, exporter.ClassThrottled, exporter.ClassNotSent, "none":
		return true
	default:
		return false
	}
}

// tooLate says what helps where an item cannot be sent again under its identifier.
func tooLate(err error) error {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Code != storage.CodeHorizonPassed && e.Code != storage.CodeClockUntrusted {
		return err
	}
	again := *e
	again.Hint = "the provider may have forgotten the identifier: give the mapping a new version, under which it is made anew, or abandon it"
	return &again
}

func ineligible(r Reason) error {
	return refusal("still_ineligible", "one that would not be quarantined again: "+string(r), "mend the cause first: docs/operate-outbox.md")
}

func changed(i storage.Item, current, why string) error {
	return mappingChanged(i, current, fmt.Sprintf("made with mapping %q, %q is in force: %s", i.Identity.MappingVersion, current, why))
}
