package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/engine/outbox/reconcile"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func as(name string, p engine.RoutePlan) engine.RoutePlan {
	p.Exporter = name
	return p
}

// known runs two exporters: the second is a rename, or another account's.
func known(c *engine.Config) {
	c.Manifests = map[string]exporter.Manifest{"stripe": manifest(), "billing": manifest()}
}

// Q4: a renamed exporter goes on where the old name stopped: same routes, same
// customers, same identities on their way, and nothing is billed under both.
func TestRenameRoute(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		ctx := d.t.Context()
		p := plan(map[string]string{"tokens": "llm"})
		d.apply(p)
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		before := d.want("pending")[0]
		// Without a rename another name is refused, also after the old one is retired.
		if _, err := d.ApplyRoutes(ctx, []engine.RoutePlan{as("billing", p)}); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "route_shared"}) {
			d.t.Errorf("%v", err)
		}
		dry := anna
		dry.DryRun = true
		for _, act := range []engine.Act{dry, anna} {
			if got, err := d.RenameRoute(ctx, "stripe", "billing", act); err != nil || got.Routes != 2 || got.Tenants != 1 || got.DryRun != act.DryRun {
				d.t.Errorf("%+v, %v", got, err)
			}
		}
		// A script says it again.
		for _, act := range []engine.Act{dry, anna} {
			if got, err := d.RenameRoute(ctx, "stripe", "billing", act); err != nil || !got.Already || got.Routes != 2 || got.Tenants != 0 {
				d.t.Errorf("again: %+v, %v", got, err)
			}
		}
		if sub, err := d.Subscription(ctx, "acme"); err != nil || sub.Customers["billing"] != "cus_1" || sub.Customers["stripe"] != "cus_1" {
			d.t.Errorf("%+v, %v", sub, err)
		}
		// The old configuration is refused now, the new one changes nothing.
		if _, err := d.ApplyRoutes(ctx, []engine.RoutePlan{p}); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "route_shared"}) {
			d.t.Errorf("%v", err)
		}
		set, err := d.ApplyRoutes(ctx, []engine.RoutePlan{as("billing", p)})
		if err != nil || len(set.Routes) != 2 {
			d.t.Errorf("%+v, %v", set.Routes, err)
		}
		for _, r := range set.Routes {
			if r.Exporter != "billing" || !r.RetiredAt.IsZero() {
				d.t.Errorf("%+v", r)
			}
		}
		record(d.t, d.Engine, plain("req_2", "5"))
		items := d.want("pending", "pending")
		if items[0].Digest != before.Digest || items[0].Identity.Exporter != "stripe" || items[1].Identity.Exporter != "billing" || items[1].Customer != "cus_1" || items[1].RouteID != items[0].RouteID {
			d.t.Errorf("%+v", items)
		}
		// What was made under the old name is not made again.
		if got, err := d.Backfill(ctx, engine.Backfill{Exporter: "billing"}, anna); err != nil || got.Made != 0 || len(got.Skipped) != 2 {
			d.t.Errorf("%+v, %v", got, err)
		}
		d.deliver()
		d.want("accepted", "accepted")
		d.log(storage.ActionRoute)
	}, known)
}

// Q4: what is still to be sent or settled keeps its route.
func TestRetireRoute(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		ctx := d.t.Context()
		d.apply(plan(map[string]string{"tokens": "llm", "seats": "seats"}))
		record(d.t, d.Engine, plain("req_1", "10"))
		item := d.want("quarantined no_customer")[0]
		dry := anna
		dry.DryRun = true
		for _, act := range []engine.Act{dry, anna} {
			if n, err := d.RetireRoute(ctx, engine.RouteRetirement{Exporter: "stripe"}, act); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "route_open"}) {
				d.t.Errorf("%d, %v", n, err)
			}
			if n, err := d.RetireRoute(ctx, engine.RouteRetirement{Exporter: "stripe", Feature: "seats"}, act); err != nil || n != 1 {
				d.t.Errorf("%d, %v", n, err)
			}
		}
		if _, err := d.RetireRoute(ctx, engine.RouteRetirement{Exporter: "stripe", Feature: "seats"}, anna); !errors.Is(err, sdk.ErrNotFound) {
			d.t.Errorf("%v", err)
		}
		if _, err := d.Abandon(ctx, item.ItemID, engine.Abandonment{}, anna); err != nil {
			d.t.Fatal(err)
		}
		if n, err := d.RetireRoute(ctx, engine.RouteRetirement{Exporter: "stripe"}, anna); err != nil || n != 2 {
			d.t.Errorf("%d, %v", n, err)
		}
		record(d.t, d.Engine, plain("req_2", "10"))
		d.want("quarantined no_customer")
		// What it billed, no other may bill.
		if _, err := d.ApplyRoutes(ctx, []engine.RoutePlan{as("billing", plan(map[string]string{"tokens": "llm"}))}); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "route_shared"}) {
			d.t.Errorf("%v", err)
		}
		d.log(storage.ActionRoute, storage.ActionAbandon, storage.ActionRoute)
	}, known)
}

