//go:build faults && linux

package faults

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
)

// Q26: a program that records inside its own transaction keeps that open for a
// minute. A replay that is begun meanwhile waits for it, and while it waits
// recording goes on: no record queues behind it for longer than it stands in the
// queue itself, which is a quarter of a second. When the transaction has ended
// the replay goes through, with the event that was held in it.
func TestEmbedderHoldsItsTransaction(t *testing.T) {
	t.Parallel()
	const hold, bound = time.Minute, 10 * time.Second
	b := newBed(t, defaults())
	b.subscribeCrowd()
	b.start("")
	b.record(crowd("before", 50))

	store, err := postgres.Open(t.Context(), postgres.Config{DSN: b.dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	e, err := engine.New(engine.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	tx, err := b.session().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Another tenant's: records of the same total wait for the transaction.
	held := event{id: "held", of: crowdTenants[1], feature: "tokens", quantity: "7", at: time.Now().Add(-time.Hour)}
	b.sending([]event{held})
	res, err := e.In(store.WithTx(tx)).Record(t.Context(), engine.Event{
		ID: held.id, Tenant: held.of, Feature: held.feature, Quantity: decimal.MustParse(held.quantity), Time: held.at,
	})
	if err != nil {
		t.Fatalf("record in a transaction: %v, %v", res, err)
	}
	began := time.Now()
	if _, err := b.replaying("", map[string]any{"timeout": "10m"}); err != nil {
		t.Fatal(err)
	}
	var worst time.Duration
	n, waiting := 0, 0
	for ; time.Since(began) < hold; n++ {
		at := time.Now()
		b.record(events(fmt.Sprint("during", n), 1))
		worst = max(worst, time.Since(at))
		if n%50 == 0 {
			var st api.ReplayStatus
			b.get("/v1/replays", &st)
			if st.Building != "" || st.Run == nil || st.Run.State != "running" {
				t.Fatalf("after %v a replay did not wait: %+v", time.Since(began), st)
			}
			waiting++
		}
	}
	t.Logf("%d records in %v, the slowest took %v; a replay was seen waiting %d times", n, hold, worst, waiting)
	if worst > bound || n < 60 {
		t.Errorf("%d records in %v, the slowest took %v", n, hold, worst)
	}
	if code := b.status("/readyz"); code != http.StatusOK {
		t.Errorf("ready answers %d", code)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := b.replayed(); st.Run.State != "done" || st.Run.Differing != "0" || st.Building != "" {
		t.Errorf("the replay: %+v, %+v", st, st.Run)
	}
	if inserted := b.record([]event{held}); inserted != 0 {
		t.Error("what the transaction held was inserted again")
	}
	b.drain()
	if got := b.audit().accepted(b.rig); got != 50+n+1 {
		t.Errorf("%d items of %d events", got, 50+n+1)
	}
}

// F11, D8, I1: the deadline of a record is a millisecond, then two, and so on
// until it has passed before a COMMIT and in one: how long either takes is the
// machine's. What is answered is stored; what is not is unavailable, and stored
// whole or not at all; the same call again finds out. Nothing of a call that was
// given up stays open.
func TestDeadlineOfAMillisecond(t *testing.T) {
	t.Parallel()
	b := newProxied(t, defaults())
	b.subscribe()
	var unknown [][]event
	whole, none := 0, 0
	for limit := time.Millisecond; whole == 0 || none == 0; limit *= 2 {
		if limit > time.Second {
			t.Fatalf("of the calls that were not answered %d were stored and %d were not: the deadline never passed in a COMMIT, or never before", whole, none)
		}
		b.settings.record = limit.String()
		b.configure()
		b.start("")
		lost := b.hurried(limit)
		if code := b.status("/readyz"); code != http.StatusOK {
			t.Errorf("ready answers %d", code)
		}
		b.nothingOpen()
		b.server.stop()
		stored := b.read()
		for _, call := range lost {
			there := 0
			for _, e := range call {
				if _, ok := stored.byKey[eventKey{tenant, e.id}]; ok {
					there++
				}
			}
			switch there {
			case len(call):
				whole++
			case 0:
				none++
			default:
				t.Errorf("%d of the %d events of a call are stored", there, len(call))
			}
		}
		unknown = append(unknown, lost...)
		t.Logf("deadline %v: %d calls not answered; so far %d stored and %d not", limit, len(lost), whole, none)
	}
	b.settings.record = defaults().record
	b.configure()
	b.start("")
	again := 0
	for _, call := range unknown {
		if b.record(call) != 0 {
			again++
		}
	}
	if again != none {
		t.Errorf("%d calls that were given up were not stored, and %d were inserted when sent again", none, again)
	}
	b.drain()
	b.audit().accepted(b.rig)
}

// hurried sends calls whose deadline may pass and returns those that were not
// answered.
func (b *bed) hurried(limit time.Duration) (lost [][]event) {
	b.t.Helper()
	for n := range 100 {
		call := events(fmt.Sprint(limit, "-", n), 1+n%7)
		_, err := b.post(call)
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), "status 503") || !strings.Contains(err.Error(), "unavailable") {
			b.t.Errorf("call %d: %v, want unavailable", n, err)
		}
		lost = append(lost, call)
	}
	return lost
}

// nothingOpen waits until no transaction holds anything of the events.
func (b *bed) nothingOpen() {
	b.t.Helper()
	admin := b.session()
	eventually(b.t, "no transaction is left open", func() bool {
		var open int
		err := admin.QueryRow(b.t.Context(), "SELECT count(*) FROM pg_locks WHERE relation = $1::text::regclass", b.schema+".fencepost_events").Scan(&open)
		return err == nil && open == 0
	})
}
