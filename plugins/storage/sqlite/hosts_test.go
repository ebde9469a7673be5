package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func beatAt(t *testing.T, a *Adapter, b storage.Heartbeat) storage.HeartbeatResult {
	t.Helper()
	res, err := a.Beat(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Q16: what is older than two days goes, and the last beat outlives whoever gave
// it. A clock that steps back does not take it back.
func TestBeatForgets(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	start := c.t
	if res := beatAt(t, a, storage.Heartbeat{Host: "a", BootID: "1", Boottime: 1}); !res.LastBeat.IsZero() || !res.Now.Equal(start) {
		t.Errorf("the first beat: %+v", res)
	}
	c.advance(-time.Hour)
	if res := beatAt(t, a, storage.Heartbeat{Host: "b", BootID: "2", Boottime: 2}); !res.LastBeat.Equal(start) {
		t.Errorf("last beat %s, want %s", res.LastBeat, start)
	}
	if res := beatAt(t, a, storage.Heartbeat{Host: "c", Leaving: true}); !res.LastBeat.Equal(start) {
		t.Errorf("after a step back: last beat %s, want %s", res.LastBeat, start)
	}
	c.t = start.Add(48 * time.Hour)
	beatAt(t, a, storage.Heartbeat{Host: "d"})
	samples, err := a.ClockSamples(t.Context())
	if err != nil || len(samples) != 1 || samples[0].Host != "a" {
		t.Errorf("samples at 48 h: %+v, %v", samples, err)
	}
	hosts, err := a.Hosts(t.Context(), 1000*time.Hour)
	if err != nil || len(hosts) != 2 || hosts[0].Host != "a" || hosts[1].Host != "d" {
		t.Errorf("hosts at 48 h: %+v, %v", hosts, err)
	}
	if hosts, err := a.Hosts(t.Context(), 48*time.Hour-time.Microsecond); err != nil || len(hosts) != 1 {
		t.Errorf("hosts of less than 48 h: %+v, %v", hosts, err)
	}
}

// R9, A-T19: a role ends when its time is over, not a moment earlier.
func TestRoleEnds(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	hold := func(owner string) storage.Holding {
		h, err := a.Hold(t.Context(), "pruner", owner, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := hold("a")
	c.advance(30*time.Second - time.Microsecond)
	if h := hold("b"); h.Held || h.Owner != "a" || h.Fence != first.Fence {
		t.Errorf("a microsecond too early: %+v", h)
	}
	c.advance(time.Microsecond)
	if h := hold("b"); !h.Held || h.Fence != first.Fence+1 || !h.Until.Equal(c.t.Add(30*time.Second)) {
		t.Errorf("when it ended: %+v", h)
	}
	if h, err := a.Hold(t.Context(), "pruner", "a", 0); err != nil || h.Held || h.Owner != "b" {
		t.Errorf("given up by who does not hold it: %+v, %v", h, err)
	}
	if _, err := a.Hold(t.Context(), "pruner", "a", -1); err == nil {
		t.Error("a negative time was taken")
	}
}

// Q17: the store's id and its claims are in the file, and a copy of it has them.
func TestIncarnationIsInTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.db")
	a := openAt(t, path, newClock())
	route := seed(t, a, 2, nil)
	first := claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 1}).Incarnation
	if first.Claims != 1 || len(first.Store) != 32 || first.System != first.Store || first.Timeline != 0 {
		t.Errorf("incarnation %+v", first)
	}
	if none := claimWith(t, a, storage.ClaimRequest{Routes: []int64{route + 1}, Limit: 1}).Incarnation; none != first {
		t.Errorf("a claim of nothing made %+v of %+v", none, first)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := openAt(t, path, newClock())
	if in := beatAt(t, b, storage.Heartbeat{Host: "b", Leaving: true}).Incarnation; in != first {
		t.Errorf("after a restart %+v, want %+v", in, first)
	}
	other := open(t, newClock())
	if in := beatAt(t, other, storage.Heartbeat{Host: "b", Leaving: true}).Incarnation; in.Store == first.Store {
		t.Error("two stores have one id")
	}
}
