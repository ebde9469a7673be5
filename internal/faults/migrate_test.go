//go:build faults && linux

package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// nextVar names a program of the next release, see nextRelease.
const nextVar = "FENCEPOST_FAULTS_NEXT"

// nextMigration is what it adds, in two steps.
const nextMigration = `ALTER TABLE {schema}.fencepost_events ADD COLUMN next_note text;
ALTER TABLE {schema}.fencepost_subscriptions ADD COLUMN next_note text;
`

// nextRelease builds the program with one more migration, which no file of this
// tree has.
func nextRelease(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "next.sql"), filepath.Join(dir, "overlay.json")
	place, err := filepath.Abs("../../migrations/postgres/0002_next.sql")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {place: file}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{file: []byte(nextMigration), overlay: text} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path, err := build(nextVar, filepath.Join(dir, "fencepost-next"), "-overlay", overlay)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// migrated says how many columns and migrations the schema has of the next release.
func (b *bed) migrated(c *pgx.Conn) (columns, migrations int) {
	b.t.Helper()
	err := c.QueryRow(b.t.Context(), `SELECT (SELECT count(*) FROM information_schema.columns WHERE table_schema = $1 AND column_name = 'next_note'),
		(SELECT count(*) FROM `+b.schema+`.fencepost_migrations)`, b.schema).Scan(&columns, &migrations)
	if err != nil {
		b.t.Fatal(err)
	}
	return columns, migrations
}

// refuses launches a program that must not serve, and returns what it said.
func (r *rig) refuses(program, why string) {
	r.t.Helper()
	was := r.program
	defer func() { r.program = was }()
	r.program = program
	s := r.launch("")
	if s.serving() {
		s.kill()
		r.t.Fatalf("a program served that should have said %s", why)
	}
	if said := tail(s.log); !strings.Contains(said, why) {
		r.t.Errorf("refused with %s, want %s", said, why)
	}
}

// F55: the next release has a migration. It is killed in the middle, and somebody
// applies half of it by hand; the old hosts go on either way, and the new program does
// not serve on half of it. Once it is applied, whole, the old hosts stop, those that
// run and those that are started, and the new ones deliver what they had in hand.
// Nothing is lost or charged twice on the way.
func TestHalfAppliedMigration(t *testing.T) {
	t.Parallel()
	next := nextRelease(t)
	b := newBed(t, shortLease())
	b.apart()
	b.subscribeCrowd()
	b.faults("after:500@every5; before:500@every7")
	b.both()
	n := 0
	more := func() {
		t.Helper()
		b.record(crowd(fmt.Sprint("e", n), 10))
		n += 10
	}
	more()
	admin := b.session()

	b.killedMigration(next)
	if columns, migrations := b.migrated(admin); columns != 0 || migrations != 1 {
		t.Fatalf("a migration that was killed left %d columns, %d migrations", columns, migrations)
	}
	more()

	b.sql(admin, "ALTER TABLE "+b.schema+".fencepost_events ADD COLUMN next_note text")
	half := b.migrateWith(next)
	out, err := half.CombinedOutput()
	if code := half.ProcessState.ExitCode(); err == nil || code != 10 { // incompatible: nothing that may be repeated
		t.Errorf("on top of half a migration: %d, %v", code, err)
	}
	for _, part := range []string{"migration 2 (postgres/0002_next.sql)", "42701", `column "next_note" of relation "fencepost_events" already exists`} {
		if !strings.Contains(string(out), part) {
			t.Errorf("on top of half a migration it does not say %q: %s", part, out)
		}
	}
	if columns, migrations := b.migrated(admin); columns != 1 || migrations != 1 {
		t.Errorf("it left %d columns, %d migrations", columns, migrations)
	}
	b.refuses(next, "42701") // the column is there; a server applies what is missing at its start
	more()
	b.sql(admin, "ALTER TABLE "+b.schema+".fencepost_events DROP COLUMN next_note")

	more() // some of it is still on its way
	if out, err := b.migrateWith(next).CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v: %s", err, out)
	}
	if columns, migrations := b.migrated(admin); columns != 2 || migrations != 2 {
		t.Errorf("%d columns, %d migrations", columns, migrations)
	}
	for _, old := range b.running() {
		b.server = old
		eventually(t, "an old host says that it cannot", func() bool { return b.status("/readyz") == http.StatusServiceUnavailable })
		if _, err := b.post(crowd("refused", 5)); err == nil || !strings.Contains(err.Error(), "schema_newer") {
			t.Errorf("an old host answered %v", err)
		}
		old.kill()
	}
	b.refuses(b.program, "newer")
	b.program = next
	b.server, b.second = nil, nil
	b.both()
	b.record(crowd("refused", 5))
	n += 5
	more()
	books := b.healed()
	b.fired()
	if got := books.accepted(b.rig); got != n {
		t.Errorf("%d items of %d events", got, n)
	}
}

// migrateWith is the command that applies migrations.
func (b *bed) migrateWith(program string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), program, "migrate", "up", "--config", b.config())
	cmd.Env = b.env()
	return cmd
}

// killedMigration kills it when its first step is done and the second one waits.
func (b *bed) killedMigration(program string) {
	b.t.Helper()
	holder, watcher := b.session(), b.session()
	b.sql(holder, "BEGIN")
	b.sql(holder, "LOCK TABLE "+b.schema+".fencepost_subscriptions IN ACCESS SHARE MODE")
	cmd := b.migrateWith(program)
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	waits := func(table, mode string, granted bool) bool {
		var found int
		err := watcher.QueryRow(b.t.Context(), "SELECT count(*) FROM pg_locks WHERE relation = $1::text::regclass AND mode = $2 AND granted = $3",
			b.schema+".fencepost_"+table, mode, granted).Scan(&found)
		return err == nil && found > 0
	}
	eventually(b.t, "the second step waits and the first one is done", func() bool {
		return waits("subscriptions", "AccessExclusiveLock", false) && waits("events", "AccessExclusiveLock", true)
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	b.sql(holder, "COMMIT")
	eventually(b.t, "the server has given it up", func() bool {
		return !waits("subscriptions", "AccessExclusiveLock", true) && !waits("events", "AccessExclusiveLock", true)
	})
}
