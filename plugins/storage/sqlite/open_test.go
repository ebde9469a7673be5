package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func TestMain(m *testing.M) {
	if run := childRole(); run != nil {
		os.Exit(run())
	}
	goleak.VerifyTestMain(m)
}

// wantError checks tag and code, and that the sentence holds what a reader
// needs.
func wantError(t *testing.T, err error, tag sdk.Tag, code string, words ...string) *sdk.Error {
	t.Helper()
	var e *sdk.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v carries no tag", err)
	}
	if e.Tag != tag || e.Code != code {
		t.Errorf("tag %q code %q, want %q %q: %v", e.Tag, e.Code, tag, code, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	return e
}

// A path at which no store can be is an error that names field, rule and hint;
// nothing is written beside it.
func TestOpenRefusesPath(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path func(dir string) string
		code string
		word string
	}{
		"empty":          {func(string) string { return "" }, "", "path of a file"},
		"memory":         {func(string) string { return ":memory:" }, "", "not :memory:"},
		"uri":            {func(string) string { return "file:x.db?mode=ro" }, "", "not a URI"},
		"nul":            {func(dir string) string { return dir + "/a\x00b" }, "", "NUL"},
		"directory":      {func(dir string) string { return dir }, "", "not a directory"},
		"slash":          {func(dir string) string { return dir + "/new/" }, "", "not a directory"},
		"missing parent": {func(dir string) string { return filepath.Join(dir, "no", "f.db") }, "", "folder that exists"},
		"file as parent": {func(dir string) string { return filepath.Join(dir, "text", "f.db") }, "", ""},
		"not a database": {func(dir string) string { return filepath.Join(dir, "text") }, "corrupt", "SQLite database"},
		"device":         {func(string) string { return os.DevNull }, "", "regular file"},
		"dangling link":  {func(dir string) string { return filepath.Join(dir, "dangling") }, "", "dangling"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			text := []byte(strings.Repeat("no database ", 200))
			if err := os.WriteFile(filepath.Join(dir, "text"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(dir, "gone", "away"), filepath.Join(dir, "dangling")); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), Config{Path: test.path(dir), Migrate: true})
			e := wantError(t, err, sdk.TagInvalid, test.code, test.word)
			if e.Field != "storage.dsn" || e.Rule == "" {
				t.Errorf("field %q, rule %q", e.Field, e.Rule)
			}
			got, err := os.ReadFile(filepath.Join(dir, "text"))
			if err != nil || string(got) != string(text) {
				t.Errorf("the file was changed: %v", err)
			}
			for _, left := range []string{"text-wal", "text-shm", "no", "new"} {
				if exists(filepath.Join(dir, left)) {
					t.Errorf("%s was left", left)
				}
			}
		})
	}
}

// S11: the second to open a store waits, and is then refused with a sentence
// that names the file; once the first is gone it gets in.
func TestSecondOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "fencepost.db")
	first, err := Open(t.Context(), Config{Path: path, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "alias.db") // another name is the same store
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		_, err = Open(t.Context(), Config{Path: p, LockWait: 50 * time.Millisecond})
		wantError(t, err, sdk.TagUnavailable, "store_locked", path, "another process")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = Open(ctx, Config{Path: path, LockWait: time.Hour})
	wantError(t, err, sdk.TagUnavailable, "timeout")

	type opened struct {
		a   *Adapter
		err error
	}
	waiting := make(chan opened)
	go func() {
		a, err := Open(context.WithoutCancel(t.Context()), Config{Path: path, LockWait: time.Minute})
		waiting <- opened{a, err}
	}()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := <-waiting
	if second.err != nil {
		t.Fatal(second.err)
	}
	if err := second.a.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(second.a.Close(), second.a.Close()); err != nil {
		t.Error(err)
	}
	wantError(t, second.a.Ping(t.Context()), sdk.TagUnavailable, "closed")
	_, err = second.a.Routes(t.Context())
	wantError(t, err, sdk.TagUnavailable, "closed")
}

