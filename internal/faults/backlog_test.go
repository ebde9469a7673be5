//go:build faults && linux

package faults

import (
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/api"
)

// backlogMB is what a server may ever hold while it delivers a backlog, however
// long that is; internal/bench measures it with a million items (M1). Memory,
// unlike time, does not depend on who else uses the machine.
const backlogMB = 200

// M1: a host that starts with a backlog behind it, and compares all of it with the
// provider while it delivers, stays under its limit. BACKLOG makes it longer.
func TestBacklogMemory(t *testing.T) {
	t.Parallel()
	n := 20_000
	if text := os.Getenv("BACKLOG"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := defaults()
			s.page, s.rate, s.concurrency = 200, 1_000_000, 16
			r := open(t, s)
			r.subscribeCrowd()
			// The first start may compile the exporter's module, which takes more
			// memory than all that follows.
			first := r.start("")
			for done := 0; done < n; done += 500 {
				r.record(crowd("b"+strconv.Itoa(done), min(500, n-done)))
			}
			first.kill()
			second := r.start("")
			began := time.Now()
			r.compareAll(began)
			for sent := int64(0); sent < int64(n)/5; {
				before := sent
				eventually(t, "delivery goes on", func() bool {
					states := r.stats().States
					sent = states["accepted"] + states["confirmed"]
					return sent != before
				})
			}
			peak := peakMemory(t, second.cmd.Process.Pid) / 1_000_000
			t.Logf("peak %d MB of %d MB, of %d items a fifth delivered in %v", peak, backlogMB, n, time.Since(began).Round(time.Second))
			if peak > backlogMB {
				t.Errorf("the server held %d MB, more than %d", peak, backlogMB)
			}
		})
	}
}

// compareAll has the server compare the last days with the provider.
func (r *rig) compareAll(now time.Time) {
	r.t.Helper()
	today := now.UTC().Truncate(24 * time.Hour)
	body, err := json.Marshal(map[string]any{
		"exporter": "stripe", "actor": "test", "reason": "every item is read",
		"from": today.Add(-48 * time.Hour), "to": now.UTC().Truncate(time.Hour).Add(time.Hour),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	var started api.ReconciliationStarted
	if err := r.call(http.MethodPost, "/v1/reconciliations", "application/json", body, &started); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the comparison ends", func() bool {
		var page api.Page[api.ReconciliationView]
		r.get("/v1/reconciliations", &page)
		return len(page.Data) > 0 && page.Data[0].FinishedAt != nil
	})
}
