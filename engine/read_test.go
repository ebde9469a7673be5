package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Usage is by feature and billing period, half-open; a selection without usage
// is empty and no error.
func TestUsageByPeriod(t *testing.T) {
	t.Parallel()
	f := open(t)
	october, november := plain("o", "1"), plain("n", "2")
	november.Time = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	october.Time = november.Time.Add(-time.Microsecond)
	f.want(f.each(october, november), "inserted inserted")
	for name, tc := range map[string]struct {
		q    engine.UsageQuery
		want string
	}{
		"all":          {engine.UsageQuery{Tenant: "acme"}, "1 2"},
		"from":         {engine.UsageQuery{Tenant: "acme", From: november.Time}, "2"},
		"to":           {engine.UsageQuery{Tenant: "acme", To: november.Time}, "1"},
		"feature":      {engine.UsageQuery{Tenant: "acme", Feature: "tokens"}, "1 2"},
		"none":         {engine.UsageQuery{Tenant: "acme", Feature: "x"}, ""},
		"other tenant": {engine.UsageQuery{Tenant: "acm"}, ""},
	} {
		u, err := f.Usage(t.Context(), tc.q)
		var got []string
		for _, row := range u.Rows {
			got = append(got, row.Value.String())
		}
		if err != nil || strings.Join(got, " ") != tc.want || !u.AsOf.Equal(noon) {
			t.Errorf("%s: %v as of %v, %v; want %q", name, got, u.AsOf, err, tc.want)
		}
	}
	_, err := f.Usage(t.Context(), engine.UsageQuery{})
	tagIs(t, err, sdk.TagInvalid, "") // an empty tenant is no tenant, never all
}

func TestReadingWhatIsNotThere(t *testing.T) {
	t.Parallel()
	f := open(t)
	_, err := f.Event(t.Context(), storage.EventKey{Tenant: "acme", EventID: "a"})
	tagIs(t, err, sdk.TagNotFound, "")
	_, err = f.Receipt(t.Context(), storage.ReceiptKey{Tenant: "acme", ReceiptID: "a"})
	tagIs(t, err, sdk.TagNotFound, "")
	_, err = f.Subscription(t.Context(), "acme")
	tagIs(t, err, sdk.TagNotFound, "")
}

func TestSubscriptionRules(t *testing.T) {
	t.Parallel()
	f := open(t)
	anchor := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	for field, s := range map[string]storage.Subscription{
		"tenant":       {Anchor: anchor},
		"interval":     {Tenant: "a", Anchor: anchor, Interval: "fortnight"},
		"timezone":     {Tenant: "a", Anchor: anchor, Timezone: "Mars/Olympus"},
		"plan":         {Tenant: "a", Anchor: anchor, Plan: strings.Repeat("x", 129)},
		"plan_version": {Tenant: "a", Anchor: anchor, PlanVersion: "\x00"},
		"customers":    {Tenant: "a", Anchor: anchor, Customers: map[string]string{"stripe": "cus\n1"}},
	} {
		_, err := f.PutSubscription(t.Context(), s)
		var e *sdk.Error
		if !errors.As(err, &e) || e.Tag != sdk.TagInvalid || e.Field != field || e.Rule == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	list, err := f.Subscriptions(t.Context(), "", 10)
	if err != nil || len(list) != 0 {
		t.Errorf("%v, %v: a refused subscription was stored", list, err)
	}
	got, err := f.PutSubscription(t.Context(), storage.Subscription{Tenant: "a", Anchor: anchor})
	if err != nil || got.Interval != storage.Month || got.Timezone != "UTC" || got.Revision != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A new subscription applies to what is recorded from now on. The anchor's 31
// is clamped in November, and the day is the zone's.
func TestPeriodFollowsTheSubscription(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.want(f.each(plain("a", "1")), "inserted")
	_, err := f.PutSubscription(t.Context(), storage.Subscription{
		Tenant: "acme", Anchor: time.Date(2026, 1, 31, 5, 0, 0, 0, time.UTC), Timezone: "America/New_York",
	})
	if err != nil {
		t.Fatal(err)
	}
	f.want(f.each(plain("b", "1"), plain("a", "1")), "inserted duplicate")
	for id, want := range map[string]time.Time{
		"a": time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		// Midnight in New York: 31 October is daylight time, 30 November is not.
		"b": time.Date(2026, 11, 30, 5, 0, 0, 0, time.UTC),
	} {
		ev, err := f.Event(t.Context(), storage.EventKey{Tenant: "acme", EventID: id})
		if err != nil || !ev.PeriodStart.Equal(want) {
			t.Errorf("%s: period from %v, %v; want %v", id, ev.PeriodStart, err, want)
		}
	}
	list, err := f.Subscriptions(t.Context(), "", 10)
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