// Without a schema every call says what to run; Migrate brings it, once.
func TestMigrate(t *testing.T) {
	t.Parallel()
	a, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "f.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	wantError(t, a.Ping(t.Context()), sdk.TagUnavailable, "schema_missing", "fencepost migrate up")
	_, err = a.LoadItem(t.Context(), 1)
	wantError(t, err, sdk.TagUnavailable, "schema_missing", "fencepost migrate up")
	before, err := a.MigrationStatus(t.Context())
	if err != nil || len(before) == 0 || before[0].Applied() || before[0].Name != "initial" {
		t.Fatalf("status %+v, %v", before, err)
	}
	for i, want := range []int{len(before), 0} {
		done, err := a.Migrate(t.Context())
		if err != nil || len(done) != want {
			t.Fatalf("run %d applied %+v, %v", i, done, err)
		}
	}
	after, err := a.MigrationStatus(t.Context())
	if err != nil || len(after) != len(before) || !after[0].Applied() || after[0].Checksum != before[0].Checksum {
		t.Fatalf("status %+v, %v", after, err)
	}
	if err := a.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// S10: whoever runs a migration that SQLite refuses learns which one it was, where
// it stands, and why; and that running it again would not help.
func TestFailedMigration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.db")
	a, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	sqlExec(t, path, "CREATE TABLE fencepost_events (id integer)")
	_, err = Open(t.Context(), Config{Path: path, Migrate: true})
	wantError(t, err, sdk.TagInvalid, "schema_failed", "migration 1 (sqlite/0001_initial.sql)", "table fencepost_events already exists")
	sqlExec(t, path, "DROP TABLE fencepost_events")
	if a, err = Open(t.Context(), Config{Path: path, Migrate: true}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// S10: a store that another version migrated is refused and left as it is.
func TestForeignSchema(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sql  string
		tag  sdk.Tag
		code string
	}{
		"newer":   {"INSERT INTO fencepost_migrations VALUES (999, 'later', 'x', 1)", sdk.TagUnsupported, "schema_newer"},
		"changed": {"UPDATE fencepost_migrations SET checksum = 'x'", sdk.TagInvalid, "schema_changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "f.db")
			a, err := Open(t.Context(), Config{Path: path, Migrate: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			sqlExec(t, path, test.sql)
			_, err = Open(t.Context(), Config{Path: path, Migrate: true})
			wantError(t, err, test.tag, test.code)
			if !exists(path) {
				t.Fatal("the store was removed")
			}
			a, err = Open(t.Context(), Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			// A call is not at fault: what it brings is good in the right store.
			wantError(t, a.Ping(t.Context()), sdk.TagUnavailable, test.code)
			_, err = a.Migrate(t.Context())
			wantError(t, err, test.tag, test.code)
			list, err := a.MigrationStatus(t.Context())
			wantError(t, err, test.tag, test.code)
			if len(list) == 0 {
				t.Error("no list beside the refusal")
			}
		})
	}
}

// sqlExec runs a statement on a connection of its own, as a person with a shell
// would.
func sqlExec(t *testing.T, path, sql string) {
	t.Helper()
	if err := trySQL(path, sql); err != nil {
		t.Fatal(err)
	}
}

func trySQL(path, sql string) error {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	return errors.Join(sqlitex.ExecuteScript(c, sql, nil), c.Close())
}

// Every statement prepares on a migrated schema, and every file is used.
func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	w := <-a.writer
	defer func() { a.writer <- w }()
	used := map[string]bool{}
	for q := range numQueries {
		used[queryFiles[q]+".sql"] = true
		if _, err := w.stmt(q); err != nil {
			t.Errorf("%s: %v", queryFiles[q], err)
		}
	}
	files, err := sqlFS.ReadDir("sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !used[f.Name()] {
			t.Errorf("sql/%s is not used", f.Name())
		}
	}
	if len(used) != int(numQueries) {
		t.Errorf("%d files for %d statements", len(used), numQueries)
	}
}

// The connection is durable and enforces what the schema says.
func TestPragmas(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	w := <-a.writer
	defer func() { a.writer <- w }()
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "recursive_triggers": "1",
	} {
		got, err := w.pragma("PRAGMA " + pragma)
		if err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", pragma, got, err, want)
		}
	}
}

