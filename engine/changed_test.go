package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// G7: whatever makes a balance another one than was told is told after its commit;
// usage of the open bucket, which no answer holds yet, is not.
func TestChanged(t *testing.T) {
	t.Parallel()
	clock := noon.Add(2 * time.Minute)
	var got []engine.Change
	amount := decimal.MustParse("10")
	f := metered(t, &clock, func(c *engine.Config) {
		c.Coalesce = -1 // told by this goroutine
		c.CreditMeters = []engine.CreditMeter{{Name: "tokens", Feature: "tokens", Renew: &amount}}
		c.Changed = func(ch engine.Change) { got = append(got, ch) }
	})
	told := func(what string, want ...engine.ChangeCause) {
		t.Helper()
		var causes []engine.ChangeCause
		for _, c := range got {
			if c.Tenant != "acme" || c.Feature != "tokens" {
				t.Errorf("%s: %+v", what, c)
			}
			causes = append(causes, c.Cause)
		}
		if got = nil; !slices.Equal(causes, want) {
			t.Errorf("%s: told %v, want %v", what, causes, want)
		}
	}
	f.use("open", "1", "m", clock)
	f.use("edge", "1", "m", noon) // the first instant of the open bucket
	told("open bucket")
	f.use("late", "1", "m", noon.Add(-time.Microsecond))
	told("closed bucket", engine.ChangeLate)
	if _, err := f.Correct(t.Context(), engine.Correction{ID: "c1", Tenant: "acme", EventID: "late", Remaining: true, Reason: "wrong"}); err != nil {
		t.Fatal(err)
	}
	told("correction", engine.ChangeLate)
	gift := engine.CreditRequest{UntilRenewal: true, Credit: storage.Credit{Tenant: "acme", Meter: "tokens", ID: "gift", Kind: storage.CreditGrant, Amount: amount}}
	if _, err := f.AddCredit(t.Context(), gift); err != nil {
		t.Fatal(err)
	}
	told("credit", engine.ChangeCredit)
	f.subscribe("acme", "cus_1")
	if _, err := f.RenewDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	told("renewal", engine.ChangeSeal)
}
