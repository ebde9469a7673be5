package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// claim is what a deliverer does to the store and asks this host.
func (f *fakeHosts) claim(p *presence) error {
	g := &gate{presence: p}
	g.trusted()
	f.mu.Lock()
	f.in.Claims++
	f.tokens[7]++
	claim := storage.Claim{Incarnation: f.in, Items: []storage.ClaimedItem{{ItemID: 7, LeaseToken: f.tokens[7]}}}
	f.mu.Unlock()
	return g.allow(nil, claim) //nolint:staticcheck // the context is not looked at
}

func (p *presence) wants(t *testing.T, reason string) {
	t.Helper()
	if err := p.beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := p.blocked(); got != reason {
		t.Errorf("%s: reason %q, want %q", p.owner, got, reason)
	}
}

// again is the same host, started again with what it remembers.
func (p *presence) again(t *testing.T) *presence {
	t.Helper()
	q := member(t, p.store.(*fakeHosts), p.owner)
	q.known.dir = p.known.dir
	return q
}

// Q17: a host that remembers more than there is stops, also after it was started
// again, and though others raise the counter; until a restore is settled for all
// that it remembers.
func TestRestoreIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		p := member(t, store, "a")
		p.wants(t, "")
		for range 10 {
			if err := store.claim(p); err != nil {
				t.Fatal(err)
			}
		}
		backup := store.in
		last := time.Now()
		p.wants(t, "")
		time.Sleep(time.Minute)
		for range 5 {
			if err := store.claim(p); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		store.set(func(f *fakeHosts) { f.in, f.last, f.rows = backup, last, map[string]storage.HostRow{} })
		noticed := time.Now()
		p.wants(t, ReasonRestorePending)
		since, at, ok := p.known.behind()
		if !ok || !since.Equal(last) || !at.Equal(noticed) {
			t.Errorf("since %s, noticed %s, %v", since, at, ok)
		}
		time.Sleep(time.Minute)
		p = p.again(t)
		p.wants(t, ReasonRestorePending)
		if err := store.claim(p); err == nil {
			t.Error("sends")
		}
		store.set(func(f *fakeHosts) { f.in.Claims = 100 }) // somebody else does
		p.wants(t, ReasonRestorePending)
		if since, _, _ := p.known.behind(); !since.Equal(last) {
			t.Errorf("since %s", since)
		}
		store.set(func(f *fakeHosts) { f.in.Claims, f.in.Restores, f.in.RestoredThrough = 12, 1, noticed })
		p.wants(t, ReasonRestorePending) // settled for less than was seen, with the folder of another host
		if _, hint := p.known.blocked(); !strings.Contains(hint, "recover restore is said with the state_dir of this host, "+p.known.dir) {
			t.Errorf("says %q", hint)
		}
		store.set(func(f *fakeHosts) { f.in.Claims = 200 + behindBy })
		p.wants(t, ReasonRestorePending)
		store.set(func(f *fakeHosts) { f.in.Restores = 2 })
		p.wants(t, "")
		if _, hint := p.known.blocked(); hint != "" {
			t.Errorf("says %q", hint)
		}
		if err := store.claim(p); err != nil {
			t.Error(err)
		}
		p.again(t).wants(t, "")
	})
}

// Q17: the store is restored twice, and each restore is noticed by another host. One
// that was settled only for the first, and a store that was adopted, leave the host
// stopped that noticed the second: what it sent in between is still pending.
func TestTwoRestores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		a, b := member(t, store, "a"), member(t, store, "b")
		a.wants(t, "")
		b.wants(t, "")
		for range 5 {
			if err := store.claim(b); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			if err := store.claim(a); err != nil {
				t.Fatal(err)
			}
		}
		back := func(claims int64) {
			store.set(func(f *fakeHosts) { f.in.Claims, f.rows = claims, map[string]storage.HostRow{} })
		}
		back(10) // more than b knows
		first := time.Now()
		a.wants(t, ReasonRestorePending)
		delete(store.rows, "a") // it is stopped
		time.Sleep(time.Minute)
		b.wants(t, "")
		for range 5 {
			if err := store.claim(b); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		back(12)
		second := time.Now()
		b.wants(t, ReasonRestorePending)
		if row := store.rows["b"]; !row.Noticed.Equal(second) {
			t.Errorf("the others read that it was noticed at %s, want %s at once", row.Noticed, second)
		}
		settle := func(through time.Time) {
			store.set(func(f *fakeHosts) {
				f.in.Claims, f.in.Restores, f.in.RestoredThrough = max(f.in.Claims, a.known.claims(), b.known.claims())+1, f.in.Restores+1, through
			})
		}
		settle(time.Time{}) // adopted
		b.wants(t, ReasonRestorePending)
		settle(first)
		b.wants(t, ReasonRestorePending)
		if _, hint := b.known.blocked(); !strings.Contains(hint, b.known.dir) {
			t.Errorf("says %q", hint)
		}
		settle(second)
		b.wants(t, "")
		a.wants(t, "")
	})
}