// O2, P6, A-T12: history cannot be changed, by this adapter or by a person with a
// shell; a customer that was missing may be filled in once (Q6).
func TestImmutable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.db")
	a := openAt(t, path, newClock())
	route, rev := addRoute(t, a)
	e := event("acme", "e1", "1")
	it := item(e, route, "m1")
	it.Customer = ""
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e, it), cloudEvent("acme", "c1", "h")}, RoutesRevision: rev})
	claim(t, a, route)
	move(t, a, storage.Transition{
		ItemID: 1, Expect: storage.Expect{State: storage.Pending},
		Set: storage.Change{State: storage.Pending}, Attempt: &storage.Attempt{},
	})
	for _, sql := range []string{
		"UPDATE fencepost_events SET quantity = '2'",
		"DELETE FROM fencepost_events",
		"UPDATE fencepost_cloudevents SET features = '[]'",
		"DELETE FROM fencepost_cloudevents",
		"UPDATE fencepost_mappings SET content = '{}'",
		"DELETE FROM fencepost_mappings",
		"UPDATE fencepost_attempts SET outcome = 'x'",
		"DELETE FROM fencepost_attempts",
		"UPDATE fencepost_outbox_items SET payload = '{}'",
		"UPDATE fencepost_outbox_items SET customer = 'c', payload = '{}'",
		"UPDATE fencepost_outbox_items SET customer = 'c', tenant_key = 'other'",
		"DELETE FROM fencepost_outbox_items",
		"UPDATE fencepost_routes SET mapping_version = 'm2'",
		"UPDATE fencepost_routes SET retired_at = 1, feature = 'x'",
		"DELETE FROM fencepost_routes",
		"UPDATE fencepost_outbox_state SET lease_token = 0",
		"UPDATE fencepost_outbox_state SET first_attempt_at = 1",
	} {
		if err := trySQL(path, sql); err == nil {
			t.Errorf("%s: was done", sql)
		}
	}
	sqlExec(t, path, "UPDATE fencepost_outbox_items SET customer = 'cus_9'")
	if err := trySQL(path, "UPDATE fencepost_outbox_items SET customer = 'cus_8'"); err == nil {
		t.Error("a customer was replaced")
	}
	w := <-a.writer
	defer func() { a.writer <- w }()
	if err := sqlitex.ExecuteTransient(w.Conn, `INSERT OR REPLACE INTO fencepost_events SELECT * FROM fencepost_events`, nil); err == nil {
		t.Error("REPLACE went past the triggers")
	}
}

// O1: no part of an identity may be NULL.
func TestIdentityNotNull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.db")
	a := openAt(t, path, newClock())
	addRoute(t, a)
	columns := []string{"tenant_key", "subject_kind", "subject_ref", "exporter", "destination_account", "mode", "mapping_version"}
	for i := range columns {
		values := []string{"'t'", "'event'", "'r'", "'x'", "'a'", "'test'", "'m'"}
		values[i] = "NULL"
		err := trySQL(path, "INSERT INTO fencepost_outbox_items ("+strings.Join(columns, ", ")+
			", digest, route, feature, created_at, usage_at) VALUES ("+strings.Join(values, ", ")+", zeroblob(32), 1, 'f', 1, 1)")
		if err == nil || !strings.Contains(err.Error(), "NOT NULL") {
			t.Errorf("%s may be NULL: %v", columns[i], err)
		}
	}
}