// Q4: a mapping that was replaced leaves items under its own route, which is
// retired already: they keep the exporter from being retired as well.
func TestRetireRouteAfterAChangeOfMapping(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		ctx := d.t.Context()
		d.apply(plan(map[string]string{"tokens": "llm", "seats": "seats"}))
		record(d.t, d.Engine, plain("req_1", "10"))
		item := d.want("quarantined no_customer")[0]
		d.apply(plan(map[string]string{"tokens": "llm_2", "seats": "seats"}))
		d.apply(plan(map[string]string{"seats": "seats"})) // not even a feature of it is left
		dry := anna
		dry.DryRun = true
		for _, act := range []engine.Act{dry, anna} {
			if n, err := d.RetireRoute(ctx, engine.RouteRetirement{Exporter: "stripe"}, act); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "route_open"}) {
				d.t.Errorf("%d, %v", n, err)
			}
			if n, err := d.RetireRoute(ctx, engine.RouteRetirement{Exporter: "stripe", Feature: "seats"}, act); err != nil || n != 1 {
				d.t.Errorf("%d, %v", n, err)
			}
		}
		if _, err := d.Abandon(ctx, item.ItemID, engine.Abandonment{}, anna); err != nil {
			d.t.Fatal(err)
		}
		if _, err := d.RetireRoute(ctx, engine.RouteRetirement{Exporter: "stripe"}, anna); err != nil {
			d.t.Error(err)
		}
	})
}

// renaming is a store in which another host is faster, once.
type renaming struct {
	backend
	storage.SubscriptionStore
	storage.SettlementStore
	before func()
}

func (s *renaming) ChangeRoutes(ctx context.Context, c storage.RouteChange) (storage.RouteSet, error) {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	return s.backend.ChangeRoutes(ctx, c) //nolint:wrapcheck // the store's own answer
}

// Q4: of two hosts that make the same rename at once, both did what was asked.
func TestRenameRouteAtOnce(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"tokens": "llm"}))
		racing := &renaming{backend: d.st, SubscriptionStore: d.st.(storage.SubscriptionStore), SettlementStore: d.st.(storage.SettlementStore), before: func() {
			if _, err := d.RenameRoute(d.t.Context(), "stripe", "billing", anna); err != nil {
				d.t.Error(err)
			}
		}}
		if got, err := over(d.t, racing, known).RenameRoute(d.t.Context(), "stripe", "billing", anna); err != nil || got.Routes != 2 || !got.Already {
			d.t.Errorf("%+v, %v", got, err)
		}
		d.log(storage.ActionRoute)
		// Another name for it is another wish.
		racing.before = func() {
			if _, err := d.RenameRoute(d.t.Context(), "billing", "other", anna); err != nil {
				d.t.Error(err)
			}
		}
		if _, err := over(d.t, racing, known).RenameRoute(d.t.Context(), "billing", "third", anna); !errors.Is(err, sdk.ErrNotFound) {
			d.t.Error(err)
		}
	}, known)
}

// asksSums is a provider that has counted 10.
type asksSums struct{}

func (asksSums) Probe(_ context.Context, p exporter.Probe) ([]exporter.ProbeAnswer, error) {
	out := make([]exporter.ProbeAnswer, len(p.Questions))
	for i := range out {
		out[i] = exporter.ProbeAnswer{Sum: new("10"), Meter: "llm"}
	}
	return out, nil
}

// O25, Q4: an item from before a rename is found by the new name, by people and by
// the reconciler, whose evidence it gets.
func TestItemsAfterARename(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		ctx := d.t.Context()
		d.apply(plan(map[string]string{"tokens": "llm"}))
		record(d.t, d.Engine, plain("req_0", "1"))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		d.answer = exporter.ClassThrottled // definite, so it is uncertain once its attempts are used up
		d.deliver()
		item := d.want("quarantined no_customer", "uncertain")[1]
		if _, err := d.RenameRoute(ctx, "stripe", "billing", anna); err != nil {
			d.t.Fatal(err)
		}
		if p, err := d.RecoverPlan(ctx, engine.RecoverFilter{Exporter: "billing"}); err != nil || len(p.Items) != 1 || p.Items[0].ItemID != item.ItemID {
			d.t.Errorf("recover: %+v, %v", p, err)
		}
		for _, q := range []storage.ItemQuery{{Open: true}, {State: storage.Quarantined, Reason: "no_customer"}, {Tenant: "acme", SubjectRef: "req_1"}} {
			q.Exporter, q.Limit = "billing", 10
			if page, err := d.st.ListItems(ctx, q); err != nil || len(page.Items) == 0 {
				d.t.Errorf("%+v: %+v, %v", q, page, err)
			}
		}
		run, err := d.Reconcile(ctx, outbox.Destination{Exporter: "billing", Account: "acct_1", Mode: "test"}, asksSums{}, reconcile.Request{
			From: noon.Add(-2 * time.Hour), To: noon, Customer: "cus_1", Act: anna,
		})
		if err != nil || run.Lines != 1 {
			d.t.Fatalf("%+v, %v", run, err)
		}
		page, err := d.Actions(ctx, storage.ActionQuery{ItemID: item.ItemID, Limit: 10})
		if err != nil || len(page.Actions) != 1 || page.Actions[0].Kind != storage.ActionEvidence || page.Actions[0].EvidenceKind != outbox.EvidenceProvider {
			d.t.Errorf("evidence: %+v, %v", page.Actions, err)
		}
	}, func(c *engine.Config) {
		c.AttemptBudget = 1
		m := manifest()
		m.ReadBack = exporter.ReadBack{Sums: true, Granularity: time.Minute, Evidence: []string{outbox.SourceSumPresent}}
		c.Manifests = map[string]exporter.Manifest{"stripe": m, "billing": m}
	})
}

