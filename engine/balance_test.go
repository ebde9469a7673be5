package engine_test

import (
	"errors"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// metered is an engine with credit meters, whose clock and store's clock move.
func metered(t *testing.T, clock *time.Time, change func(*engine.Config)) *fixture {
	t.Helper()
	now := func() time.Time { return *clock }
	dir := t.TempDir()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "fencepost.db"), Migrate: true, Now: now, LockWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	f := &fixture{t: t, store: st, dir: dir, Engine: over(t, st, func(c *engine.Config) {
		c.Now = now
		c.Features = map[string]engine.Feature{"tokens": {Buckets: true, BucketDimensions: []string{"model"}}, "plain": {}}
		change(c)
	})}
	f.routes(plan(map[string]string{"plain": "plain"}))
	if _, err := f.Replay(t.Context(), engine.ReplayOptions{}); err != nil { // buckets hold everything
		t.Fatal(err)
	}
	return f
}

func (f *fixture) balance(tenant, name string) string {
	f.t.Helper()
	b, err := f.Balance(f.t.Context(), tenant, name)
	if err != nil {
		f.t.Fatal(err)
	}
	return b.Credited.String() + " - " + b.Consumed.String() + " = " + b.Balance.String()
}

func (f *fixture) grant(name, id, amount string) {
	f.t.Helper()
	c := storage.Credit{Tenant: "acme", Meter: name, ID: id, Kind: storage.CreditGrant, Amount: decimal.MustParse(amount), Reason: "bought"}
	if _, err := f.AddCredit(f.t.Context(), engine.CreditRequest{Credit: c}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) use(id, quantity, model string, at time.Time) {
	f.t.Helper()
	e := plain(id, quantity)
	e.Time, e.Dimensions = at, map[string]string{"model": model}
	res, err := f.Record(f.t.Context(), e)
	if err != nil || res[0].Outcome != "inserted" {
		f.t.Fatalf("%+v %v", res, err)
	}
}

// C17, C29, C-T16: credits are a meter's, usage is a reducer's, and meters that ask
// for the same share it.
func TestBalance(t *testing.T) {
	t.Parallel()
	now := noon.Add(3 * time.Minute)
	f := metered(t, &now, func(c *engine.Config) {
		c.CreditMeters = []engine.CreditMeter{
			{Name: "tokens", Feature: "tokens"},
			{Name: "big", Feature: "tokens", Filter: map[string]string{"model": "big"}},
			{Name: "trial", Feature: "tokens"},
		}
	})
	if got := f.balance("acme", "tokens"); got != "0 - 0 = 0" {
		t.Error(got)
	}
	if b, err := f.Balance(t.Context(), "acme", "tokens"); err != nil || b.Known {
		t.Errorf("%+v %v", b, err)
	}
	f.grant("tokens", "1", "1000")
	f.grant("trial", "1", "7.5")
	f.use("old", "10", "small", noon.Add(-26*time.Hour))
	f.use("now", "0.25", "big", now.Add(-time.Second))
	for name, want := range map[string]string{"tokens": "1000 - 10.25 = 989.75", "big": "0 - 0.25 = -0.25", "trial": "7.5 - 10.25 = -2.75"} {
		if got := f.balance("acme", name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	list := f.Reducers()
	if len(list) != 2 || len(list[0].Meters)+len(list[1].Meters) != 3 {
		t.Errorf("%+v", list)
	}
	_, err := f.Balance(t.Context(), "acme", "nothing")
	wantTag(t, err, sdk.TagNotFound, "meter")
	_, err = f.AddCredit(t.Context(), engine.CreditRequest{Credit: storage.Credit{Tenant: "acme", Meter: "nothing", ID: "1", Kind: storage.CreditGrant}})
	wantTag(t, err, sdk.TagNotFound, "meter")
	_, err = f.Snapshot(t.Context(), engine.SnapshotQuery{Tenant: "acme", Reducer: "r_0"})
	wantTag(t, err, sdk.TagNotFound, "reducer")
	_, err = f.Snapshot(t.Context(), engine.SnapshotQuery{Tenant: "a\x00", Reducer: list[0].ID})
	wantTag(t, err, sdk.TagInvalid, "tenant")
}

func wantTag(t *testing.T, err error, tag sdk.Tag, field string) {
	t.Helper()
	if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Tag != tag || e.Field != field {
		t.Errorf("%v, want %s of %s", err, tag, field)
	}
}

// C33, C-T17, C-T7: eleven minutes after a period begins its credit is reset and the
// usage of the one before it counts no more, at the same moment; what comes late
// counts in the new one; nothing of it happens twice.
func TestRenewDue(t *testing.T) {
	t.Parallel()
	now := noon // of 30 November
	amount := decimal.MustParse("100")
	f := metered(t, &now, func(c *engine.Config) {
		c.CreditMeters = []engine.CreditMeter{{Name: "tokens", Feature: "tokens", Renew: &amount}}
	})
	f.subscribe("acme", "cus_1")
	renew := func(want int) {
		t.Helper()
		if n, err := f.RenewDue(t.Context()); err != nil || n != want {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	f.use("october", "55", "m", noon.AddDate(0, -1, 0))
	renew(1) // the first time: of the period that goes on
	if got := f.balance("acme", "tokens"); got != "100 - 0 = 100" {
		t.Error(got)
	}
	renew(0)
	gift := engine.CreditRequest{Credit: storage.Credit{Tenant: "acme", Meter: "tokens", ID: "gift", Kind: storage.CreditGrant, Amount: amount}}
	_, err := f.AddCredit(t.Context(), gift)
	wantTag(t, err, sdk.TagConflict, "meter") // it would be gone
	f.use("november", "30", "m", noon.Add(-time.Minute))
	if got := f.balance("acme", "tokens"); got != "100 - 30 = 70" {
		t.Error(got)
	}
	december := time.Date(2026, time.December, 1, 0, 0, 0, 0, time.UTC)
	now = december.Add(11*time.Minute - time.Microsecond)
	f.use("first", "5", "m", december)
	renew(0)
	if got := f.balance("acme", "tokens"); got != "100 - 35 = 65" {
		t.Error(got)
	}
	now = december.Add(11 * time.Minute)
	renew(1)
	if got := f.balance("acme", "tokens"); got != "100 - 5 = 95" {
		t.Error(got)
	}
	f.use("late", "2", "m", december.Add(-time.Hour))
	renew(0)
	b, err := f.Balance(t.Context(), "acme", "tokens")
	if err != nil || f.balance("acme", "tokens") != "100 - 7 = 93" || !b.Since.Equal(december) {
		t.Errorf("%+v %v", b, err)
	}
}

// Meters that cannot be answered are refused when the engine is made.
func TestCreditMetersAreChecked(t *testing.T) {
	t.Parallel()
	one := decimal.One
	set, err := meter.NewSet([]meter.Meter{{Feature: "users", EventType: "login", Aggregation: meter.Unique, Value: "$.user"}})
	if err != nil {
		t.Fatal(err)
	}
	for field, list := range map[string][]engine.CreditMeter{
		"outpost.meters[0].name":    {{Name: "Tokens!", Feature: "tokens"}},
		"outpost.meters[1].name":    {{Name: "a", Feature: "tokens"}, {Name: "a", Feature: "tokens"}},
		"outpost.meters[0].feature": {{Name: "a", Feature: "plain"}},
		"outpost.meters[0].filter":  {{Name: "a", Feature: "tokens", Filter: map[string]string{"region": "x"}}},
		"outpost.meters[1].renew":   {{Name: "a", Feature: "tokens", Renew: &one}, {Name: "b", Feature: "tokens"}},
	} {
		cfg := engine.Config{Store: open(t).store, Meters: set, CreditMeters: list, Features: map[string]engine.Feature{
			"tokens": {Buckets: true, BucketDimensions: []string{"model"}}, "users": {Buckets: true},
		}}
		_, err := engine.New(cfg)
		wantTag(t, err, sdk.TagInvalid, field)
		cfg.CreditMeters = []engine.CreditMeter{{Name: "a", Feature: "users"}}
		_, err = engine.New(cfg)
		wantTag(t, err, sdk.TagUnsupported, "outpost.meters[0].feature")
	}
}

// The functions of a reducer, beside what the engine reads of the same usage.
func TestReducerValues(t *testing.T) {
	t.Parallel()
	for how, want := range map[meter.Aggregation]string{meter.Sum: "7", meter.Count: "3", meter.Avg: "2.333333333333", meter.Min: "1", meter.Max: "4"} {
		set, err := meter.NewSet([]meter.Meter{{Feature: "tokens", EventType: "done", Aggregation: how, Value: map[bool]string{false: "$.n"}[how == meter.Count]}})
		if err != nil {
			t.Fatal(err)
		}
		now := noon
		f := metered(t, &now, func(c *engine.Config) { c.Meters = set })
		for i, n := range []string{"1", "2", "4"} {
			q := n
			if how == meter.Count {
				q = "1"
			}
			f.use(strconv.Itoa(i), q, "m", noon.Add(-time.Duration(i)*time.Hour))
		}
		if got := f.balance("acme", "tokens"); got != "0 - "+want+" = -"+want {
			t.Errorf("%s: %s, want %s", how, got, want)
		}
	}
}
