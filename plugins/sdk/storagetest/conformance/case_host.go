package conformance

import (
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func hostCases() []Case {
	needs := exporting()
	return []Case{
		define("host/beats-and-leaves", "Q12", needs, beatsAndLeaves),
		define("host/samples-of-clocks", "Q16", needs, clockSamples),
		define("host/roles", "R9", needs, rolesOf),
		define("race/one-holder-of-a-role", "R9 B47", needs, roleRace),
	}
}

func (r *run) beat(b storage.Heartbeat) storage.HeartbeatResult {
	res, err := r.hosts().Beat(r.ctx, b)
	r.must("beat", err)
	return res
}

// hostsOf returns the hosts of this case.
func (r *run) hostsOf(age time.Duration) []storage.HostRow {
	all, err := r.hosts().Hosts(r.ctx, age)
	r.must("hosts", err)
	mine := []storage.HostRow{}
	for _, h := range all {
		if len(h.Host) >= len(r.prefix) && h.Host[:len(r.prefix)] == r.prefix {
			h.FlushedThrough, h.Noticed = h.FlushedThrough.UTC(), h.Noticed.UTC()
			mine = append(mine, h)
		}
	}
	return mine
}

func beatsAndLeaves(r *run) {
	a, b := r.prefix+"-a", r.prefix+"-b"
	first := r.beat(storage.Heartbeat{Host: a, Version: "1.2", FlushedThrough: period, Claims: 7, Noticed: period.Add(time.Second)})
	second := r.beat(storage.Heartbeat{Host: b, Version: "1.3"})
	if first.Now.IsZero() || second.LastBeat.Before(first.Now) || first.LastBeat.After(second.LastBeat) {
		r.errorf("beats: %s, then %s", text(first), text(second))
	}
	all := r.hostsOf(time.Hour)
	if len(all) != 2 {
		r.fatalf("hosts: %s, want 2", text(all))
	}
	started := all[0].StartedAt
	r.same("the first", all[0], storage.HostRow{
		Host: a, Version: "1.2", StartedAt: started, BeatAt: all[0].BeatAt, FlushedThrough: period, Claims: 7, Noticed: period.Add(time.Second),
	})
	r.same("noticed by one that is not behind", all[1].Noticed.IsZero(), true)
	r.same("flushed through of one that counts nothing", all[1].FlushedThrough.IsZero(), true)
	r.beat(storage.Heartbeat{Host: a, Version: "1.4", FlushedThrough: period.Add(time.Hour), Claims: 8})
	again := r.hostsOf(time.Hour)[0]
	r.same("beat again", []any{again.Version, again.StartedAt, again.FlushedThrough, again.Claims, again.Noticed.IsZero()},
		[]any{"1.4", started, period.Add(time.Hour), 8, true})
	last := r.beat(storage.Heartbeat{Host: a, Leaving: true})
	if last.Now.IsZero() || last.LastBeat.Before(again.BeatAt) || last.Incarnation.Store != first.Incarnation.Store {
		r.errorf("the last beat: %s", text(last))
	}
	if left := r.hostsOf(time.Hour); len(left) != 1 || left[0].Host != b {
		r.errorf("after one left: %s", text(left))
	}
	r.beat(storage.Heartbeat{Host: b, Leaving: true})
	r.same("after both left", len(r.hostsOf(time.Hour)), 0)
	if res := r.beat(storage.Heartbeat{Host: r.prefix + "-never", Leaving: true}); res.LastBeat.Before(again.BeatAt) {
		r.errorf("the last beat of hosts that left: %s, want %s or later", res.LastBeat, again.BeatAt)
	}
	r.same("one that never was", len(r.hostsOf(time.Hour)), 0)
	r.beat(storage.Heartbeat{Host: a})
	r.until("a silent host is not among those of late", func() bool { return len(r.hostsOf(time.Millisecond)) == 0 })
	r.beat(storage.Heartbeat{Host: a, Leaving: true})
}

func clockSamples(r *run) {
	host := r.prefix + "-a"
	r.beat(storage.Heartbeat{Host: host, BootID: "boot-1", Boottime: 1500 * time.Millisecond})
	r.beat(storage.Heartbeat{Host: host, Boottime: 2 * time.Second})
	second := r.beat(storage.Heartbeat{Host: host, BootID: "boot-2", Boottime: 7 * time.Nanosecond})
	r.beat(storage.Heartbeat{Host: host, Leaving: true})
	all, err := r.hosts().ClockSamples(r.ctx)
	r.must("samples", err)
	var mine []storage.ClockSample
	for _, s := range all {
		if s.Host == host {
			mine = append(mine, s)
		}
	}
	if len(mine) != 2 {
		r.fatalf("samples: %s, want the two with a boot id", text(mine))
	}
	r.same("in order", []any{mine[0].BootID, mine[1].BootID}, []any{"boot-1", "boot-2"})
	r.same("boottime", mine[0].Boottime, 1500*time.Millisecond)
	r.same("the store's time", mine[1].StoreAt.UTC(), second.Now.UTC())
}

func (r *run) hold(role, owner string, ttl time.Duration) storage.Holding {
	h, err := r.hosts().Hold(r.ctx, role, owner, ttl)
	r.must("hold", err)
	return h
}

func rolesOf(r *run) {
	role := r.prefix + "-reporter"
	first := r.hold(role, "a", time.Hour)
	r.same("free", []any{first.Held, first.Owner}, []any{true, "a"})
	other := r.hold(role, "b", time.Hour)
	r.same("taken", []any{other.Held, other.Owner, other.Fence}, []any{false, "a", first.Fence})
	again := r.hold(role, "a", time.Hour)
	r.same("renewed", []any{again.Held, again.Owner, again.Fence}, []any{true, "a", first.Fence})
	if again.Until.Before(first.Until) || first.Until.IsZero() {
		r.errorf("until %s, renewed until %s", first.Until, again.Until)
	}
	r.same("given up by another", r.hold(role, "b", 0).Held, false)
	r.same("still taken", r.hold(role, "b", time.Hour).Held, false)
	r.same("given up", r.hold(role, "a", 0).Held, false)
	next := r.hold(role, "b", time.Millisecond)
	if !next.Held || next.Owner != "b" || next.Fence <= first.Fence {
		r.errorf("the next one: %s, want a fence above %d", text(next), first.Fence)
	}
	var last storage.Holding
	r.until("a dead holder loses it", func() bool {
		last = r.hold(role, "c", time.Hour)
		return last.Held
	})
	if last.Fence <= next.Fence {
		r.errorf("fence %d after %d", last.Fence, next.Fence)
	}
	r.same("the dead one", r.hold(role, "b", time.Hour).Held, false)
}

func roleRace(r *run) {
	for i := range r.opts.Rounds {
		role := r.prefix + "-" + decimalInt(i)
		var held atomic.Int64
		r.together(6, func(n int) {
			h, err := r.hosts().Hold(r.ctx, role, "host-"+decimalInt(n), time.Hour)
			if err != nil {
				r.errorf("hold: %v", err)
				return
			}
			if h.Held {
				held.Add(1)
			}
		})
		r.same("holders", held.Load(), int64(1))
	}
}
