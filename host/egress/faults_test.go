//go:build faults && unix

package egress

import (
	"net/http"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
)

// F03: d4 lies before the first byte, d5 to d7 after the last; each is reached
// once in a delivery.
func TestFaultPoints(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]exporter.HostClass{
		"d4": exporter.ClassNotSent, "d5": exporter.ClassIndefinite, "d6": exporter.ClassIndefinite, "d7": exporter.ClassIndefinite,
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan struct{}, 1)
			s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				if label == "d5" {
					<-r.Context().Done() // no answer: the fault alone ends it
				}
			})
			client := newClient(t, s.host(), nil)
			plan, err := fault.NewPlan(label+"=error@n1", nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, call := client.Begin(fault.With(t.Context(), plan), []CallItem{{ID: "i1", Identifier: testIdent}})
			if _, ex := sendOne(ctx, t, client, call, meterEvent(s.host(), "i1", testIdent)); ex.Class != want {
				t.Errorf("%+v, want %s", ex, want)
			}
			if label == "d4" {
				s.Close()
				if s.count() != 0 {
					t.Error("the request arrived")
				}
				return
			}
			select {
			case <-arrived:
			case <-time.After(10 * time.Second):
				t.Error("the request never arrived")
			}
		})
	}
}
