//go:build faults && linux

package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/internal/stripedouble"
)

// timed is a bed on a server of its own whose clock, and the provider's, a test
// moves. Two hosts deliver.
type timed struct {
	*bed
	clock *pgtest.Clock
	ahead time.Duration
}

func newTimed(t *testing.T, s settings, change ...func(*stripedouble.Config)) *timed {
	t.Helper()
	clock := pgtest.NewClock(t)
	b := newOwn(t, s, pgtest.NewCluster(t, pgtest.ClusterConfig{Clock: clock}), change...)
	b.program = binary // its points
	b.apart()
	return &timed{bed: b, clock: clock}
}

// later lets time pass for the store and the provider.
func (b *timed) later(d time.Duration) {
	b.t.Helper()
	b.ahead += d
	b.clock.Step(b.ahead)
	if err := b.double.Advance(d); err != nil {
		b.t.Fatal(err)
	}
}

// F36, O10, D16: a host dies when the provider has charged and nobody has heard of
// it, and comes back later. How late the item may still be sent again is what the
// exporter declares of the provider, or less if the configuration says so; then it
// waits for a person. If the provider remembers for less time than is declared, the
// second send is a second charge, and the ledger shows it: that is what the horizon
// rests on, and that the judge can fail.
func TestIdentifiersAreForgotten(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for name, test := range map[string]struct {
		remembers time.Duration // what the provider does
		horizon   string        // what the configuration says
		away      time.Duration
		state     string
		code      string
		charges   int
	}{
		"back within what is declared":         {day, "200h", 22 * time.Hour, "accepted", "", 1},
		"back after it whatever is configured": {day, "200h", 23*time.Hour + 10*time.Minute, "uncertain", "horizon_passed", 1},
		"five minutes and nobody knows":        {5 * time.Minute, "23h", 6 * time.Minute, "accepted", "", 2},
		"five minutes and the operator knows":  {5 * time.Minute, "4m", 6 * time.Minute, "uncertain", "horizon_passed", 1},
	} {
		t.Run(subtest(name), func(t *testing.T) {
			t.Parallel()
			s := shortLease()
			s.horizon = test.horizon
			b := newTimed(t, s, func(c *stripedouble.Config) { c.DedupeWindow = test.remembers })
			b.subscribe()
			b.load(events("e", 1))
			b.launch("d7=kill@n1").died("d7")
			if it := b.read().items[0]; it.state != "leased" || b.double.Ledger().Charges != 1 {
				t.Fatalf("the item is %s, the ledger %+v", it.state, b.double.Ledger())
			}
			b.later(test.away)
			b.both()
			b.record(events("fresh", 3))
			b.drain()
			b.quit()
			books := b.read()
			it := books.of(t, "e-0000")
			if it.state != test.state || test.code != "" && it.code != test.code {
				t.Errorf("the item is %s (%s), want %s (%s)", it.state, it.code, test.state, test.code)
			}
			if n := books.states()["accepted"]; n != 3+b2i(test.state == "accepted") {
				t.Errorf("states %v", books.states())
			}
			e, _ := b.double.Entry(account, false, it.identifier)
			if e.Charges != test.charges {
				t.Errorf("charged %d times, want %d", e.Charges, test.charges)
			}
			if test.charges == 1 {
				b.audit()
				return
			}
			v := b.judge(books, "stripe", b.double)
			t.Logf("the promise is broken: %s", v)
			all := strings.Join(v.problems, "\n")
			if !strings.Contains(all, "DOUBLE CHARGE") || v.difference["llm_tokens"] == "" || v.ledger.DoubleCharges != 1 {
				t.Errorf("the judge does not see a double charge: %s, %s", v, all)
			}
		})
	}
}
