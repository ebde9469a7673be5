package postgres

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Q12, Q17: a beat says which store this is; who left is no host any more, and
// its last beat is remembered (O29).
func TestBeat(t *testing.T) {
	t.Parallel()
	o := seeded(t, 3, noSerial)
	beat := func(b storage.Heartbeat) storage.HeartbeatResult {
		t.Helper()
		res, err := o.Beat(t.Context(), b)
		must(t, err)
		return res
	}
	first := beat(storage.Heartbeat{Host: "a", Leaving: true}) // never beat
	in := first.Incarnation
	if in.Store == "" || len(in.Store) > 64 || in.System == "" || in.System == in.Store || in.Timeline < 1 || in.Claims != 0 || !first.LastBeat.IsZero() {
		t.Errorf("first %+v", first)
	}
	beat(storage.Heartbeat{Host: "a", Version: "1", BootID: "boot", Boottime: 3 * time.Second, FlushedThrough: november, Claims: 7})
	cl := o.claim(storage.ClaimRequest{Limit: 1})
	want := in
	want.Claims = 1
	if cl.Incarnation != want {
		t.Errorf("claim %+v, want %+v", cl.Incarnation, want)
	}
	if again := o.claim(storage.ClaimRequest{}); again.Incarnation.Claims != 2 {
		t.Errorf("second claim %+v", again.Incarnation)
	}
	if none := o.claim(storage.ClaimRequest{}); none.Incarnation.Claims != 0 && none.Incarnation.Claims != 2 {
		t.Errorf("a claim of nothing: %+v", none.Incarnation)
	}
	hosts, err := o.Hosts(t.Context(), time.Minute)
	must(t, err)
	if len(hosts) != 1 || hosts[0].Host != "a" || hosts[0].Claims != 7 || !hosts[0].FlushedThrough.Equal(november) {
		t.Errorf("hosts %+v", hosts)
	}
	at := hosts[0].BeatAt
	beat(storage.Heartbeat{Host: "a", Leaving: true})
	if hosts, err = o.Hosts(t.Context(), time.Minute); err != nil || len(hosts) != 0 {
		t.Errorf("after it left: %+v, %v", hosts, err)
	}
	res := beat(storage.Heartbeat{Host: "b"})
	if !res.LastBeat.Equal(at) || res.Incarnation.Claims != 2 {
		t.Errorf("%+v, want the last beat at %v", res, at)
	}
	samples, err := o.ClockSamples(t.Context())
	must(t, err)
	if len(samples) != 1 || samples[0].BootID != "boot" || samples[0].Boottime != 3*time.Second || !samples[0].StoreAt.Equal(at) {
		t.Errorf("samples %+v", samples)
	}
	o.exec("UPDATE {schema}.fencepost_hosts SET beat_at = beat_at - interval '49 hours'")
	o.exec("UPDATE {schema}.fencepost_clock_samples SET store_at = store_at - interval '49 hours'")
	beat(storage.Heartbeat{Host: "b"})
	var left int
	o.query(&left, "SELECT (SELECT count(*) FROM {schema}.fencepost_hosts) * 10 + (SELECT count(*) FROM {schema}.fencepost_clock_samples)")
	if left != 10 {
		t.Errorf("hosts and samples left: %d, want 1 and 0", left)
	}
}

// A role that may not read the cluster's identity claims and beats all the same:
// the store's own id stands for it (Q17).
func TestBeatWithoutPrivilege(t *testing.T) {
	t.Parallel()
	o := newOutbox(t)
	role := "r_" + o.target.schema
	tx, err := o.pools[workPool].Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }() // with the role
	for _, text := range []string{
		"CREATE ROLE " + role,
		"REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
		"GRANT USAGE ON SCHEMA {schema} TO " + role,
		"GRANT SELECT ON {schema}.fencepost_store TO " + role,
		"SET LOCAL ROLE " + role,
	} {
		_, err := tx.Exec(t.Context(), withSchema(text, o.target.schema))
		must(t, err)
	}
	var system, id string
	var timeline int64
	must(t, tx.QueryRow(t.Context(), withSchema("SELECT c.system, c.timeline, k.id FROM {schema}.fencepost_cluster() AS c, {schema}.fencepost_store AS k", o.target.schema)).
		Scan(&system, &timeline, &id))
	if system != id || timeline != 0 {
		t.Errorf("system %s, timeline %d, want %s and 0", system, timeline, id)
	}
}

// The counter of claims never gives one value twice, whoever claims (Q17).
func TestClaimsCounter(t *testing.T) {
	t.Parallel()
	o := seeded(t, 200, noSerial)
	hosts := []*outbox{o, o.host()}
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for _, h := range hosts {
		for range 2 {
			wg.Go(func() {
				last := int64(0)
				for {
					cl, err := h.Claim(t.Context(), storage.ClaimRequest{Owner: "w", Routes: []int64{o.route}, Limit: 3, Lease: time.Minute})
					if err != nil {
						t.Error(err)
						return
					}
					if len(cl.Items) == 0 {
						return
					}
					n := cl.Incarnation.Claims
					mu.Lock()
					if seen[n] || n <= last {
						t.Errorf("counter %d after %d, seen before: %v", n, last, seen[n])
					}
					seen[n] = true
					mu.Unlock()
					last = n
				}
			})
		}
	}
	wg.Wait()
}

// A role has one owner at a time, by the store's clock; the fence rises with
// every change of owner and with no other (Q12).
func TestHold(t *testing.T) {
	t.Parallel()
	o := newOutbox(t)
	hosts := []*outbox{o, o.host()}
	hold := func(h *outbox, owner string, ttl time.Duration) storage.Holding {
		t.Helper()
		got, err := h.Hold(t.Context(), "reporter", owner, ttl)
		must(t, err)
		return got
	}
	var held atomic.Int64
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			got, err := hosts[n%2].Hold(t.Context(), "pruner", fmt.Sprint("h", n), time.Minute)
			if err != nil || got.Owner == "" {
				t.Errorf("%+v, %v", got, err)
			}
			if got.Held {
				held.Add(1)
			}
		})
	}
	wg.Wait()
	if held.Load() != 1 {
		t.Errorf("%d hold one role", held.Load())
	}
	if got := hold(hosts[0], "a", time.Minute); !got.Held || got.Fence != 1 {
		t.Errorf("%+v", got)
	}
	if got := hold(hosts[1], "b", time.Minute); got.Held || got.Owner != "a" || got.Fence != 1 || got.Until.IsZero() {
		t.Errorf("while a has it: %+v", got)
	}
	if got := hold(hosts[1], "b", 0); got.Held || got.Owner != "a" {
		t.Errorf("b gives up what it does not have: %+v", got)
	}
	if got := hold(hosts[0], "a", time.Minute); !got.Held || got.Fence != 1 {
		t.Errorf("renewed: %+v", got)
	}
	o.exec("UPDATE {schema}.fencepost_roles SET held_until = clock_timestamp() - interval '1 second' WHERE role = 'reporter'")
	if got := hold(hosts[1], "b", time.Minute); !got.Held || got.Fence != 2 {
		t.Errorf("after it ended: %+v", got)
	}
	if got := hold(hosts[0], "a", time.Minute); got.Held || got.Owner != "b" {
		t.Errorf("the old owner: %+v", got)
	}
	if got := hold(hosts[1], "b", 0); got.Held || got.Owner != "" {
		t.Errorf("given up: %+v", got)
	}
	if got := hold(hosts[0], "a", time.Minute); !got.Held || got.Fence < 3 {
		t.Errorf("after it was given up: %+v", got)
	}
}
