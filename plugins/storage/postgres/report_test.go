package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// windowOn stages [from, to) of a counter of acme.
func windowOn(route, revision int64, from, to string) storage.WindowStage {
	key := storage.BoundKey{Exporter: "stripe", Account: "acct_1", Mode: "test", Tenant: "acme", Feature: "tokens", PeriodStart: november}
	ref := "usage:tokens:" + from + ":" + to
	return storage.WindowStage{
		Key: key, PeriodEnd: november.AddDate(0, 1, 0), RoutesRevision: revision,
		From: decimal.MustParse(from), To: decimal.MustParse(to),
		Item: storage.NewItem{
			Identity: storage.Identity{
				Tenant: "acme", SubjectKind: storage.SubjectWindow, SubjectRef: ref,
				Exporter: "stripe", Account: "acct_1", Mode: "test", MappingVersion: "m1",
			},
			Digest: digestOf("digest", ref), SubjectKey: digestOf("subject", ref), RouteID: route, Customer: "cus_1", AttemptBudget: 3,
			Payload: fmt.Appendf(nil, `{"feature":"tokens","value":"%s","timestamp":"2026-11-10T00:00:00Z"}`, decimal.MustParse(to).Sub(decimal.MustParse(from))),
		},
	}
}

// Q20, O22: however many hosts stage a counter, one window is on its way, and
// one item; the next begins where it ended.
func TestManyHostsStageOneWindow(t *testing.T) {
	t.Parallel()
	o := newOutbox(t)
	hosts := []*outbox{o, o.host(), o.host()}
	set, err := o.Routes(t.Context())
	must(t, err)
	from := "0"
	for round := 1; round <= 5; round++ {
		to := strconv.Itoa(round * 10)
		var staged atomic.Int64
		var won storage.WindowResult
		var wg sync.WaitGroup
		for n := range 6 {
			wg.Go(func() {
				// Each host read another counter value.
				w := windowOn(o.route, set.Revision, from, strconv.Itoa(round*10+n))
				if n == 0 {
					w = windowOn(o.route, set.Revision, from, to)
				}
				res, err := hosts[n%3].StageWindow(t.Context(), w)
				if err != nil {
					t.Error(err)
					return
				}
				if res.Changed {
					staged.Add(1)
					won = res
				} else if res.Bound.StagedTo == nil {
					t.Errorf("not staged, and nothing is: %+v", res)
				}
			})
		}
		wg.Wait()
		var items int
		o.query(&items, "SELECT count(*) FROM {schema}.fencepost_outbox_items")
		if staged.Load() != 1 || items != round {
			t.Fatalf("round %d: %d staged, %d items", round, staged.Load(), items)
		}
		o.exec("UPDATE {schema}.fencepost_outbox_state SET state = 'accepted', accepted_at = now() WHERE item = $1", won.ItemID)
		res, err := o.SettleWindow(t.Context(), storage.WindowSettle{
			Key: won.Bound.BoundKey, ItemID: won.ItemID, States: []storage.ItemState{storage.Accepted}, Disposition: storage.WindowAcknowledged,
		})
		must(t, err)
		if !res.Changed || res.Bound.StagedTo != nil || !res.Bound.Acked.Equal(*won.Bound.StagedTo) {
			t.Fatalf("settled %+v", res)
		}
		from = res.Bound.Acked.String()
	}
}

