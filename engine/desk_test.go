package engine_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// desk is an engine on one store with a deliverer whose exporter answers as it is
// told.
type desk struct {
	*engine.Engine
	t      *testing.T
	st     backend
	answer exporter.HostClass
	sent   []outbox.SendItem
	routes []int64
	pass   func(time.Duration) // lets time pass in a store whose clock stands
}

// onDesks runs a test on every kind of store. Nothing has to be quiet for long.
func onDesks(t *testing.T, test func(d *desk), change ...func(*engine.Config)) {
	t.Helper()
	// The engine's clock stands at noon, whatever that of the store says.
	change = append(change, func(c *engine.Config) { c.Recovery.QuietTime = -100 * 365 * 24 * time.Hour })
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		now := noon
		st, err := sqlite.Open(t.Context(), sqlite.Config{
			Path: filepath.Join(t.TempDir(), "fencepost.db"), Migrate: true, Now: func() time.Time { return now }, LockWait: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		closing(t, st)
		test(&desk{Engine: over(t, st, change...), t: t, st: st, pass: func(d time.Duration) { now = now.Add(d) }})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn, _ := pgtest.Schema(t)
		st, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn, Migrate: true, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		closing(t, st)
		test(&desk{Engine: over(t, st, change...), t: t, st: st, pass: func(time.Duration) {}})
	})
}

func (d *desk) Manifest() exporter.Manifest { return manifest() }

func (d *desk) Send(_ context.Context, items []outbox.SendItem, _ time.Time) outbox.Report {
	r := outbox.Report{Called: true, Grade: outbox.GradeHost, Exchanges: map[string][]exporter.Exchange{}}
	kind := map[exporter.HostClass]exporter.OutcomeKind{exporter.ClassRefused: exporter.Rejected, exporter.ClassIndefinite: exporter.Uncertain}
	for _, i := range items {
		class, said := d.answer, kind[d.answer]
		if class == "" {
			class, said = exporter.ClassSuccess, exporter.Accepted
		}
		d.sent = append(d.sent, i)
		r.Exchanges[i.ID] = []exporter.Exchange{{Class: class}}
		r.Outcomes = append(r.Outcomes, exporter.ItemOutcome{ItemID: i.ID, Kind: said})
	}
	return r
}

// deliver makes passes until one finds nothing.
func (d *desk) deliver() {
	d.t.Helper()
	deliverer, err := outbox.NewDeliverer(outbox.Config{
		Store: d.st, Sender: d, Destination: outbox.Destination{Exporter: "stripe", Account: "acct_1", Mode: "test"}, Routes: func() []int64 { return d.routes },
		Owner: "w", Now: atNoon, Boottime: func() time.Duration { return 0 }, Uniform: func(int64) int64 { return 0 },
	})
	if err != nil {
		d.t.Fatal(err)
	}
	for range 10 {
		d.pass(time.Hour)
		sum, err := deliverer.Once(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		if sum.Claimed+sum.Exhausted == 0 {
			return
		}
	}
	d.t.Fatal("deliveries never end")
}

func (d *desk) apply(p engine.RoutePlan) {
	d.t.Helper()
	set, err := d.ApplyRoutes(d.t.Context(), []engine.RoutePlan{p})
	if err != nil {
		d.t.Fatal(err)
	}
	d.routes = nil
	for _, r := range set.Routes {
		d.routes = append(d.routes, r.ID)
	}
}

func (d *desk) customer(id string) {
	d.t.Helper()
	if _, err := d.PutSubscription(d.t.Context(), storage.Subscription{Tenant: "acme", Customers: map[string]string{"stripe": id}}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) correct(id, quantity string) {
	d.t.Helper()
	if _, err := d.Correct(d.t.Context(), take(id, quantity)); err != nil {
		d.t.Fatal(err)
	}
}

// items are all items in id order.
func (d *desk) items() []storage.Item {
	d.t.Helper()
	page, err := d.st.ListItems(d.t.Context(), storage.ItemQuery{Limit: 100})
	if err != nil {
		d.t.Fatal(err)
	}
	return page.Items
}

// want checks state and reason of every item.
func (d *desk) want(states ...string) []storage.Item {
	d.t.Helper()
	items := d.items()
	var got []string
	for _, i := range items {
		s := string(i.State)
		if i.QuarantineReason != "" {
			s += " " + i.QuarantineReason
		}
		if i.Waits {
			s += " waits"
		}
		if i.SupersededBy != 0 {
			s += " superseded"
		}
		if i.Disputed != "" {
			s += " disputed"
		}
		got = append(got, s)
	}
	if !slices.Equal(got, states) {
		d.t.Fatalf("items are %q, want %q", got, states)
	}
	return items
}

func (d *desk) log(kinds ...storage.ActionKind) {
	d.t.Helper()
	page, err := d.Actions(d.t.Context(), storage.ActionQuery{Limit: 100})
	var got []storage.ActionKind
	for _, a := range page.Actions {
		got = append(got, a.Kind)
		if a.Actor != "anna" || a.Reason != "ticket 7" || a.At.IsZero() {
			d.t.Errorf("%+v", a)
		}
	}
	if err != nil || !slices.Equal(got, kinds) {
		d.t.Errorf("%v, %v; want %v", got, err, kinds)
	}
}
