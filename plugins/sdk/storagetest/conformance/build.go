package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// period is the billing period that events of the cases are in.
var period = time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)

// tenant returns a tenant of this case.
func (r *run) tenant(name string) string { return r.prefix + "-" + name }

func hash(parts ...string) storage.Hash { return sha256.Sum256(fmt.Appendf(nil, "%q", parts)) }

func dec(s string) decimal.Decimal {
	d, err := decimal.ParseTotal(s)
	if err != nil {
		panic(err)
	}
	return d
}

// usage is an event of a tenant; its hashes cover what it is made of.
func usage(tenant, id, quantity string) storage.Event {
	return storage.Event{
		Tenant: tenant, EventID: id, Feature: "tokens", Quantity: dec(quantity), Kind: storage.Usage,
		OccurredAt: period.Add(36 * time.Hour), PeriodStart: period, PeriodEnd: period.AddDate(0, 1, 0),
		PeriodSource: storage.FromCalendar, PayloadHash: hash("payload", tenant, id, quantity),
		DedupeHash: hash("dedupe", tenant, id, quantity),
	}
}

func entry(e storage.Event, items ...storage.NewItem) storage.Entry {
	return storage.Entry{Event: e, Items: items, Signed: e.Quantity.Sign() < 0}
}

func units(events ...storage.Event) []storage.Unit {
	all := make([]storage.Unit, len(events))
	for i, e := range events {
		all[i] = storage.Unit{Entries: []storage.Entry{entry(e)}}
	}
	return all
}

// request fills in the revisions that a request is checked against.
func (r *run) request(all []storage.Unit, mode storage.RecordMode) storage.RecordRequest {
	req := storage.RecordRequest{Units: all, Mode: mode, RoutesRevision: r.revision()}
	seen := map[string]bool{}
	for i := range all {
		t := unitKey(&all[i]).Tenant
		if !seen[t] {
			seen[t] = true
			req.Subscriptions = append(req.Subscriptions, storage.SubscriptionRevision{Tenant: t, Revision: r.subscription(t)})
		}
	}
	return req
}

// revision is that of the routes; an adapter without an outbox has none.
func (r *run) revision() int64 {
	if !r.manifest.Has(storage.Outbox) {
		return 0
	}
	set, err := use[storage.RouteStore](r, storage.Outbox).Routes(r.ctx)
	r.must("read the routes", err)
	return set.Revision
}

func (r *run) subscription(tenant string) int64 {
	if !r.manifest.Has(storage.Subscriptions) {
		return 0
	}
	all, err := use[storage.SubscriptionStore](r, storage.Subscriptions).Subscriptions(r.ctx, []string{tenant})
	r.must("read a subscription", err)
	for _, s := range all {
		if s.Tenant == tenant {
			return s.Revision
		}
	}
	return 0
}

// retries bounds how often a call is repeated that must be: after a stale
// answer, or one that says that it may not have happened.
const retries = 50

// try records, and repeats what the contract says to repeat: stale revisions,
// and conflict_unresolved. Any other error is the caller's.
func (r *run) try(all []storage.Unit, mode storage.RecordMode) (storage.RecordResult, error) {
	for range retries {
		res, err := r.eventStore().RecordEvents(r.ctx, r.request(all, mode))
		if unresolved(err) || (err == nil && res.Stale != nil) {
			continue
		}
		return res, err
	}
	return storage.RecordResult{}, fmt.Errorf("still stale or unresolved after %d tries", retries)
}

func unresolved(err error) bool {
	e, ok := tagged(err)
	return ok && e.Tag == sdk.TagUnavailable && e.Code == "conflict_unresolved"
}

// record records and expects an answer for every unit.
func (r *run) record(mode storage.RecordMode, all ...storage.Unit) []storage.UnitResult {
	res, err := r.try(all, mode)
	r.must("record", err)
	if len(res.Units) != len(all) {
		r.fatalf("record: %d results for %d units", len(res.Units), len(all))
	}
	return res.Units
}

// put records events that must all be new.
func (r *run) put(events ...storage.Event) []storage.EntryResult {
	return r.putUnits(units(events...)...)
}

func (r *run) putUnits(all ...storage.Unit) []storage.EntryResult {
	var out []storage.EntryResult
	results := r.record(storage.Atomic, all...)
	for i := range all {
		u, want := &results[i], len(all[i].Entries)
		if u.Outcome != storage.Inserted || len(u.Entries) != want {
			r.fatalf("record: unit %d is %q with %d entries, want inserted with %d", i, u.Outcome, len(u.Entries), want)
		}
		out = append(out, u.Entries...)
	}
	return out
}

func outcomes(results []storage.UnitResult) []storage.Outcome {
	all := make([]storage.Outcome, len(results))
	for i := range results {
		all[i] = results[i].Outcome
	}
	return all
}

func (r *run) totals(tenant string) []storage.Total {
	all, err := r.eventStore().LoadTotals(r.ctx, storage.TotalsQuery{Tenant: tenant})
	r.must("load totals", err)
	return all
}

// sum is a total in short.
type sum struct {
	Quantity      decimal.Decimal
	Events, Count int64
}

// total expects that a tenant has one total, of the feature tokens and the
// period of the cases, or none at all.
func (r *run) total(tenant string) sum {
	all := r.totals(tenant)
	if len(all) == 0 {
		return sum{}
	}
	if len(all) > 1 || all[0].Feature != "tokens" || !all[0].PeriodStart.Equal(period) {
		r.errorf("totals of the tenant: %s, want one of tokens from %s", text(all), period)
	}
	return sum{all[0].Quantity, all[0].Events, all[0].Count}
}

func (r *run) totalIs(what, tenant, quantity string, events, count int64) {
	r.same(what+": total", r.total(tenant), sum{dec(quantity), events, count})
}

func (r *run) load(tenant, id string) storage.Event {
	e, err := r.eventStore().LoadEvent(r.ctx, storage.EventKey{Tenant: tenant, EventID: id})
	r.must("load an event", err)
	return e
}

func (r *run) absent(what, tenant, id string) {
	_, err := r.eventStore().LoadEvent(r.ctx, storage.EventKey{Tenant: tenant, EventID: id})
	r.tagIs(what+": load", err, sdk.TagNotFound, "")
}

// plainEvent makes events comparable: what the store assigns is left out, no
// dimensions are nil, and metadata is compared by its content.
func plainEvent(e storage.Event) storage.Event {
	e.Seq, e.RecordedAt = 0, time.Time{}
	e.OccurredAt, e.PeriodStart, e.PeriodEnd = e.OccurredAt.UTC(), e.PeriodStart.UTC(), e.PeriodEnd.UTC()
	if len(e.Dimensions) == 0 {
		e.Dimensions = nil
	}
	e.Metadata = plainJSON(e.Metadata)
	return e
}

// plainJSON renders JSON with sorted keys and numbers as they were written.
func plainJSON(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return out
}