// Q20: a bound moves to what was staged and nowhere else, and is never removed;
// a window of a rejected item may be written off or staged again, of another
// state it stays.
func TestBoundMoves(t *testing.T) {
	t.Parallel()
	o := newOutbox(t)
	set, err := o.Routes(t.Context())
	must(t, err)
	res, err := o.StageWindow(t.Context(), windowOn(o.route, set.Revision, "0", "7"))
	must(t, err)
	settle := func(d storage.WindowDisposition, settled bool) storage.WindowResult {
		t.Helper()
		done, err := o.SettleWindow(t.Context(), storage.WindowSettle{
			Key: res.Bound.BoundKey, ItemID: res.ItemID, States: []storage.ItemState{storage.Rejected}, Settled: settled, Disposition: d,
		})
		must(t, err)
		return done
	}
	if got := settle(storage.WindowRestage, false); got.Changed {
		t.Errorf("of a pending item: %+v", got)
	}
	o.exec("UPDATE {schema}.fencepost_outbox_state SET state = 'rejected'")
	if got := settle(storage.WindowRestage, true); got.Changed {
		t.Errorf("of an item that is not settled: %+v", got)
	}
	o.refused("UPDATE {schema}.fencepost_report_bounds SET acked = 3")
	if got := settle(storage.WindowRestage, false); !got.Changed || !got.Bound.Acked.IsZero() || got.Bound.ItemID != 0 {
		t.Errorf("staged again: %+v", got)
	}
	// The same window again would be the same identity.
	_, err = o.StageWindow(t.Context(), windowOn(o.route, set.Revision, "0", "7"))
	wantFailure(t, err, "conflict", "window_exists")
	if again, err := o.StageWindow(t.Context(), windowOn(o.route, set.Revision, "1", "8")); err != nil || again.Changed {
		t.Errorf("from where nothing was acknowledged: %+v, %v", again, err)
	}
	for _, text := range []string{
		"UPDATE {schema}.fencepost_report_bounds SET acked = 3", "UPDATE {schema}.fencepost_report_bounds SET exporter = 'x'",
		"DELETE FROM {schema}.fencepost_report_bounds", "TRUNCATE {schema}.fencepost_report_bounds",
	} {
		o.refused(text)
	}
	_, err = o.StageWindow(t.Context(), windowOn(o.route, set.Revision+1, "0", "9"))
	wantFailure(t, err, "conflict", "routes_moved")
}

// Q21: whoever decides first decides for good, also of hosts that decide at
// once.
func TestCutoverIsDecidedOnce(t *testing.T) {
	t.Parallel()
	o := newOutbox(t)
	hosts := []*outbox{o, o.host()}
	var mu sync.Mutex
	var answers []string
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			at := november.AddDate(0, n, 0)
			list := []storage.Cutover{{Tenant: "b", Feature: "f", DurableFrom: at}, {Tenant: "a", Feature: "f", DurableFrom: at}}
			if n%2 == 1 {
				slices.Reverse(list)
			}
			got, err := hosts[n%2].DecideCutovers(t.Context(), list)
			if err != nil || len(got) != 2 || got[0].Tenant != list[0].Tenant {
				t.Errorf("%+v, %v", got, err)
				return
			}
			if n%2 == 1 {
				slices.Reverse(got)
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, fmt.Sprint(got))
		})
	}
	wg.Wait()
	slices.Sort(answers)
	if len(slices.Compact(answers)) != 1 {
		t.Errorf("answers %s", strings.Join(answers, "\n"))
	}
	o.refused("UPDATE {schema}.fencepost_cutovers SET durable_from = now()")
	o.refused("DELETE FROM {schema}.fencepost_cutovers")
}

// Q21: usage of a period that the counter owns is added to it where it is
// recorded, and taken from it where it is corrected; a repeat adds nothing.
func TestCountedUsage(t *testing.T) {
	t.Parallel()
	a := open(t)
	counted := func(id, quantity string) storage.Unit {
		u := plain(tokens("acme", id, quantity))
		u.Entries[0].Counted = true
		return u
	}
	want := func(value string) {
		t.Helper()
		c, err := a.LoadCounter(t.Context(), storage.CounterKey{Tenant: "acme", Feature: "tokens", PeriodStart: november})
		must(t, err)
		if c.Value.String() != value {
			t.Errorf("counter %s, want %s", c.Value, value)
		}
	}
	req := storage.RecordRequest{Units: []storage.Unit{counted("e1", "5"), plain(tokens("acme", "e2", "2")), counted("e3", "1.5")}}
	wantOutcomes(t, record(t, a, req), "inserted e1; inserted e2; inserted e3")
	want("6.5")
	wantOutcomes(t, record(t, a, req), "duplicate e1; duplicate e2; duplicate e3")
	want("6.5")
	clash := storage.RecordRequest{Units: []storage.Unit{counted("e4", "1"), counted("e1", "6")}}
	wantOutcomes(t, record(t, a, clash), "; conflict")
	want("6.5")
	clash.Mode = storage.Each
	wantOutcomes(t, record(t, a, clash), "inserted e4; conflict")
	want("7.5")
	c := correcting("c1", "e1", "2")
	c.Counted = true
	wantTold(t, correct(t, a, c), "inserted c1 3")
	want("5.5")
	wantTold(t, correct(t, a, c), "duplicate c1 3")
	want("5.5")
	wantTotals(t, a, "acme", "tokens 7.5/5/4")
}
