package host_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// F32, Q13: an event that a restore lost, and that was charged, is recorded again.
// It has the identifier of the one that is gone, so what the provider holds is
// that one: the item is accepted only where the request is the very same, and
// uncertain otherwise, since something else may have been charged under it.
func TestRepeatedAfterARestore(t *testing.T) { //nolint:paralleltest // in archives
	archives(t, func(t *testing.T, a archive) {
		d, dir := newProvider(t), filepath.Join(t.TempDir(), "state")
		l := a.live(t, d, dir, true)
		if _, err := l.Engine().PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Customers: map[string]string{"stripe": "cus_1"}}); err != nil {
			t.Fatal(err)
		}
		l.record("before")
		l.sent()
		l.end()
		a.backup()

		then := time.Now().UTC().Add(-time.Hour)
		says := func(l *life, id, quantity string, at time.Time) {
			ev := engine.Event{ID: id, Tenant: "acme", Feature: "tokens", Quantity: decimal.MustParse(quantity), Time: at}
			if _, err := l.Engine().Record(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
		}
		l = a.live(t, d, dir, true)
		says(l, "same", "1.5", then)
		says(l, "other quantity", "1.5", then)
		says(l, "other time", "1.5", then)
		if got := l.sent(); got[storage.Accepted] != 4 {
			t.Fatalf("states %v", got)
		}
		l.end()
		a.restore()

		l = a.live(t, d, dir, true)
		defer l.end()
		if _, err := l.RecoverRestore(t.Context(), act); err != nil {
			t.Fatal(err)
		}
		says(l, "same", "1.5", then)
		says(l, "other quantity", "1001", then)
		says(l, "other time", "1.5", then.Add(time.Minute))
		l.sent()

		items, _ := l.store.(storage.OutboxStore)
		page, err := items.ListItems(t.Context(), storage.ItemQuery{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, it := range page.Items {
			got[it.Identity.SubjectRef] = string(it.State)
			if it.State == storage.Uncertain {
				got[it.Identity.SubjectRef] = it.LastError.Code
				if it.Unresolved {
					t.Errorf("%s is open, so that it could be sent again", it.Identity.SubjectRef)
				}
			}
		}
		want := map[string]string{"before": "accepted", "same": "accepted", "other quantity": outbox.CodeConflict, "other time": outbox.CodeConflict}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if ledger := d.Ledger(); ledger.Charges != 4 || ledger.DoubleCharges != 0 || ledger.ChargesTotal["llm_tokens"] != "5.5" {
			t.Errorf("%+v", ledger)
		}
	})
}
