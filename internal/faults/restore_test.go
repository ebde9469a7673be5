//go:build faults && linux

package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/fencepost/fencepost/internal/pgtest"
)

// down ends what runs, without a goodbye.
func (r *rig) down() {
	r.t.Helper()
	for _, s := range []*server{r.server, r.second} {
		if s != nil && !s.hasEnded() {
			s.kill()
		}
	}
}

// everywhere asks each host for a page until all of them answer as wanted.
func (r *rig) everywhere(what, path string, so func(text string) bool) {
	r.t.Helper()
	asked := r.server
	defer func() { r.server = asked }()
	for _, s := range []*server{asked, r.second} {
		if s == nil {
			continue
		}
		r.server = s
		eventually(r.t, what, func() bool {
			var text string
			return r.call(http.MethodGet, path, "", nil, &text) == nil && so(text)
		})
	}
}

// beforeTheLoss delivers ten events and records ten more, which nobody has sent
// yet when the copy is made that the store goes back to.
func (r *rig) beforeTheLoss() {
	r.t.Helper()
	r.subscribe()
	r.both()
	r.record(events("settled", 10))
	r.drain()
	r.down()
	r.load(events("unsent", 10))
}

// afterTheCopy sends those, and five that the copy does not know.
func (r *rig) afterTheCopy() []event {
	r.t.Helper()
	r.both()
	r.drain()
	lost := events("lost", 5)
	r.record(lost)
	r.drain()
	if n := r.double.Ledger().Charges; n != 25 {
		r.t.Fatalf("%d charges before the loss, want 25", n)
	}
	// A host that was not told of the other's last claims would deliver on if it
	// came first after the loss: docs/operate-outbox.md says how to begin then.
	eventually(r.t, "each host remembers every claim", func() bool {
		known := map[int64]bool{}
		files, _ := filepath.Glob(filepath.Join(r.dir, "state*", "store-*.json"))
		for _, f := range files {
			var kept struct{ Memory struct{ Claims int64 } }
			if b, err := os.ReadFile(f); err != nil || json.Unmarshal(b, &kept) != nil {
				return false
			}
			known[kept.Memory.Claims] = true
		}
		return len(files) == r.hosts() && len(known) == 1
	})
	return lost
}

// afterTheLoss: no host sends anything, and all of them record. An operator says
// that the store went back; what may have been sent waits for evidence, which is
// given by a plan, and delivery goes on. The client that repeats what was lost
// is charged for it once: the provider remembers the request. (F13, Q17).
func (r *rig) afterTheLoss(lost []event, waitQuiet func()) {
	r.t.Helper()
	for _, e := range lost {
		r.mu.Lock()
		delete(r.acked, eventKey{tenant, e.id}) // asynchronous replication and backups lose it
		r.mu.Unlock()
	}
	r.everywhere("a host says that it stopped", "/readyz", func(text string) bool { return strings.Contains(text, "restore_pending") })
	r.record(events("during", 3))
	holds(r.t, "nothing is sent", 2*time.Second, func() bool { return r.double.Ledger().Requests == 25 })
	if _, diag, err := r.run("recover", "restore", "--reason", "the store went back", "--actor", "ada", "--yes", "--server", r.server.base); err != nil {
		r.t.Fatalf("recover restore: %v: %s", err, diag)
	}
	r.everywhere("a host goes on", "/readyz", func(text string) bool { return !strings.Contains(text, "restore_pending") })
	r.record(lost) // same identifiers, and the provider knows them
	r.drain()
	if st := r.stats(); st.States["uncertain"] != 10 || st.States["accepted"] != 18 {
		r.t.Errorf("states %v, want 10 uncertain and 18 accepted", st.States)
	}
	// A request of the lost time may be on its way (R3).
	if early := r.applyPlan(10); early != 10 {
		r.t.Errorf("%d of 10 were too early to settle at once", early)
	}
	waitQuiet()
	if early := r.applyPlan(10); early != 0 {
		r.t.Errorf("%d are too early after the quiet time", early)
	}
	b := r.audit()
	if n := b.states(); n["accepted"] != 28 || n["uncertain"] != 0 {
		r.t.Errorf("states %v, want 28 accepted", n)
	}
	if l := r.double.Ledger(); l.Charges != 28 || l.DoubleCharges != 0 {
		r.t.Errorf("%d charges, %d double", l.Charges, l.DoubleCharges)
	}
}

// applyPlan settles the items of which an attempt is unknown as charged, as an
// operator does who has looked at the provider's dashboard. It returns for how many
// it is too early; they stay uncertain.
func (r *rig) applyPlan(want int) (early int) {
	r.t.Helper()
	stdout, diag, err := r.run("recover", "plan", "--json", "--server", r.server.base)
	if err != nil {
		r.t.Fatalf("recover plan: %v: %s", err, diag)
	}
	var plan map[string]any
	if err := json.Unmarshal([]byte(stdout), &plan); err != nil {
		r.t.Fatal(err)
	}
	open := map[int64]bool{}
	for _, it := range r.read().items {
		open[it.id] = it.state == "uncertain" && it.code == "restored"
	}
	items, _ := plan["items"].([]any)
	filled := 0
	for _, i := range items {
		it, _ := i.(map[string]any)
		id, _ := it["id"].(float64)
		if !open[int64(id)] {
			continue
		}
		it["state"], it["evidence"] = "accepted", map[string]string{"kind": "asserted", "detail": "the dashboard shows it"}
		filled++
	}
	plan["actor"], plan["reason"] = "ada", "looked at the dashboard"
	body, err := json.Marshal(plan)
	if err != nil {
		r.t.Fatal(err)
	}
	file := filepath.Join(r.dir, "plan.yaml")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		r.t.Fatal(err)
	}
	out, diag, err := r.run("recover", "apply", file, "--server", r.server.base)
	early = strings.Count(out, "too_early")
	if (err != nil && early == 0) || filled != want {
		r.t.Fatalf("recover apply of %d items, want %d: %v: %s%s", filled, want, err, out, diag)
	}
	for _, it := range r.read().items {
		if open[it.id] && it.state == "accepted" {
			r.resolved[it.id] = true
		}
	}
	return early
}

