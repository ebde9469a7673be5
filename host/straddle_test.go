package host_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// straddle is two versions of one program on one store and one clock, with the
// periods of their tenants ending one after the other.
type straddle struct {
	t        *testing.T
	store    storage.Adapter
	double   *stripedouble.Server
	old, new *host.Host
	ahead    atomic.Int64
	began    time.Time
	// used is what was acknowledged and not taken back, over all tenants.
	mu   sync.Mutex
	used decimal.Decimal
	ids  atomic.Int64
}

func (s *straddle) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// boundary is when the period of a tenant ends: tenant n's n hours later.
func (s *straddle) boundary(n int) time.Time {
	return s.began.Truncate(time.Hour).Add(time.Duration(n+2) * time.Hour)
}

func newStraddle(t *testing.T, st storage.Adapter) *straddle {
	t.Helper()
	s := &straddle{t: t, store: st, began: time.Now().UTC()}
	var err error
	s.double, err = stripedouble.New(stripedouble.Config{Dir: filepath.Join(t.TempDir(), "stripe"), Now: s.now})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.double.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.double.Close() })
	version := func(f config.Feature) *host.Host {
		c := settings(s.double)
		c.Features = map[string]config.Feature{"tokens": f}
		c.Counters = config.Counters{Flush: config.Duration(50 * time.Millisecond), Report: config.Duration(time.Second)}
		cfg := hostConfig(st, c)
		cfg.Now = s.now
		return open(t, cfg)
	}
	s.old = version(config.Feature{Source: "buffered"})
	for n := range 3 {
		_, err := s.old.Engine().PutSubscription(t.Context(), storage.Subscription{
			Tenant: fmt.Sprint("t", n), Anchor: s.boundary(n).AddDate(0, 0, -30), Interval: storage.Day, Customers: map[string]string{"stripe": fmt.Sprint("cus_", n)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.new = version(config.Feature{Source: "events", Cutover: s.boundary(-1).Format(time.RFC3339)})
	return s
}

// add notes what was acknowledged.
func (s *straddle) add(q decimal.Decimal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = s.used.Add(q)
}

// use counts, records and corrects some usage of every tenant on both versions at
// once, as long as they take it.
func (s *straddle) use() {
	var wg sync.WaitGroup
	for n := range 3 {
		tenant := fmt.Sprint("t", n)
		wg.Go(func() { // the old version counts, whatever was decided
			for range 20 {
				q := decimal.FromScaled(int64(1+rand.IntN(999)), 2)
				if err := s.old.Engine().Track(s.t.Context(), tenant, "tokens", q); err == nil {
					s.add(q)
				}
			}
		})
		wg.Go(func() { // the new one records, late events too
			for range 6 {
				ev := engine.Event{ID: fmt.Sprint("e", s.ids.Add(1)), Tenant: tenant, Feature: "tokens", Quantity: decimal.FromScaled(int64(1+rand.IntN(999)), 3)}
				if rand.IntN(2) == 0 {
					ev.Time = s.now().Add(-time.Duration(rand.IntN(150)) * time.Minute)
				}
				if _, err := s.new.Engine().Record(s.t.Context(), ev); err != nil {
					s.t.Error(err)
					continue
				}
				s.add(ev.Quantity)
				if rand.IntN(3) > 0 {
					continue
				}
				by := []*host.Host{s.old, s.new}[rand.IntN(2)] // corrections reach any host
				part := decimal.FromScaled(1, 3)
				_, err := by.Engine().Correct(s.t.Context(), engine.Correction{ID: "c" + ev.ID, Tenant: tenant, EventID: ev.ID, Quantity: &part})
				if err != nil {
					s.t.Error(err)
					continue
				}
				s.add(part.Neg())
			}
		})
	}
	wg.Wait()
}

// A straddling tenant, O23 and Q21: while the old version of a configuration counts
// a feature and the new one records it, on one store and through the boundary of
// each tenant, the provider is told all of it once.
func TestStraddlingTenantsAreChargedExactly(t *testing.T) { //nolint:paralleltest // in archives
	archives(t, func(t *testing.T, a archive) {
		st := a.open()
		t.Cleanup(func() { _ = st.Close() })
		s := newStraddle(t, st)
		s.use()
		for n := range 3 { // to the last minute of one period, and past it
			for _, at := range []time.Duration{-time.Minute, time.Second, 10 * time.Minute} {
				s.ahead.Store(int64(time.Until(s.boundary(n).Add(at))))
				s.use()
			}
		}
		want := s.used.String()
		deadline := time.After(2 * time.Minute)
		for {
			ledger := s.double.Ledger()
			if got := ledger.NetTotal["llm_tokens"]; got == want {
				if ledger.DoubleCharges != 0 {
					t.Errorf("%d double charges", ledger.DoubleCharges)
				}
				break
			}
			select {
			case <-deadline:
				s.explain()
				t.Fatalf("the provider was told %s, used were %s", ledger.NetTotal["llm_tokens"], want)
			case <-time.After(100 * time.Millisecond):
			}
		}
		items, _ := st.(storage.OutboxStore)
		counted, err := items.ListItems(t.Context(), storage.ItemQuery{Reason: "period_buffered", Limit: 1000})
		if err != nil || len(counted.Items) == 0 {
			t.Errorf("%d events were counted, %v", len(counted.Items), err)
		}
		kinds := map[storage.SubjectKind]int{}
		accepted, err := items.ListItems(t.Context(), storage.ItemQuery{State: storage.Accepted, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range accepted.Items {
			kinds[it.Identity.SubjectKind]++
		}
		if kinds[storage.SubjectEvent] == 0 || kinds[storage.SubjectWindow] == 0 {
			t.Errorf("reported %v: the test straddles nothing", kinds)
		}
	})
}

// explain says what became of everything that did not add up.
func (s *straddle) explain() {
	items, _ := s.store.(storage.OutboxStore)
	page, err := items.ListItems(s.t.Context(), storage.ItemQuery{Limit: 1000})
	if err != nil {
		return
	}
	for _, it := range page.Items {
		if it.State != storage.Accepted && it.QuarantineReason != "period_buffered" {
			s.t.Logf("%s %s: %s %s %+v", it.Identity.SubjectKind, it.Identity.SubjectRef, it.State, it.QuarantineReason, it.LastError)
		}
	}
	s.t.Log(s.old.Degraded(), s.new.Degraded())
}
