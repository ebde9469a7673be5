package sqlite

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// clock is a settable store clock.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

func newClock() *clock { return &clock{t: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

// open opens a migrated store in a folder of the test.
func open(t testing.TB, c *clock) *Adapter {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "fencepost.db"), c)
}

func openAt(t testing.TB, path string, c *clock) *Adapter {
	t.Helper()
	a, err := Open(t.Context(), Config{Path: path, Now: c.now, Migrate: true, LockWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func hash(parts ...string) storage.Hash { return sha256.Sum256(fmt.Appendf(nil, "%q", parts)) }

var period = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// event is a usage event; its dedupe hash covers the quantity.
func event(tenant, id, quantity string) storage.Event {
	return storage.Event{
		Tenant: tenant, EventID: id, Feature: "tokens", Quantity: decimal.MustParse(quantity),
		Kind: storage.Usage, OccurredAt: period.Add(36 * time.Hour), PeriodStart: period,
		PeriodEnd: period.AddDate(0, 1, 0), PeriodSource: storage.FromCalendar,
		Dimensions:  map[string]string{"model": "m1"},
		PayloadHash: hash("payload", tenant, id, quantity), DedupeHash: hash("dedupe", tenant, id, quantity),
	}
}

func item(e storage.Event, route int64, mapping string) storage.NewItem {
	return storage.NewItem{
		Identity: storage.Identity{
			Tenant: e.Tenant, SubjectKind: storage.SubjectEvent, SubjectRef: e.EventID,
			Exporter: "stripe", Account: "acct_1", Mode: "test", MappingVersion: mapping,
		},
		Digest: hash("digest", e.Tenant, e.EventID, mapping), SubjectKey: hash("subject", e.Tenant, e.EventID),
		RouteID: route, Customer: "cus_1", AttemptBudget: 3,
	}
}

func plain(e storage.Event, items ...storage.NewItem) storage.Unit {
	return storage.Unit{Entries: []storage.Entry{{Event: e, Items: items}}}
}

// addRoute adds an exporting route for the feature tokens under mapping "m1"
// and returns it with the routes' revision.
func addRoute(t testing.TB, a *Adapter) (route, revision int64) {
	t.Helper()
	set, err := a.ChangeRoutes(t.Context(), storage.RouteChange{
		Mappings: []storage.Mapping{{Version: "m1", Label: "1", Content: []byte(`{"event_name":"llm_tokens"}`)}},
		Add: []storage.Route{{Exporter: "stripe", Account: "acct_1", Mode: "test", Feature: "tokens",
			Disposition: storage.RouteExport, MappingVersion: "m1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return set.Routes[0].ID, set.Revision
}

func record(t testing.TB, a *Adapter, req storage.RecordRequest) storage.RecordResult {
	t.Helper()
	if req.Mode == "" {
		req.Mode = storage.Atomic
	}
	res, err := a.RecordEvents(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestSmoke(t *testing.T) {
	c := newClock()
	a := open(t, c)
	route, rev := addRoute(t, a)
	e := event("acme", "e1", "12.5")
	req := storage.RecordRequest{Units: []storage.Unit{plain(e, item(e, route, "m1"))}, Mode: storage.Atomic, RoutesRevision: rev}
	t.Logf("%+v", record(t, a, req))
	t.Logf("%+v", record(t, a, req))
	cl, err := a.Claim(t.Context(), storage.ClaimRequest{Owner: "w", Routes: []int64{route}, Limit: 10, Lease: time.Minute, Horizon: time.Hour})
	t.Logf("%+v %v", cl, err)
	tok := int64(1)
	ref := "ref"
	res, err := a.Transition(t.Context(), []storage.Transition{{ItemID: 1, Expect: storage.Expect{State: storage.Leased, LeaseToken: &tok}, Set: storage.Change{State: storage.Accepted, ProviderRef: &ref, AcceptedNow: true}, Attempt: &storage.Attempt{}}})
	t.Logf("%+v %v", res, err)
	d, err := a.LoadItem(t.Context(), 1)
	t.Logf("%+v %v", d, err)
	st, err := a.OutboxStats(t.Context())
	t.Logf("%+v %v", st, err)
	p, err := a.ListItems(t.Context(), storage.ItemQuery{Limit: 10, Tenant: "acme", SubjectRef: "e1"})
	t.Logf("%+v %v", p, err)
	tot, err := a.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: "acme"})
	t.Logf("%+v %v", tot, err)
	ev, err := a.StreamEvents(t.Context(), storage.StreamQuery{Limit: 10, Tenant: "acme"})
	t.Logf("%+v %v", ev, err)
}
