package host

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
)

// Q17a: routes that a person renames or retires under a running host stop its
// delivery; it says so within a minute, and no longer once they are back.
func TestRoutesThatMoveAreNoticed(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *reconciling) {
		h := r.alone()
		r.accepted(h, "cus_1", "1") // which makes the route
		ctx, stop := context.WithCancel(r.t.Context())
		done := make(chan struct{})
		go func() { defer close(done); h.watchRoutes(ctx) }()
		want := func(when string, codes ...string) {
			r.t.Helper()
			time.Sleep(unservedEvery + time.Second)
			var got []string
			for _, d := range h.Degradations() {
				got = append(got, d.Code)
			}
			if !slices.Equal(got, codes) {
				r.t.Errorf("%s: %v, want %v", when, got, codes)
			}
		}
		want("as it was")
		act := engine.Act{Actor: "a", Reason: "r"}
		if _, err := h.engine.RenameRoute(ctx, "stripe", "billing", act); err != nil {
			r.t.Fatal(err)
		}
		want("renamed", DegradedRouteUnserved, DegradedRouteGone)
		if _, err := h.engine.RenameRoute(ctx, "billing", "stripe", act); err != nil {
			r.t.Fatal(err)
		}
		want("named back")
		if _, err := h.engine.RetireRoute(ctx, engine.RouteRetirement{Exporter: "stripe"}, act); err != nil {
			r.t.Fatal(err)
		}
		want("retired", DegradedRouteGone)
		stop()
		<-done
	})
}
