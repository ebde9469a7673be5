package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// asked counts what is asked of a store about items.
type asked struct {
	*sqlite.Adapter
	lists, enqueues int
}

func (s *asked) ListItems(ctx context.Context, q storage.ItemQuery) (storage.ItemPage, error) {
	s.lists++
	return s.Adapter.ListItems(ctx, q)
}

func (s *asked) Enqueue(ctx context.Context, r storage.EnqueueRequest) ([]int64, error) {
	s.enqueues++
	return s.Adapter.Enqueue(ctx, r)
}

// Q4: what a backfill asks of the store does not grow with the events of a page:
// which items a thousand events have is one question, however many tenants they
// are of, and the answer is read to its end.
func TestBackfillAsksForAPageAtOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	st := &asked{Adapter: f.store}
	e := over(t, st)
	const events, tenants = 1000, 10
	var batch []engine.Event
	for i := range events {
		ev := plain(fmt.Sprintf("req_%04d", i), "10")
		ev.Tenant = fmt.Sprintf("tenant-%d", i%tenants)
		if batch = append(batch, ev); len(batch) == 500 {
			record(t, e, batch...)
			batch = nil
		}
	}
	for i := range tenants {
		if _, err := e.PutSubscription(t.Context(), storage.Subscription{Tenant: fmt.Sprintf("tenant-%d", i), Customers: map[string]string{"stripe": "cus_1"}}); err != nil {
			t.Fatal(err)
		}
	}
	second := plan(map[string]string{"tokens": "llm"})
	second.Mode = "live"
	second.Exporter = "second"
	for _, p := range []engine.RoutePlan{plan(map[string]string{"tokens": "llm"}), second} {
		if _, err := e.ApplyRoutes(t.Context(), []engine.RoutePlan{p}); err != nil {
			t.Fatal(err)
		}
	}
	fill := func(exporter string, made, skipped, lists int) {
		t.Helper()
		st.lists, st.enqueues = 0, 0
		got, err := e.Backfill(t.Context(), engine.Backfill{Exporter: exporter, Limit: events}, engine.Act{Actor: "anna", Reason: "ticket 7"})
		if err != nil || got.Made != made || len(got.Skipped) != skipped {
			t.Fatalf("%s: made %d, skipped %d, %v", exporter, got.Made, len(got.Skipped), err)
		}
		if st.lists != lists || st.enqueues > 1 {
			t.Errorf("%s: %d questions and %d writes for %d events, want %d", exporter, st.lists, st.enqueues, events, lists)
		}
	}
	fill("stripe", events, 0, 1)
	fill("second", events, 0, 1)
	fill("second", 0, events, 2) // of 2000 items, in two pages
	fill("stripe", 0, events, 2)
}