// Q20: the stretch of a window that is given up is accounted for, and the
// reporting of its counter goes on.
func TestWindowsHaveADisposition(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"tokens": "llm"}))
		item := stageWindow(d)
		if _, err := d.Abandon(d.t.Context(), item, engine.Abandonment{}, anna); !errors.Is(err, sdk.ErrInvalid) {
			d.t.Errorf("%v", err)
		}
		// The program dies between the two writes: the item is settled, the
		// stretch is not.
		if done, err := d.st.Transition(d.t.Context(), []storage.Transition{{
			ItemID: item, Expect: storage.Expect{State: storage.Quarantined}, Set: storage.Change{State: storage.Quarantined, Settled: new(true)},
		}}); err != nil || done[0].Rows != 1 {
			d.t.Fatalf("%+v, %v", done, err)
		}
		if _, err := d.Abandon(d.t.Context(), item, engine.Abandonment{Disposition: storage.WindowWrittenOff}, anna); err != nil {
			d.t.Error(err)
		}
		if bound := theBound(d); bound.StagedTo != nil || bound.Acked.String() != "5" {
			d.t.Errorf("%+v", bound)
		}
		if _, err := d.Abandon(d.t.Context(), item, engine.Abandonment{Disposition: storage.WindowRestage}, anna); !errors.Is(err, outbox.ErrExpectedStateMismatch) {
			d.t.Errorf("again: %v", err)
		}
		if i := d.want("quarantined no_customer")[0]; i.SettledAt.IsZero() {
			d.t.Errorf("%+v", i)
		}
	})
}

// stageWindow stages a window of a counter whose tenant has no customer.
func stageWindow(d *desk) int64 {
	d.t.Helper()
	set, err := d.st.Routes(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	r := set.Routes[len(set.Routes)-1]
	from, to := decimal.MustParse("0"), decimal.MustParse("5")
	identity := storage.Identity{
		Tenant: "acme", SubjectKind: storage.SubjectWindow, Exporter: r.Exporter, Account: r.Account, Mode: r.Mode, MappingVersion: r.MappingVersion,
		SubjectRef: outbox.WindowRef(outbox.Window{Feature: "tokens", PeriodStart: noon, From: from, To: to}),
	}
	digest, _ := outbox.Identifier(identity)
	payload, err := outbox.FreezePayload(exporter.Item{Feature: "tokens", Value: "5", Timestamp: noon, PeriodStart: noon, PeriodEnd: noon.Add(time.Hour)})
	if err != nil {
		d.t.Fatal(err)
	}
	res, err := d.st.(storage.ReportStore).StageWindow(d.t.Context(), storage.WindowStage{
		Key:       storage.BoundKey{Exporter: r.Exporter, Account: r.Account, Mode: r.Mode, Tenant: "acme", Feature: "tokens", PeriodStart: noon},
		PeriodEnd: noon.Add(time.Hour), From: from, To: to, RoutesRevision: set.Revision,
		Item: storage.NewItem{
			Identity: identity, Digest: digest, SubjectKey: outbox.SubjectKey(identity), RouteID: r.ID, Payload: payload,
			QuarantineReason: "no_customer", AttemptBudget: 20,
		},
	})
	if err != nil || !res.Changed {
		d.t.Fatalf("%+v, %v", res, err)
	}
	return res.ItemID
}

func theBound(d *desk) storage.Bound {
	d.t.Helper()
	page, err := d.st.(storage.ReportStore).ReportBounds(d.t.Context(), storage.BoundQuery{Limit: 10})
	if err != nil || len(page.Bounds) != 1 {
		d.t.Fatalf("%+v, %v", page, err)
	}
	return page.Bounds[0]
}
