package egress

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// F06, Q12: once the time for sending is withdrawn, what waits is not sent, and
// what is on the wire gets its answer.
func TestNothingBeginsOnceNoTimeIsLeft(t *testing.T) {
	t.Parallel()
	var stopped atomic.Bool
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		stopped.Store(true) // while the first one waits for its answer
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"object":"billing.meter_event"}`)
	})
	client := newClient(t, s.host(), func(c *Config) {
		c.Left = func(context.Context) (time.Duration, bool) {
			if stopped.Load() {
				return 0, true
			}
			return time.Minute, true
		}
	})
	items := []CallItem{{ID: "a", Identifier: "ident_a", SerialKey: "cus_1"}, {ID: "b", Identifier: "ident_b", SerialKey: "cus_1"}}
	ctx, call := client.Begin(t.Context(), items)
	got, err := client.Send(ctx, []capability.Request{
		meterEvent(s.host(), "a", "ident_a"), meterEvent(s.host(), "b", "ident_b"),
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := call.Exchanges()
	if got[0].Status != 200 || seen["a"][0].Class != exporter.ClassSuccess {
		t.Errorf("the one on the wire: %+v, %+v", got[0], seen["a"])
	}
	if got[1].Failure != capability.FailureNotSent || seen["b"][0].Class != exporter.ClassNotSent {
		t.Errorf("the one that waited: %+v, %+v", got[1], seen["b"])
	}
}
