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
		Add: []storage.Route{{
			Exporter: "stripe", Account: "acct_1", Mode: "test", Feature: "tokens",
			Disposition: storage.RouteExport, MappingVersion: "m1",
		}},
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

func claim(t testing.TB, a *Adapter, routes ...int64) storage.Claim {
	t.Helper()
	return claimWith(t, a, storage.ClaimRequest{Routes: routes})
}

// claimWith fills in what the test does not care about.
func claimWith(t testing.TB, a *Adapter, req storage.ClaimRequest) storage.Claim {
	t.Helper()
	if req.Owner == "" {
		req.Owner = "worker"
	}
	if req.Limit == 0 {
		req.Limit = 100
	}
	if req.Lease == 0 {
		req.Lease = time.Minute
	}
	cl, err := a.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// move applies transitions and answers the rows that each changed.
func move(t testing.TB, a *Adapter, moves ...storage.Transition) []int {
	t.Helper()
	res, err := a.Transition(t.Context(), moves)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]int, len(res))
	for i, r := range res {
		if r.ItemID != moves[i].ItemID {
			t.Errorf("answer %d is about item %d, want %d", i, r.ItemID, moves[i].ItemID)
		}
		rows[i] = r.Rows
	}
	return rows
}

// fenced expects a leased item with a token.
func fenced(token int64) storage.Expect {
	return storage.Expect{State: storage.Leased, LeaseToken: &token}
}

// load reads one item.
func load(t testing.TB, a *Adapter, id int64) storage.ItemDetail {
	t.Helper()
	d, err := a.LoadItem(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// seed records n events of the tenant acme with an item each and answers their
// route.
func seed(t testing.TB, a *Adapter, n int, change func(i int, it *storage.NewItem)) int64 {
	t.Helper()
	route, rev := addRoute(t, a)
	units := make([]storage.Unit, n)
	for i := range units {
		e := event("acme", fmt.Sprintf("e%06d", i), "1")
		it := item(e, route, "m1")
		if change != nil {
			change(i, &it)
		}
		units[i] = plain(e, it)
	}
	record(t, a, storage.RecordRequest{Units: units, RoutesRevision: rev})
	return route
}

// checkCounts compares the gauge with a scan of the outbox.
func checkCounts(t testing.TB, a *Adapter) {
	t.Helper()
	stats, err := a.OutboxStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type key struct {
		exporter string
		state    storage.ItemState
	}
	want := map[key]storage.ItemCount{}
	for after := int64(0); ; {
		page, err := a.ListItems(t.Context(), storage.ItemQuery{After: after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range page.Items {
			n := want[key{it.Identity.Exporter, it.State}]
			n.Exporter, n.State = it.Identity.Exporter, it.State
			n.Items++
			if it.SettledAt.IsZero() {
				n.Open++
			}
			want[key{it.Identity.Exporter, it.State}] = n
		}
		if after = page.Next; !page.More {
			break
		}
	}
	for _, n := range stats.Counts {
		k := key{n.Exporter, n.State}
		if want[k] != n {
			t.Errorf("the gauge says %+v, the outbox %+v", n, want[k])
		}
		delete(want, k)
	}
	for _, n := range want {
		t.Errorf("the gauge misses %+v", n)
	}
}
