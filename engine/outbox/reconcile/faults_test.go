//go:build faults && unix

package reconcile_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine/outbox/reconcile"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// A reconciler that ends at k1, k2 or k3 leaves a run that says so. What it
// confirmed by then had been compared; the rest waits for the next run.
func TestFaultPoints(t *testing.T) {
	t.Parallel()
	for label, confirmed := range map[string]int{"k1": 0, "k2": 0, "k3": 1} {
		s := &store{sums: map[time.Time][]storage.ItemSum{day: {sum("a", "in", "v1", "1", 1)}}}
		p := &provider{sums: map[string]string{"a tokens": "1"}}
		plan, err := fault.NewPlan(label+"=error@n1", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := reconcile.Run(fault.With(t.Context(), plan), config(s, p), request())
		if err == nil || plan.Fired(label) != 1 || got.Error == "" || got.FinishedAt.IsZero() || len(s.confirms) != confirmed || len(s.lines) != confirmed || got.NewLines != nil {
			t.Errorf("%s: %+v, %v, %d confirmed", label, got, err, len(s.confirms))
		}
		if again, err := reconcile.Run(t.Context(), config(s, p), request()); err != nil || again.Lines != 1 || again.Confirmed != 1 {
			t.Errorf("%s, the next run: %+v, %v", label, again, err)
		}
	}
}
