package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// newYear is when events take over from the counter of tokens.
var newYear = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// before and after are the configurations of two versions of one program.
func before(c *engine.Config) {
	c.Features = map[string]engine.Feature{"tokens": {Buffered: true}}
	c.Buffer.FlushEvery = -1
}

func after(c *engine.Config) {
	c.Features = map[string]engine.Feature{"tokens": {Cutover: newYear}}
	c.Buffer.FlushEvery = -1
}

// at is a clock that stands still.
func clockAt(at time.Time) func(*engine.Config) {
	return func(c *engine.Config) { c.Now = func() time.Time { return at } }
}

// counterOf is the stored counter of tokens of a period, "" if there is none.
func (f *fixture) counterOf(tenant string, start time.Time) string {
	f.t.Helper()
	st, _ := f.adapter().(storage.CounterStore)
	c, err := st.LoadCounter(f.t.Context(), storage.CounterKey{Tenant: tenant, Feature: "tokens", PeriodStart: start})
	if err != nil {
		f.t.Fatal(err)
	}
	if c.PeriodEnd.IsZero() {
		return ""
	}
	return c.Value.String()
}

// adapter is the store of a fixture.
func (f *fixture) adapter() storage.Adapter {
	if f.store != nil {
		return f.store
	}
	st, _ := f.postgres.(storage.Adapter)
	return st
}

// itemsOf are the items of one subject.
func (f *fixture) itemsOf(ref string) []storage.Item {
	f.t.Helper()
	st, _ := f.adapter().(storage.OutboxStore)
	page, err := st.ListItems(f.t.Context(), storage.ItemQuery{Limit: 1000, SubjectRef: ref})
	if err != nil {
		f.t.Fatal(err)
	}
	return page.Items
}

// both runs a test on SQLite and on PostgreSQL.
func both(t *testing.T, change []func(*engine.Config), test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, open(t, change...)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, openPostgres(t, change...)) })
}

// O23, Q21, A-T18: the period that a tenant's own boundary ends is the counter's, down to
// the last microsecond: its events are counted and their items born settled. The
// next one is the events'. Each tenant has its own boundary.
func TestCutoverAtTheTenantsOwnBoundary(t *testing.T) { //nolint:paralleltest // in both
	now := newYear.AddDate(0, 0, 20)
	both(t, []func(*engine.Config){after, clockAt(now)}, func(t *testing.T, f *fixture) {
		f.routes(plan(map[string]string{"tokens": "llm_tokens"}))
		for tenant, anchor := range map[string]time.Time{
			"first": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), "ninth": time.Date(2026, 1, 9, 12, 0, 0, 0, time.UTC),
		} {
			_, err := f.PutSubscription(t.Context(), storage.Subscription{Tenant: tenant, Anchor: anchor, Customers: map[string]string{"stripe": "cus_" + tenant}})
			if err != nil {
				t.Fatal(err)
			}
		}
		ninth := time.Date(2027, 1, 9, 12, 0, 0, 0, time.UTC)
		for i, ev := range []struct {
			tenant  string
			at      time.Time
			counted bool
		}{
			{"first", newYear.Add(-time.Microsecond), true},
			{"first", newYear, false},
			{"ninth", newYear, true},
			{"ninth", ninth.Add(-time.Microsecond), true},
			{"ninth", ninth, false},
			{"nobody", newYear.Add(-time.Microsecond), true}, // calendar months
			{"nobody", newYear, false},
		} {
			id := fmt.Sprint("e", i)
			f.want(f.each(engine.Event{ID: id, Tenant: ev.tenant, Feature: "tokens", Quantity: decimal.One, Time: ev.at}), "inserted")
			items := f.itemsOf(id)
			if len(items) != 1 {
				t.Fatalf("%s: %d items", id, len(items))
			}
			if got := items[0].QuarantineReason == "period_buffered"; got != ev.counted {
				t.Errorf("%s at %s: state %s, reason %q", ev.tenant, ev.at, items[0].State, items[0].QuarantineReason)
			}
			if ev.counted && (items[0].State != storage.Quarantined || items[0].SettledAt.IsZero()) {
				t.Errorf("not born settled: %+v", items[0])
			}
		}
		for start, want := range map[time.Time]string{newYear.AddDate(0, -1, 0): "1", newYear: ""} {
			if got := f.counterOf("first", start); got != want {
				t.Errorf("counter of %s: %q, want %q", start, got, want)
			}
		}
		if got := f.counterOf("ninth", ninth.AddDate(0, -1, 0)); got != "2" {
			t.Errorf("counter %q", got)
		}
	})
}