// Between two heartbeats the claim itself tells, and what it tells is kept though
// the counter then reaches what was remembered.
func TestRestoreIsNoticedByAClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		p := member(t, store, "a")
		p.wants(t, "")
		for range 10 {
			if err := store.claim(p); err != nil {
				t.Fatal(err)
			}
		}
		store.set(func(f *fakeHosts) { f.in.Claims = 9 })
		if err := store.claim(p); err == nil { // raises it to 10
			t.Error("sent a page of a store that went back")
		}
		p.wants(t, ReasonRestorePending)
		p.again(t).wants(t, ReasonRestorePending)
	})
}

// Every claim is on the disk before the page is sent: a host that is killed
// right then knows it.
func TestEveryClaimIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		p := member(t, store, "a")
		p.wants(t, "")
		for i := range int64(5) {
			if err := store.claim(p); err != nil {
				t.Fatal(err)
			}
			m, err := newMemoryFile(p.known.dir, "s1").load("s1")
			if err != nil || m == nil || m.Claims != i+1 {
				t.Fatalf("%+v, %v", m, err)
			}
		}
		// Where it cannot be kept nothing is sent.
		if err := os.RemoveAll(p.known.dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.known.dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := store.claim(p); err == nil {
			t.Error("sent what could not be remembered")
		}
	})
}

// Q17: a host without memory delivers from a store that is new, or that a host
// which lives knows; not on the word of a row that came with a backup.
func TestHostWithoutMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeHosts()
		a := member(t, store, "a")
		a.wants(t, "") // new
		if err := store.claim(a); err != nil {
			t.Fatal(err)
		}
		a.wants(t, "") // its row says so, and is all that a backup would have
		b := member(t, store, "b")
		b.wants(t, ReasonNoMemory)
		time.Sleep(beatEvery)
		b.wants(t, ReasonNoMemory)
		if err := store.claim(b); err == nil {
			t.Error("sends")
		}
		a.wants(t, "")
		b.wants(t, "")
		// One that knows of no more than there is, and one that knows nothing,
		// do not speak for it; one that knows of more speaks against it.
		c, d := member(t, store, "c"), member(t, store, "d")
		store.set(func(f *fakeHosts) { f.rows = map[string]storage.HostRow{} })
		c.wants(t, ReasonNoMemory)
		d.wants(t, ReasonNoMemory)
		time.Sleep(time.Second)
		c.wants(t, ReasonNoMemory)
		d.wants(t, ReasonNoMemory)
		store.set(func(f *fakeHosts) { f.in.Claims-- })
		a.wants(t, ReasonRestorePending)
		time.Sleep(time.Second)
		a.wants(t, ReasonRestorePending)
		d.wants(t, ReasonRestorePending)
	})
}

// Q17: after a promotion that lost nothing delivery goes on once every host had
// the time to say what it knows; a host that knows more stops them all.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]int64{"without loss": 0, "with loss": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFakeHosts()
				store.in.System, store.in.Timeline = "7001", 1
				a, b := member(t, store, "a"), member(t, store, "b")
				a.wants(t, "")
				b.wants(t, "")
				for _, p := range []*presence{a, b, a, b} {
					if err := store.claim(p); err != nil {
						t.Fatal(err)
					}
				}
				store.set(func(f *fakeHosts) {
					f.in.Timeline, f.in.Claims = 2, f.in.Claims-lost
					f.rows = map[string]storage.HostRow{}
				})
				// a knows of three claims and b of four.
				a.wants(t, ReasonFailoverPending)
				time.Sleep(beatEvery)
				want := ReasonFailoverPending
				if lost > 0 {
					want = ReasonRestorePending
				}
				b.wants(t, want)
				a.wants(t, want)
				for range 2 * hostTTL / beatEvery {
					time.Sleep(beatEvery)
					for _, p := range []*presence{a, b} {
						if err := p.beat(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				if want = ReasonRestorePending; lost == 0 {
					want = ""
				}
				a.wants(t, want)
				b.wants(t, want)
			})
		})
	}
}

