package sql

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Q28: text that ends the transaction, hidden by each database's own quoting, is
// refused and nothing of the call is stored.
func TestHiddenStatements(t *testing.T) {
	t.Parallel()
	hidden := map[kind][]string{
		kindPostgres: {
			"SELECT $$'$$; COMMIT; SELECT $$'$$", `SELECT E'\''; COMMIT; SELECT E'\''`, "SELECT $a$'$a$; COMMIT; COPY t FROM PROGRAM 'id'; SELECT $$'$$",
			"SELECT 1 /* /* */ ' */; COMMIT; SELECT '", "/* /* */ SELECT */ COMMIT", "-- x\rCOMMIT\n SELECT 1", "-- SELECT\rCOMMIT --\nSELECT 1",
		},
		kindSQLite: {
			"CREATE TABLE trigger (a); PRAGMA user_version = 666; END", "CREATE TABLE trigger (a); END; VACUUM INTO '/nowhere/x'; BEGIN; SELECT 1 END",
			"SELECT 1 AS [']; COMMIT; SELECT 2 AS [']", "SELECT $a('); COMMIT; SELECT $a(')", "SELECT 1 \x00; COMMIT",
			"CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END; COMMIT; END",
		},
		kindMySQL: {
			"# SELECT\nCOMMIT", `SELECT '\''; COMMIT; SELECT '\''`, "SELECT 1 INTO OUTFILE '/tmp/fencepost-x'", "SELECT 1 INTO DUMPFILE '/tmp/fencepost-x'",
			"SELECT load_file('/etc/passwd')", "SELECT `LOAD_FILE`('/etc/passwd')", "SELECT GET_LOCK('x', 1)", "CREATE TEMPORARY TABLE x (a INT)",
		},
	}
	eachDatabase(t, func(b *bench) {
		for _, text := range hidden[b.db.kind] {
			for _, rows := range []bool{false, true} {
				open := b.must(capability.Work{Statements: []capability.Statement{b.insert(2)}})
				_, err := b.do(capability.Work{Transaction: open.Transaction, Statements: []capability.Statement{{SQL: text, Rows: rows}}})
				if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Code != "statement_refused" {
					b.Errorf("%q: %v", text, err)
				}
				b.next()
				if n := b.count(); n != 0 {
					b.Fatalf("%q: %d rows", text, n)
				}
			}
		}
	})
}

// The server is a second judge: what the lexer let through would still be one
// statement to PostgreSQL and MySQL.
func TestServersRefuseSeveral(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(b *bench) {
		if b.db.kind == kindSQLite {
			return // which runs them all: the lexer is alone
		}
		for _, rows := range []bool{false, true} {
			tx, err := b.db.pool.BeginTx(b.ctx, nil)
			if err != nil {
				b.Fatal(err)
			}
			_, err = b.db.run(b.ctx, tx, []capability.Statement{{SQL: "SELECT 1; COMMIT", Rows: rows}})
			if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Code != syntax.code {
				b.Errorf("%v: %v", rows, err)
			}
			_ = tx.Rollback()
		}
	})
}

// One value, one row and many empty ones end in an error before they fill the
// host's memory.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	columns := strings.Repeat(", ''", 60)
	eachDatabase(t, func(b *bench) {
		large := map[kind][]string{
			kindPostgres: {"SELECT repeat('x', 100000000)", "SELECT ''" + columns + " FROM generate_series(1, 9000)"},
			kindSQLite:   {"SELECT zeroblob(100000000)", "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000) SELECT ''" + columns + " FROM n"},
			kindMySQL:    {"SELECT REPEAT('x', 9000000)", "SELECT ''" + columns + " FROM information_schema.columns a, information_schema.columns c LIMIT 9000"},
		}
		for _, text := range large[b.db.kind] {
			_, err := b.do(capability.Work{Statements: []capability.Statement{{SQL: text, Rows: true}}, End: capability.Rollback})
			if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Code != "result_too_large" {
				b.Errorf("%.40s: %v", text, err)
			}
		}
	})
}

// What a SELECT leaves in a session of PostgreSQL is gone when the connection is
// used again.
func TestSessionsAreReset(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(b *bench) {
		if b.db.kind != kindPostgres {
			return
		}
		b.db.pool.SetMaxOpenConns(1)
		left := "SELECT current_setting('lock_timeout'), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), current_setting('TimeZone')"
		for _, text := range []string{"SELECT pg_advisory_lock(424242)", "SELECT set_config('lock_timeout', '7s', false), set_config('timezone', 'Asia/Tokyo', false)"} {
			b.must(capability.Work{Statements: []capability.Statement{{SQL: text, Rows: true}}, End: capability.Commit})
			d := b.must(capability.Work{Statements: []capability.Statement{{SQL: left, Rows: true}}, End: capability.Rollback})
			if got := d.Results[0].Rows[0]; got[0] != "0" || got[1] != int64(0) || got[2] != "UTC" {
				b.Errorf("%s leaves %v", text, got)
			}
		}
	})
}

// FuzzScan: what the lexer takes for one statement leaves SQLite's
// transaction open, also with a COMMIT behind it: there it hides in quotes or a
// comment for both of them, or is refused.
func FuzzScan(f *testing.F) {
	for _, s := range []string{"SELECT 1", "SELECT $a(')", "SELECT [']", "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END", "SELECT 'a''b' /* x */ -- y", "CREATE TEMP TRIGGER x"} {
		f.Add(s)
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	f.Fuzz(func(t *testing.T, text string) {
		for _, candidate := range []string{text, text + "; COMMIT", text + "\n;COMMIT;" + text} {
			if refused(kindSQLite, candidate) != "" {
				continue
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, runErr := tx.ExecContext(t.Context(), candidate)
			if err := tx.Rollback(); err != nil {
				t.Fatalf("%q ended the transaction: %v (%v)", candidate, err, runErr)
			}
		}
	})
}