// Q21: a duplicate is counted once, a correction takes from the counter in its
// transaction and makes no item, and a replacement counts where its period is.
func TestCountedOnceAndCorrected(t *testing.T) { //nolint:paralleltest // in both
	both(t, []func(*engine.Config){after, clockAt(newYear.AddDate(0, 0, 5))}, func(t *testing.T, f *fixture) {
		f.routes(plan(map[string]string{"tokens": "llm_tokens"}))
		december := newYear.AddDate(0, -1, 0)
		ev := engine.Event{ID: "1", Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse("10.5"), Time: newYear.Add(-time.Hour)}
		f.want(f.each(ev, ev), "inserted duplicate")
		f.want(f.each(ev), "duplicate")
		three := decimal.MustParse("3")
		for range 2 {
			if _, err := f.Correct(t.Context(), engine.Correction{ID: "c1", Tenant: "acme", EventID: "1", Quantity: &three}); err != nil {
				t.Fatal(err)
			}
		}
		if got := f.counterOf("acme", december); got != "7.5" {
			t.Errorf("counter %s, want 7.5", got)
		}
		if items := f.itemsOf("c1"); len(items) != 0 {
			t.Errorf("the correction has items: %+v", items)
		}
		replace := engine.Event{ID: "2", Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse("4"), Time: newYear.Add(time.Hour)}
		if _, err := f.Correct(t.Context(), engine.Correction{ID: "c2", Tenant: "acme", EventID: "1", Replace: &replace}); err != nil {
			t.Fatal(err)
		}
		if got := f.counterOf("acme", december); got != "0" {
			t.Errorf("counter %s, want 0", got)
		}
		if items := f.itemsOf("2"); len(items) != 1 || items[0].QuarantineReason == "period_buffered" || f.counterOf("acme", newYear) != "" {
			t.Errorf("the replacement: %+v", items)
		}
		// What events report is corrected by an item.
		if _, err := f.Correct(t.Context(), engine.Correction{ID: "c3", Tenant: "acme", EventID: "2", Quantity: &three}); err != nil {
			t.Fatal(err)
		}
		if items := f.itemsOf("c3"); len(items) != 1 {
			t.Errorf("%d items of a correction", len(items))
		}
	})
}

// A host whose configuration knows of no cutover corrects as was decided.
func TestCorrectionOnAHostOfTheOldVersion(t *testing.T) { //nolint:paralleltest // in both
	both(t, []func(*engine.Config){after, clockAt(newYear.AddDate(0, 0, 5))}, func(t *testing.T, f *fixture) {
		f.routes(plan(map[string]string{"tokens": "llm_tokens"}))
		old := over(t, f.adapter(), before, clockAt(newYear.AddDate(0, 0, 5)))
		f.want(f.each(engine.Event{ID: "1", Tenant: "acme", Feature: "tokens", Quantity: decimal.One, Time: newYear.Add(-time.Hour)}), "inserted")
		if _, err := old.Correct(t.Context(), engine.Correction{ID: "c", Tenant: "acme", EventID: "1", Remaining: true}); err != nil {
			t.Fatal(err)
		}
		if got, items := f.counterOf("acme", newYear.AddDate(0, -1, 0)), f.itemsOf("c"); got != "0" || len(items) != 0 {
			t.Errorf("counter %s, items %+v", got, items)
		}
	})
}

