package host

import (
	"context"
	"slices"
	"strings"
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
		h.exporters[0].settings.Mapping.Features = map[string]map[string]string{"tokens": {"event_name": "tokens"}}
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
		// F55: a host of the next release brought its mapping.
		mine := h.exporters[0].plan()
		next := mine
		next.Label, next.Features = "next", map[string]map[string]string{"tokens": {"event_name": "llm_next"}}
		if _, err := h.engine.ApplyRoutes(ctx, []engine.RoutePlan{next}); err != nil {
			r.t.Fatal(err)
		}
		want("rolling", DegradedMappingDiffers)
		if d := h.Degradations()[0].Detail; !strings.Contains(d, "(version next)") || strings.Count(d, "mapping ") != 2 {
			r.t.Errorf("says %q", d)
		}
		if _, err := h.engine.ApplyRoutes(ctx, []engine.RoutePlan{mine}); err != nil {
			r.t.Fatal(err)
		}
		want("started again", DegradedMappingDiffers)
		mine.Label = "back"
		if _, err := h.engine.ApplyRoutes(ctx, []engine.RoutePlan{mine}); err != nil {
			r.t.Fatal(err)
		}
		want("asked for")
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