// Q17: the standby that took over is behind, and what hosts claim before they
// have compared hides that from those that compare later, unless the one that
// noticed says so. No claim of a store that is another server is sent before a
// heartbeat has looked at it.
func TestFailoverHiddenByClaims(t *testing.T) {
	t.Parallel()
	for name, claims := range map[string]bool{"seen by a heartbeat": false, "seen by a claim": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFakeHosts()
				store.in.System, store.in.Timeline = "7001", 1
				a, b := member(t, store, "a"), member(t, store, "b")
				a.wants(t, "")
				b.wants(t, "")
				for _, p := range []*presence{a, b, a, b, a} {
					if err := store.claim(p); err != nil {
						t.Fatal(err)
					}
				}
				store.set(func(f *fakeHosts) {
					f.in.Timeline, f.in.Claims, f.rows = 2, 3, map[string]storage.HostRow{}
				})
				if claims && store.claim(a) == nil {
					t.Error("sends what it claimed of another server")
				}
				if err := a.beat(t.Context()); err != nil { // it knows of five
					t.Fatal(err)
				}
				if err := store.claim(b); err == nil {
					t.Error("sends what it claimed of another server")
				}
				store.set(func(f *fakeHosts) { f.in.Claims = 20 }) // others claim
				for range 2 * hostTTL / beatEvery {
					time.Sleep(beatEvery)
					for _, p := range []*presence{b, a} {
						if err := p.beat(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				a.wants(t, ReasonRestorePending)
				b.wants(t, ReasonRestorePending)
				store.set(func(f *fakeHosts) { f.in.Claims, f.in.Restores, f.in.RestoredThrough = a.known.claims(), 1, time.Now() }) // what recover restore does
				a.wants(t, "")
				b.wants(t, "")
			})
		})
	}
}

// A sequence may stand ahead of what was lost: of a server that was promoted the
// rows tell, which the claims themselves wrote.
func TestFailoverWithACounterThatRunsAhead(t *testing.T) {
	t.Parallel()
	for name, tokens := range map[string]int64{"all there": 5, "the last one lost": 4, "none there": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFakeHosts()
				store.in.System, store.in.Timeline = "7001", 1
				p := member(t, store, "a")
				p.wants(t, "")
				for range 5 {
					if err := store.claim(p); err != nil {
						t.Fatal(err)
					}
				}
				store.set(func(f *fakeHosts) {
					f.in.Timeline, f.in.Claims, f.tokens[7] = 2, 33, tokens
					if tokens == 0 {
						delete(f.tokens, 7)
					}
				})
				want := ReasonRestorePending
				if tokens == 5 {
					want = ReasonFailoverPending
				}
				p.wants(t, want)
				p.again(t).wants(t, want)
				time.Sleep(hostTTL)
				if tokens == 5 {
					want = ""
				}
				p.wants(t, want)
			})
		})
	}
}

// A file that is damaged is no memory, and is said to be damaged. Folder and file
// are for nobody else.
func TestMemoryFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "state")
	f := newMemoryFile(dir, "s1")
	if m, err := f.load("s1"); m != nil || err != nil {
		t.Errorf("%+v, %v", m, err)
	}
	want := remembered{Store: "s1", System: "7", Timeline: 2, Claims: 41, Restores: 1, Behind: true, Since: time.Unix(5, 0).UTC()}
	if _, err := f.save(want); err != nil {
		t.Fatal(err)
	}
	if m, err := f.load("s1"); err != nil || *m != want {
		t.Errorf("%+v, %v", m, err)
	}
	lower := want
	lower.Claims = 40 // of another host that shares the folder
	if got, err := f.save(lower); err != nil || got.Claims != 41 {
		t.Errorf("%+v, %v", got, err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, f.path: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty": "", "cut": string(raw[:len(raw)/2]), "another number": strings.Replace(string(raw), "41", "14", 1),
	} {
		if err := os.WriteFile(f.path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		i := newIncarnations(dir, slog.New(slog.NewTextHandler(&log, nil)))
		if err := i.see(sighting{in: storage.Incarnation{Store: "s1", Claims: 50}, now: time.Unix(9, 0)}); err != nil {
			t.Error(err)
		}
		if reason, _ := i.blocked(); reason != ReasonNoMemory || !strings.Contains(log.String(), "damaged") {
			t.Errorf("%s: reason %q, log %s", name, reason, log.String())
		}
	}
}