// Tracking and recording meet in the counter until the boundary, and tracking ends
// there.
func TestTrackUntilTheCutover(t *testing.T) { //nolint:paralleltest // in both
	now := newYear.Add(-time.Minute)
	both(t, []func(*engine.Config){after, func(c *engine.Config) { c.Now = func() time.Time { return now } }}, func(t *testing.T, f *fixture) {
		track(t, f.Engine, "acme", "tokens", "2")
		f.want(f.each(engine.Event{ID: "1", Tenant: "acme", Feature: "tokens", Quantity: decimal.One}), "inserted")
		if err := f.FlushTracked(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := f.counterOf("acme", newYear.AddDate(0, -1, 0)); got != "3" {
			t.Errorf("counter %s, want 3", got)
		}
		// What was recorded into the counter is not told twice.
		if got, want := usageText(f.usage(engine.UsageQuery{Tenant: "acme", Feature: "tokens"})), "12-01T00:00 1/1\n12-01T00:00 2/null"; got != want {
			t.Errorf("usage %s, want %s", got, want)
		}
	})
	f := open(t, after, clockAt(newYear))
	err := f.Track(t.Context(), "acme", "tokens", decimal.One)
	tagIs(t, err, sdk.TagInvalid, "not_buffered")
}

// Q21: what was decided stands, whatever becomes of the anchor or of the
// configuration; a configuration that says something else is refused.
func TestDecidedCutoversStand(t *testing.T) { //nolint:paralleltest // in both
	both(t, []func(*engine.Config){after, clockAt(newYear.AddDate(0, 0, 20))}, func(t *testing.T, f *fixture) {
		st := f.adapter()
		f.want(f.each(engine.Event{ID: "1", Tenant: "acme", Feature: "tokens", Quantity: decimal.One, Time: newYear.Add(-time.Hour)}), "inserted")
		if err := f.CheckSources(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, tc := range map[string]struct {
			feature engine.Feature
			refused bool
		}{
			"later":                {engine.Feature{Cutover: newYear.AddDate(0, 1, 0)}, true},
			"earlier":              {engine.Feature{Cutover: newYear.AddDate(0, -1, 0)}, true},
			"buffered again":       {engine.Feature{Buffered: true}, true},
			"events all the time":  {engine.Feature{}, true},
			"the same boundary":    {engine.Feature{Cutover: newYear.AddDate(0, 0, -3)}, false},
			"the same, to the day": {engine.Feature{Cutover: newYear}, false},
		} {
			e := over(t, st, func(c *engine.Config) { c.Features = map[string]engine.Feature{"tokens": tc.feature} })
			err := e.CheckSources(t.Context())
			if !tc.refused && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if tc.refused && (!errors.Is(err, sdk.ErrConflict) || err == nil) {
				t.Errorf("%s: %v, want a conflict", name, err)
			}
		}
		// One that configures nothing, such as a command that reads, is none.
		if err := over(t, st, func(*engine.Config) {}).CheckSources(t.Context()); err != nil {
			t.Error(err)
		}
		// Another anchor makes other periods, and moves nothing.
		if _, err := f.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Anchor: time.Date(2026, 1, 9, 0, 0, 0, 0, time.UTC)}); err != nil {
			t.Fatal(err)
		}
		fresh := over(t, st, after, clockAt(newYear.AddDate(0, 0, 20)))
		if err := fresh.CheckSources(t.Context()); err != nil {
			t.Error(err)
		}
		// The period since 9 December began before events took over.
		if _, err := fresh.Record(t.Context(), engine.Event{ID: "2", Tenant: "acme", Feature: "tokens", Quantity: decimal.One, Time: newYear.AddDate(0, 0, 2)}); err != nil {
			t.Fatal(err)
		}
		if got := f.counterOf("acme", time.Date(2026, 12, 9, 0, 0, 0, 0, time.UTC)); got != "1" {
			t.Errorf("counter %q", got)
		}
	})
}
