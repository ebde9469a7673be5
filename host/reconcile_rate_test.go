package host_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// O15a, O25: questions to the provider come out of the bucket of the deliveries:
// whatever is asked and sent at once, the provider sees no more requests than the
// rate allows. The bound is a least time, so a slow machine only makes it longer.
func TestProbesShareTheRate(t *testing.T) {
	t.Parallel()
	const rate, burst, customers = 10, 1, 8 // a tenth of the rate may come at once
	double := newDouble(t)
	h := openHooked(t, newStore(t), double, func(c *config.Config) { c.Exporters[0].Rate = rate })
	for i := range customers {
		h.record(fmt.Sprint("cus_", i), "first")
	}
	at := double.Ledger()
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		for i := range customers {
			_, err := h.host.Engine().Record(t.Context(), engine.Event{
				ID: fmt.Sprint("second-", i), Tenant: fmt.Sprint("cus_", i), Feature: "tokens", Quantity: decimal.One,
			})
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	now := began.UTC().Truncate(time.Minute)
	for range 2 {
		run, err := h.host.Reconcile(t.Context(), host.ReconcileRequest{
			Exporter: "stripe", From: now.Add(-time.Hour), To: now.Add(2 * time.Minute), Whole: true, Actor: "test",
		})
		if err != nil || run.Lines != customers || run.Error != "" {
			t.Errorf("run %+v, %v", run, err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wait(t, h.store)
	took, l := time.Since(began), double.Ledger()
	sent, asked := l.Requests-at.Requests, l.Reads-at.Reads
	if sent != customers || asked < 2*customers {
		t.Errorf("%d sent, %d asked", sent, asked)
	}
	if least := time.Duration(sent+asked-burst) * time.Second / rate; took < least {
		t.Errorf("%d requests and %d questions took %s, at %d/s it is %s at least", sent, asked, took, rate, least)
	}
	if n := len(h.items(storage.ItemQuery{State: storage.Accepted})); n != 2*customers {
		t.Errorf("%d accepted", n)
	}
}