// F13, Q17: the store is restored from a backup under two hosts.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, defaults())
		path := filepath.Join(r.dir, "fencepost.db")
		copied := func(from, to string) {
			t.Helper()
			for _, end := range []string{"", "-wal", "-shm"} {
				_ = os.Remove(to + end)
			}
			b, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		r.beforeTheLoss()
		copied(path, path+".backup")
		lost := r.afterTheCopy()
		r.down()
		copied(path+".backup", path)
		r.both()
		r.afterTheLoss(lost, r.quietTimePasses)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, defaults())
		r := b.apart()
		dump := filepath.Join(r.dir, "dump.sql")
		r.beforeTheLoss()
		b.client("pg_dump", "-n", b.schema, "-f", dump, pgtest.Plain(b.dsn))
		lost := r.afterTheCopy()
		r.down()
		b.sql(b.session(), "DROP SCHEMA "+b.schema+" CASCADE")
		b.client("psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", dump, pgtest.Plain(b.dsn))
		r.both()
		r.afterTheLoss(lost, func() { b.quietTimePasses(b.session()) })
	})
}

// client runs a program of PostgreSQL's.
func (b *bed) client(name string, args ...string) {
	b.t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if dir := os.Getenv(pgtest.BinEnv); dir != "" {
		found = []string{filepath.Join(dir, name)}
	}
	if len(found) == 0 {
		b.t.Skipf("no %s below /usr/lib/postgresql", name)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(b.t.Context(), slices.Max(found), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		b.t.Fatalf("%s: %v\n%s", name, err, out.String())
	}
}

// F13: a standby that has everything takes over under two hosts. Delivery waits
// until each of them has had the time to compare, and goes on by itself; nothing
// acknowledged is lost and nothing is charged twice.
func TestFailoverWithoutLoss(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewCluster(t, pgtest.ClusterConfig{})
	b := newOwn(t, defaults(), primary)
	r := b.apart()
	r.subscribe()
	standby := pgtest.NewCluster(t, pgtest.ClusterConfig{From: primary})
	admin := b.session()
	b.sql(admin, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	b.sql(admin, "SELECT pg_reload_conf()")
	r.pair("")
	r.record(events("before", 20))
	r.drain()
	load := b.stream(2)
	load.more(10)
	b.failOver(primary, standby)
	load.more(10)
	load.stop()
	if l := r.double.Ledger(); l.DoubleCharges != 0 {
		t.Errorf("%d double charges", l.DoubleCharges)
	}
}

// F13, D10, Q17: a standby takes over that is behind. What was acknowledged since
// is lost, and charged: delivery stops until an operator has said what that means.
func TestFailoverWithLoss(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewCluster(t, pgtest.ClusterConfig{})
	b := newOwn(t, defaults(), primary)
	r := b.apart()
	r.beforeTheLoss()
	standby := pgtest.NewCluster(t, pgtest.ClusterConfig{From: primary})
	behind := b.at(standby)
	b.sql(behind, "ALTER SYSTEM SET primary_conninfo = ''")
	b.sql(behind, "SELECT pg_reload_conf()")
	lost := r.afterTheCopy()
	b.failOver(primary, standby)
	r.afterTheLoss(lost, func() { b.quietTimePasses(b.at(standby)) })
}

// quietTimePasses takes two hours from the times of the last claims.
func (r *rig) quietTimePasses() {
	r.t.Helper()
	c, err := sqlite.OpenConn(filepath.Join(r.dir, "fencepost.db"), sqlite.OpenReadWrite)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	c.SetBusyTimeout(patience)
	text := fmt.Sprintf("UPDATE fencepost_outbox_state SET claimed_at = claimed_at - %d WHERE state = 'uncertain'", (2 * time.Hour).Microseconds())
	if err := sqlitex.ExecuteTransient(c, text, nil); err != nil {
		r.t.Fatal(err)
	}
}

// quietTimePasses is the same on PostgreSQL.
func (b *bed) quietTimePasses(c *pgx.Conn) {
	b.t.Helper()
	b.sql(c, "UPDATE "+b.schema+".fencepost_outbox_state SET claimed_at = claimed_at - interval '2 hours' WHERE state = 'uncertain'")
}

// failOver ends the primary and promotes the standby behind the same address.
func (b *bed) failOver(primary, standby *pgtest.Cluster) {
	b.t.Helper()
	primary.Stop(syscall.SIGQUIT)
	b.sql(b.at(standby), "SELECT pg_promote()")
	b.dsn = standby.DSN() + "&fencepost_schema=" + b.schema
	b.proxy.Redirect(standby.Addr())
	b.proxy.Cut()
}
