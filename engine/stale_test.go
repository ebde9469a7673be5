package engine_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// meddled is an engine on f's store in which meddle runs before each
// transaction, as another host would between our reading and our writing.
func meddled(t *testing.T, f *fixture, meddle func(call int)) *engine.Engine {
	t.Helper()
	calls := 0
	return over(t, &wrapped{Adapter: f.store, record: func(ctx context.Context, req storage.RecordRequest) (storage.RecordResult, error) {
		calls++
		meddle(calls)
		return f.store.RecordEvents(ctx, req)
	}})
}

// Q4: period, customer and mapping are those of the moment of the commit, not
// those that were remembered.
func TestWhatChangedBeforeTheCommitCounts(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.routes(plan(map[string]string{"tokens": "old"}))
	f.subscribe("acme", "cus_old")
	f.want(f.each(plain("a", "1")), "inserted")

	calls := 0
	e := meddled(t, f, func(call int) {
		calls = call
		switch call {
		case 1: // fills the engine's memory
		case 2:
			s := storage.Subscription{
				Tenant: "acme", Plan: "pro", PlanVersion: "2", Customers: map[string]string{"stripe": "cus_new"},
				Anchor: time.Date(2026, 1, 15, 0, 0, 0, 0, time.UTC), Interval: storage.Month, Timezone: "UTC",
			}
			if _, err := f.store.PutSubscription(t.Context(), s); err != nil {
				t.Error(err)
			}
			if _, err := f.ApplyRoutes(t.Context(), []engine.RoutePlan{plan(map[string]string{"tokens": "new"})}); err != nil {
				t.Error(err)
			}
		}
	})
	if _, err := e.Record(t.Context(), plain("b", "1")); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Record(t.Context(), plain("c", "1")); err != nil {
		t.Fatal(err)
	}
	if calls != 3 {
		t.Errorf("%d transactions, want 3: one was stale", calls)
	}
	ev, err := f.Event(t.Context(), storage.EventKey{Tenant: "acme", EventID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC); !ev.PeriodStart.Equal(want) || ev.Plan != "pro" || ev.PlanVersion != "2" {
		t.Errorf("period from %v, plan %s %s; want %v, pro 2", ev.PeriodStart, ev.Plan, ev.PlanVersion, want)
	}
	items := f.items()
	last := items[len(items)-1]
	if last.Customer != "cus_new" || last.Identity.MappingVersion == items[0].Identity.MappingVersion {
		t.Errorf("item of customer %s under the mapping of before: %v", last.Customer, last.Identity.MappingVersion == items[0].Identity.MappingVersion)
	}
	if len(items) != 3 {
		t.Errorf("%d items, want 3", len(items))
	}
}

// A tenant that had no subscription when it was looked up has one at commit.
func TestFirstSubscriptionCounts(t *testing.T) {
	t.Parallel()
	f := open(t)
	e := meddled(t, f, func(call int) {
		if call == 1 {
			f.subscribe("acme", "cus_1")
		}
	})
	if _, err := e.Record(t.Context(), plain("a", "1"), plain("b", "1")); err != nil {
		t.Fatal(err)
	}
	for _, ev := range f.events() {
		if ev.PeriodSource != storage.FromSubscription {
			t.Errorf("%s has its period from %s", ev.EventID, ev.PeriodSource)
		}
	}
}

// Routes that never stand still are unavailable after a bounded number of
// tries, with nothing written.
func TestRestlessRoutesAreUnavailable(t *testing.T) {
	t.Parallel()
	f := open(t)
	calls := 0
	e := meddled(t, f, func(call int) {
		calls = call
		f.routes(plan(map[string]string{"tokens": "x" + strconv.Itoa(call)}))
	})
	_, err := e.Record(t.Context(), plain("a", "1"))
	tagIs(t, err, sdk.TagUnavailable, "routes_moving")
	if calls > 20 || len(f.events()) != 0 {
		t.Errorf("%d tries, %d events", calls, len(f.events()))
	}
}

// Two hosts that apply plans at once both succeed, one after the other.
func TestRoutesChangedByTwoHosts(t *testing.T) {
	t.Parallel()
	f := open(t)
	other := over(t, f.store)
	done := make(chan error, 2)
	for i, e := range []*engine.Engine{f.Engine, other} {
		p := plan(map[string]string{"tokens": "t"})
		p.Exporter, p.Account = []string{"a", "b"}[i], []string{"acct_1", "acct_2"}[i]
		go func() {
			_, err := e.ApplyRoutes(t.Context(), []engine.RoutePlan{p})
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if set := f.routes(); len(set.Routes) != 4 {
		t.Errorf("%d routes, want 4", len(set.Routes))
	}
}
