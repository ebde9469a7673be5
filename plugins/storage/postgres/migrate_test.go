package postgres

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// S10: whoever runs a migration that the server refuses learns which one it was,
// where it stands, and why; and that running it again would not help.
func TestFailedMigration(t *testing.T) {
	t.Parallel()
	dsn, schema := pgtest.Schema(t)
	a, err := Open(t.Context(), Config{DSN: dsn})
	must(t, err)
	t.Cleanup(func() { _ = a.Close() })
	execSQL(t, dsn, "CREATE TABLE "+schema+".fencepost_events (id int)")
	for name, run := range map[string]func() error{
		"migrate": func() error { _, err := a.Migrate(t.Context()); return err },
		"open":    func() error { _, err := Open(t.Context(), Config{DSN: dsn, Migrate: true}); return err },
	} {
		err := run()
		wantFailure(t, err, sdk.TagInvalid, "schema_failed")
		for _, part := range []string{"migration 1 (postgres/0001_initial.sql)", "42P07", `relation "fencepost_events" already exists`} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s does not say %q: %v", name, part, err)
			}
		}
	}
	execSQL(t, dsn, "DROP TABLE "+schema+".fencepost_events")
	if done, err := a.Migrate(t.Context()); err != nil || len(done) == 0 {
		t.Errorf("migrate once it can be applied: %v, %v", done, err)
	}
}

// Only what the server says of the file itself is final. A lock that somebody
// holds, a server that stops and a connection that breaks pass, and are repeated;
// their errors name the migration too. What a server says of values is not shown:
// they may be personal.
func TestWhatAMigrationMeets(t *testing.T) {
	t.Parallel()
	known, err := knownMigrations()
	must(t, err)
	for name, tc := range map[string]struct {
		err  error
		tag  sdk.Tag
		code string
		says string
	}{
		"column exists":  {&pgconn.PgError{Code: "42701", Message: "column exists"}, sdk.TagInvalid, "schema_failed", "column exists"},
		"no such table":  {&pgconn.PgError{Code: "42P01", Message: "no table"}, sdk.TagInvalid, "schema_failed", "no table"},
		"a row breaks":   {&pgconn.PgError{Code: "23514", Message: "violated by some row"}, sdk.TagInvalid, "schema_failed", "violated by some row"},
		"a bad value":    {&pgconn.PgError{Code: "22P02", Message: "secret value"}, sdk.TagInvalid, "schema_failed", "22P02"},
		"depended upon":  {&pgconn.PgError{Code: "2BP01", Message: "other objects"}, sdk.TagInvalid, "schema_failed", "other objects"},
		"not here":       {&pgconn.PgError{Code: "0A000", Message: "not supported"}, sdk.TagInvalid, "schema_failed", "not supported"},
		"no right":       {&pgconn.PgError{Code: "42501"}, sdk.TagUnavailable, "no_privilege", "42501"}, // invalid for who opens: configError
		"lock":           {&pgconn.PgError{Code: "55P03"}, sdk.TagUnavailable, "lock_timeout", "55P03"},
		"deadlock":       {&pgconn.PgError{Code: "40P01"}, sdk.TagUnavailable, "contention", "40P01"},
		"disk":           {&pgconn.PgError{Code: "53100"}, sdk.TagUnavailable, "disk_full", "53100"},
		"server stops":   {&pgconn.PgError{Code: "57P01"}, sdk.TagUnavailable, "shutting_down", "57P01"},
		"connection":     {io.ErrUnexpectedEOF, sdk.TagUnavailable, "connection", "unexpected EOF"},
		"something else": {&pgconn.PgError{Code: "XX000"}, sdk.TagUnavailable, "corrupt", "XX000"},
	} {
		err := migrationError(t.Context(), &known[0], tc.err)
		wantFailure(t, err, tc.tag, tc.code)
		text := err.Error()
		if !strings.Contains(text, "migration 1 (postgres/0001_initial.sql)") || !strings.Contains(text, tc.says) || strings.Contains(text, "secret") {
			t.Errorf("%s: %s", name, text)
		}
		if !errors.Is(err, tc.err) {
			t.Errorf("%s: the cause is out of reach", name)
		}
	}
}

func execSQL(t *testing.T, dsn, text string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), pgtest.Plain(dsn))
	must(t, err)
	defer func() { _ = c.Close(t.Context()) }()
	_, err = c.Exec(t.Context(), text)
	must(t, err)
}
