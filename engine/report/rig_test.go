package report_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/report"
	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

var (
	noon  = time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)
	start = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	end   = start.AddDate(0, 1, 0)
)

// store is what the tests need of an adapter.
type store interface {
	storage.Adapter
	storage.CounterStore
	storage.ReportStore
	storage.OutboxStore
	storage.SubscriptionStore
	storage.RouteStore
}

// rig is a store with one buffered feature that is mapped, and a clock.
type rig struct {
	t      *testing.T
	store  store
	engine *engine.Engine
	now    time.Time
}

// on runs a test on both stores.
func on(t *testing.T, test func(r *rig)) {
	t.Helper()
	onWith(t, exporter.Manifest{
		Name: "stripe", WindowPast: 35 * 24 * time.Hour, WindowFuture: 5 * time.Minute, MappingKeys: []string{"event_name"},
		Values: exporter.ValueDomain{SignificantDigits: 15, MaxDecimals: 12, Negative: true},
	}, test)
}

// onWith runs a test on both stores, with an exporter of one's own.
func onWith(t *testing.T, m exporter.Manifest, test func(r *rig)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "report.db"), Migrate: true, LockWait: -1})
		if err != nil {
			t.Fatal(err)
		}
		test(newRig(t, st, m))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn, _ := pgtest.Schema(t)
		st, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Migrate: true})
		if err != nil {
			t.Fatal(err)
		}
		test(newRig(t, st, m))
	})
}

func newRig(t *testing.T, st store, m exporter.Manifest) *rig {
	t.Helper()
	r := &rig{t: t, store: st, now: noon}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	e, err := engine.New(engine.Config{
		Store: st, Now: func() time.Time { return r.now }, Buffer: engine.Buffer{FlushEvery: -1},
		Features:  map[string]engine.Feature{"calls": {Buffered: true, Signed: true}},
		Manifests: map[string]exporter.Manifest{"stripe": m},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	r.engine = e
	r.routes("acct_1", "api_calls")
	if _, err := e.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Customers: map[string]string{"stripe": "cus_1"}}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) routes(account, name string) {
	r.t.Helper()
	_, err := r.engine.ApplyRoutes(r.t.Context(), []engine.RoutePlan{{
		Exporter: "stripe", Provider: "stripe", Account: account, Mode: "test", Features: map[string]map[string]string{"calls": {"event_name": name}},
	}})
	if err != nil {
		r.t.Fatal(err)
	}
}

// add moves the counter of a tenant.
func (r *rig) add(tenant, by string) {
	r.t.Helper()
	err := r.store.AddCounters(r.t.Context(), []storage.Counter{{
		CounterKey: storage.CounterKey{Tenant: tenant, Feature: "calls", PeriodStart: start}, PeriodEnd: end, Value: decimal.MustParse(by),
	}})
	if err != nil {
		r.t.Fatal(err)
	}
}

// pass makes one pass of a reporter and checks what it did.
func (r *rig) pass(staged, acknowledged int) report.Summary {
	r.t.Helper()
	sum, err := r.engine.Reporter(engine.Reporting{}).Once(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if sum.Staged != staged || sum.Acknowledged != acknowledged {
		r.t.Errorf("%+v, want %d staged and %d acknowledged", sum, staged, acknowledged)
	}
	return sum
}

// deliver ends every pending window in a state, and returns the values of those
// that ended, in order of their items.
func (r *rig) deliver(state storage.ItemState) string {
	r.t.Helper()
	page, err := r.store.ListItems(r.t.Context(), storage.ItemQuery{State: storage.Pending, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	var values []string
	for _, it := range page.Items {
		_, err := r.store.Transition(r.t.Context(), []storage.Transition{{
			ItemID: it.ItemID, Expect: storage.Expect{State: storage.Pending},
			Set: storage.Change{State: state, AcceptedNow: state == storage.Accepted, Settled: new(state == storage.Accepted)},
		}})
		if err != nil {
			r.t.Fatal(err)
		}
		values = append(values, r.value(it.ItemID))
	}
	return strings.Join(values, " ")
}

// value is what the payload of an item says.
func (r *rig) value(id int64) string {
	r.t.Helper()
	d, err := r.store.LoadItem(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	_, v, _ := strings.Cut(string(d.Payload), `"value":"`)
	v, _, _ = strings.Cut(v, `"`)
	return v
}

// reasons are the quarantine reasons of all items, in order.
func (r *rig) reasons() string {
	r.t.Helper()
	page, err := r.store.ListItems(r.t.Context(), storage.ItemQuery{State: storage.Quarantined, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, it := range page.Items {
		out = append(out, it.QuarantineReason)
	}
	return strings.Join(out, " ")
}

// charged is the sum of what was accepted.
func (r *rig) charged() decimal.Decimal {
	r.t.Helper()
	var sum decimal.Decimal
	for after := int64(0); ; {
		page, err := r.store.ListItems(r.t.Context(), storage.ItemQuery{State: storage.Accepted, After: after, Limit: 1000})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, it := range page.Items {
			sum = sum.Add(decimal.MustParse(r.value(it.ItemID)))
		}
		if !page.More {
			return sum
		}
		after = page.Next
	}
}
