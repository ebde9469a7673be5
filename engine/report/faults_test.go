//go:build faults && unix

package report_test

import (
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// F03: a reporter that ends at any of its points leaves a bound with its window or
// none of both; the next one goes on from there.
func TestFaultPoints(t *testing.T) {
	on(t, func(r *rig) {
		for _, tc := range []struct {
			label  string
			staged bool // the second window, by the pass that ended
			acked  string
		}{
			{"w1", false, "0"}, {"w2", false, "10"}, {"w3", false, "10"}, {"w4", true, "10"},
		} {
			tenant := "of-" + tc.label
			if _, err := r.engine.PutSubscription(r.t.Context(), storage.Subscription{Tenant: tenant, Customers: map[string]string{"stripe": "cus_1"}}); err != nil {
				r.t.Fatal(err)
			}
			r.add(tenant, "10")
			r.pass(1, 0)
			r.deliver(storage.Accepted)
			r.add(tenant, "5")
			plan, err := fault.NewPlan(tc.label+"=error@n1", nil)
			if err != nil {
				r.t.Fatal(err)
			}
			reporter := r.engine.Reporter(engine.Reporting{})
			if _, err := reporter.Once(fault.With(r.t.Context(), plan)); err == nil || plan.Fired(tc.label) != 1 {
				r.t.Fatalf("%s did not fire: %v", tc.label, err)
			}
			page, err := r.store.ReportBounds(r.t.Context(), storage.BoundQuery{Tenant: tenant, Limit: 10})
			if err != nil || len(page.Bounds) != 1 {
				r.t.Fatal(page, err)
			}
			b := page.Bounds[0]
			if second := b.StagedTo != nil && b.StagedTo.String() == "15"; second != tc.staged || b.Acked.String() != tc.acked {
				r.t.Errorf("%s: acknowledged %s, staged %v", tc.label, b.Acked, b.StagedTo)
			}
			if _, err := reporter.Once(r.t.Context()); err != nil {
				r.t.Fatal(err)
			}
			if got := r.deliver(storage.Accepted); got != "5" {
				r.t.Errorf("%s: reported %s after it", tc.label, got)
			}
			r.pass(0, 1)
		}
	})
}
