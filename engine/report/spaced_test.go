package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// hourly is a provider that knows a record by customer, dimension and hour, and
// takes whole numbers.
func hourly() exporter.Manifest {
	return exporter.Manifest{
		Name: "hourly", WindowPast: 6 * time.Hour, MappingKeys: []string{"event_name"}, Every: time.Hour,
		Values: exporter.ValueDomain{SignificantDigits: 9, MaxDecimals: 0, Zero: true},
		Records: &exporter.Records{Key: []exporter.RecordKey{
			{Field: "customer", Path: "/c"}, {Field: "mapping.event_name", Path: "/d"}, {Field: "timestamp", Path: "/t"},
		}},
	}
}

// stamps are the times of all windows, in order.
func (r *rig) stamps() string {
	r.t.Helper()
	page, err := r.store.ListItems(r.t.Context(), storage.ItemQuery{Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, it := range page.Items {
		d, err := r.store.LoadItem(r.t.Context(), it.ItemID)
		if err != nil {
			r.t.Fatal(err)
		}
		_, v, _ := strings.Cut(string(d.Payload), `"timestamp":"`)
		v, _, _ = strings.Cut(v, `"`)
		out = append(out, v)
	}
	return strings.Join(out, " ")
}

// One window in an hour, stamped with the hour; what is behind the point, or
// comes later in the hour, is in the next one. Nothing is rounded away.
func TestOneWindowInAnHour(t *testing.T) { //nolint:paralleltest // onWith does
	onWith(t, hourly(), func(r *rig) {
		r.now = noon.Add(20 * time.Minute)
		r.add("acme", "10.7")
		r.pass(1, 0)
		if got := r.deliver(storage.Accepted); got != "10" {
			t.Errorf("%s, want 10", got)
		}
		r.add("acme", "0.5")
		r.pass(0, 1) // the hour has one, and the store knows it
		r.now = noon.Add(59 * time.Minute)
		r.pass(0, 0)
		r.now = noon.Add(time.Hour)
		r.pass(1, 0)
		if got := r.deliver(storage.Accepted); got != "1" {
			t.Errorf("%s, want 1: 11.2 less 10", got)
		}
		r.now = noon.Add(2 * time.Hour)
		if sum := r.pass(0, 1); sum.Carried != 1 {
			t.Errorf("%+v, want 0.2 carried", sum)
		}
		r.add("acme", "0.8")
		r.pass(1, 0)
		r.deliver(storage.Accepted)
		if got := r.charged().String(); got != "12" {
			t.Errorf("charged %s, counted 12", got)
		}
		if got := r.stamps(); got != "2026-11-30T12:00:00Z 2026-11-30T13:00:00Z 2026-11-30T14:00:00Z" {
			t.Errorf("%s", got)
		}
	})
}

// What a record cannot hold is told in several hours.
func TestWindowsOfAnInt32(t *testing.T) { //nolint:paralleltest // onWith does
	onWith(t, hourly(), func(r *rig) {
		r.add("acme", "2500000000.5")
		var told []string
		for range 4 {
			if _, err := r.engine.Reporter(engine.Reporting{}).Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			told = append(told, r.deliver(storage.Accepted))
			r.pass(0, min(1, len(told[len(told)-1])))
			r.now = r.now.Add(time.Hour)
		}
		if got := strings.Join(told, " "); got != "999999999 999999999 500000002 " {
			t.Errorf("%q", got)
		}
	})
}

// A counter that falls is not told until it has grown again. Once its period is
// over it will not any more, and the fall waits for a person.
func TestFallAtAProviderThatTakesNothingBack(t *testing.T) { //nolint:paralleltest // onWith does
	onWith(t, hourly(), func(r *rig) {
		r.add("acme", "10")
		r.pass(1, 0)
		r.deliver(storage.Accepted)
		r.now = r.now.Add(time.Hour)
		r.add("acme", "-4")
		if sum := r.pass(0, 1); sum.Carried != 1 {
			t.Errorf("%+v", sum)
		}
		r.add("acme", "7")
		r.pass(1, 0)
		if got := r.deliver(storage.Accepted); got != "3" {
			t.Errorf("%s, want 3: 13 less 10", got)
		}
		r.add("acme", "-1")
		r.now = end.Add(2 * time.Hour)
		r.pass(1, 1)
		if got := r.reasons(); got != "value_domain" {
			t.Errorf("%s", got)
		}
		if got := r.charged().String(); got != "13" {
			t.Errorf("charged %s", got)
		}
	})
}

// Two tenants of one customer share its hour: the second one's window is in the
// next, and neither is refused by the provider.
func TestTenantsOfOneCustomerShareTheHour(t *testing.T) { //nolint:paralleltest // onWith does
	onWith(t, hourly(), func(r *rig) {
		if _, err := r.engine.PutSubscription(t.Context(), storage.Subscription{Tenant: "bcme", Customers: map[string]string{"stripe": "cus_1"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.engine.PutSubscription(t.Context(), storage.Subscription{Tenant: "ccme", Customers: map[string]string{"stripe": "cus_2"}}); err != nil {
			t.Fatal(err)
		}
		for _, tenant := range []string{"acme", "bcme", "ccme"} {
			r.add(tenant, "5")
		}
		r.pass(2, 0) // acme's and ccme's
		r.deliver(storage.Accepted)
		r.now = r.now.Add(time.Hour)
		r.add("acme", "1")
		r.pass(1, 2) // acme's again; bcme waits
		r.deliver(storage.Accepted)
		r.now = r.now.Add(time.Hour)
		r.pass(1, 1)
		r.deliver(storage.Accepted)
		if got := r.charged().String(); got != "16" {
			t.Errorf("charged %s, counted 16", got)
		}
	})
}

// A window that the provider refused for good, staged again by a person, is
// another record in another hour, and none in the same.
func TestRestagedWindowIsAnotherRecord(t *testing.T) { //nolint:paralleltest // onWith does
	onWith(t, hourly(), func(r *rig) {
		r.add("acme", "5")
		r.pass(1, 0)
		r.deliver(storage.Rejected)
		found, err := r.store.ReportBounds(t.Context(), storage.BoundQuery{Staged: true, Limit: 10})
		if err != nil || len(found.Bounds) != 1 {
			t.Fatalf("%+v %v", found, err)
		}
		b := found.Bounds[0]
		res, err := r.store.SettleWindow(t.Context(), storage.WindowSettle{
			Key: b.BoundKey, ItemID: b.ItemID, States: []storage.ItemState{storage.Rejected}, Disposition: storage.WindowRestage,
		})
		if err != nil || !res.Changed {
			t.Fatalf("%+v %v", res, err)
		}
		r.pass(0, 0)
		r.now = r.now.Add(time.Hour)
		r.pass(1, 0)
		if got := r.deliver(storage.Accepted); got != "5" {
			t.Errorf("%s, want 5", got)
		}
	})
}

// However often a reporter passes and whatever comes in between, an hour has one
// window.
func TestReporterPassesOftenInAnHour(t *testing.T) { //nolint:paralleltest // onWith does
	onWith(t, hourly(), func(r *rig) {
		rep := r.engine.Reporter(engine.Reporting{})
		var staged int
		for range 36 { // three hours, every five minutes
			r.add("acme", "1")
			sum, err := rep.Once(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			staged += sum.Staged
			r.deliver(storage.Accepted)
			r.now = r.now.Add(5 * time.Minute)
		}
		if staged != 3 {
			t.Errorf("%d windows in three hours", staged)
		}
	})
}
