package host_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/internal/providerdouble"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Every configuration that docs/exporters.md shows opens.
func TestDocumentedExporters(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/exporters.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for block := range strings.SplitSeq(string(text), "```yaml\n") {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, "plugin: builtin:") {
			continue
		}
		shown++
		cfg, err := config.Parse([]byte(block))
		if err != nil {
			t.Errorf("%v:\n%s", err, block)
			continue
		}
		cfg.StateDir = stateDir
		c := linkedConfig(newStore(t), cfg)
		c.WithoutDelivery = true
		open(t, c)
	}
	if shown != 4 {
		t.Errorf("%d configurations, want 4", shown)
	}
}

// The way of a counter to AWS, with nothing stubbed: tracked, flushed, staged for
// its hour, signed, metered. What is behind the point waits.
func TestCounterReachesTheMarketplace(t *testing.T) {
	t.Parallel()
	double := &providerdouble.AWSMarketplace{
		Keys: map[string]string{"AKIAIOSFODNN7EXAMPLE": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}, Product: "prod-1",
		Dimensions: []string{"calls"}, Customers: map[string]bool{"210000000000": true},
	}
	if err := double.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = double.Close() })
	double.Next(providerdouble.Fault{After: true}) // the first answer is lost
	x := at(t, "aws", "aws-marketplace", &double.Server)
	x.Secrets, x.Settings = map[string]string{"access_key": "env:AWS"}, map[string]any{"product_code": "prod-1", "region": "us-east-1"}
	store := newStore(t)
	h := open(t, linkedConfig(store, config.Config{
		Exporters: []config.Exporter{x}, Features: map[string]config.Feature{"calls": {Source: "buffered"}}, Outbox: quick(),
		Counters: config.Counters{Flush: config.Duration(20 * time.Millisecond), Report: config.Duration(time.Second)},
	}))
	e := h.Engine()
	if _, err := e.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Customers: map[string]string{"aws": "210000000000"}}); err != nil {
		t.Fatal(err)
	}
	if err := e.Track(t.Context(), "acme", "calls", decimal.MustParse("10.7")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.After(time.Minute); ; {
		page, err := store.ListItems(t.Context(), storage.ItemQuery{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Items) > 0 && page.Items[0].State == storage.Accepted {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("not accepted: %+v", page.Items)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if sum, n := double.Sum("210000000000", "calls"); sum != 10 || n != 1 {
		t.Errorf("%d in %d records", sum, n)
	}
}
