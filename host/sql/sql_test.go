package sql

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/wire/sqlv1"
)

// databases are those that this machine has: SQLite always, the others where
// the test script started them.
func databases(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "x.db")}
	for name, env := range map[string]string{"postgres": "FENCEPOST_TEST_POSTGRES", "mysql": "FENCEPOST_TEST_MYSQL"} {
		if dsn := os.Getenv(env); dsn != "" {
			out[name] = dsn
		} else if os.Getenv("FENCEPOST_TEST_STRICT") == "1" {
			t.Errorf("%s is not set", env)
		}
	}
	return out
}

// bench is one database with an empty table, and one call of a plugin.
type bench struct {
	*testing.T

	db    *Database
	ctx   context.Context //nolint:containedctx // of the call
	call  *Session
	table string
}

func eachDatabase(t *testing.T, test func(b *bench)) {
	t.Helper()
	for name, dsn := range databases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := Open(dsn, 4)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			b := &bench{T: t, db: db, table: "t_" + strings.ToLower(strings.NewReplacer("/", "_").Replace(t.Name()))}
			b.next()
			types := map[kind]string{
				kindMySQL: "k BIGINT PRIMARY KEY, v VARCHAR(40) NOT NULL, n DECIMAL(38,12), b VARBINARY(40), at DATETIME(6)", kindPostgres: "k bigint PRIMARY KEY, v text NOT NULL, n numeric, b bytea, at timestamptz",
				kindSQLite: "k INTEGER PRIMARY KEY, v TEXT NOT NULL, n TEXT, b BLOB, at DATETIME",
			}
			b.must(capability.Work{Statements: []capability.Statement{{SQL: "DROP TABLE IF EXISTS " + b.table}, {SQL: "CREATE TABLE " + b.table + " (" + types[db.kind] + ")"}}, End: capability.Commit})
			t.Cleanup(func() {
				b.ctx, b.call = db.Begin(context.Background())
				b.must(capability.Work{Statements: []capability.Statement{{SQL: "DROP TABLE " + b.table}}, End: capability.Commit})
				b.call.End()
			})
			test(b)
			b.call.End()
		})
	}
}

// next ends the call, if there is one, and begins another.
func (b *bench) next() {
	if b.call != nil {
		b.call.End()
	}
	b.ctx, b.call = b.db.Begin(b.Context())
}

// do goes through the messages, as a plugin's work does.
func (b *bench) do(w capability.Work) (capability.Done, error) {
	b.Helper()
	payload, err := sqlv1.EncodeWork(w)
	if err != nil {
		return capability.Done{}, err
	}
	answer, err := b.db.Do(b.ctx, payload)
	if err != nil {
		b.Fatal(err)
	}
	return sqlv1.DecodeDone(answer, len(w.Statements))
}

func (b *bench) must(w capability.Work) capability.Done {
	b.Helper()
	d, err := b.do(w)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// place writes placeholders as the database has them.
func (b *bench) place(text string) string {
	if b.db.kind != kindPostgres {
		return text
	}
	for n := 1; strings.Contains(text, "?"); n++ {
		text = strings.Replace(text, "?", "$"+string(rune('0'+n)), 1)
	}
	return text
}

func (b *bench) insert(k int64) capability.Statement {
	return capability.Statement{SQL: b.place("INSERT INTO " + b.table + " (k, v) VALUES (?, ?)"), Args: []any{k, "x"}}
}

func (b *bench) count() int64 {
	b.Helper()
	d := b.must(capability.Work{Statements: []capability.Statement{{SQL: "SELECT count(*) FROM " + b.table, Rows: true}}, End: capability.Rollback})
	n, _ := d.Results[0].Rows[0][0].(int64)
	return n
}

var at = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)

// Values come back as they were, decimals as text to the last digit.
func TestValues(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(b *bench) {
		const n = "12345678901234567890123456.123456789012"
		w := capability.Work{Statements: []capability.Statement{
			{SQL: b.place("INSERT INTO " + b.table + " (k, v, n, b, at) VALUES (?, ?, ?, ?, ?)"), Args: []any{int64(1 << 60), "é'\";--", n, []byte{0, 255}, at}},
			{SQL: b.place("INSERT INTO " + b.table + " (k, v, n, b, at) VALUES (?, ?, ?, ?, ?)"), Args: []any{int64(-3), "", nil, nil, nil}},
			{SQL: "SELECT k, v, n, b, at FROM " + b.table + " ORDER BY k", Rows: true},
		}, End: capability.Commit}
		d := b.must(w)
		if d.Transaction != 0 || d.Results[0].Affected != 1 {
			b.Errorf("%+v", d)
		}
		want := capability.Result{Columns: []string{"k", "v", "n", "b", "at"}, Rows: [][]any{
			{int64(-3), "", nil, nil, nil}, {int64(1 << 60), "é'\";--", n, []byte{0, 255}, at},
		}}
		if diff := cmp.Diff(want, d.Results[2]); diff != "" {
			b.Error(diff)
		}
		if n := b.count(); n != 2 {
			b.Errorf("%d rows", n)
		}
	})
}

// Q28: a transaction is the call's. It ends with it, and nothing of it is left;
// other calls cannot reach it.
func TestTransactionsEndWithTheCall(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(b *bench) {
		open := b.must(capability.Work{Statements: []capability.Statement{b.insert(1)}})
		if open.Transaction == 0 {
			b.Fatal("it is not open")
		}
		b.next() // the plugin trapped, or its deadline passed
		if n := b.count(); n != 0 {
			b.Errorf("%d rows of a call that ended without a commit", n)
		}
		if _, err := b.do(capability.Work{Transaction: open.Transaction, End: capability.Commit}); !errors.Is(err, sdk.ErrInvalid) {
			b.Errorf("another call's transaction: %v", err)
		}
		d := b.must(capability.Work{Statements: []capability.Statement{b.insert(1)}})
		b.must(capability.Work{Transaction: d.Transaction, Statements: []capability.Statement{b.insert(2)}, End: capability.Commit})
		if _, err := b.do(capability.Work{Transaction: d.Transaction}); !errors.Is(err, sdk.ErrInvalid) {
			b.Errorf("a committed transaction: %v", err)
		}
		if n := b.count(); n != 2 {
			b.Errorf("%d rows", n)
		}
		ended := b.ctx
		b.call.End()
		payload, err := sqlv1.EncodeWork(capability.Work{Statements: []capability.Statement{b.insert(3)}, End: capability.Commit})
		if err != nil {
			b.Fatal(err)
		}
		answer, err := b.db.Do(ended, payload)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := sqlv1.DecodeDone(answer, 1); !errors.Is(err, sdk.ErrInvalid) {
			b.Errorf("after the call has ended: %v", err)
		}
		b.next()
	})
}

// After any error the transaction is over, and the code says what it was, the
// same for every database.
func TestErrors(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(b *bench) {
		b.must(capability.Work{Statements: []capability.Statement{b.insert(1)}, End: capability.Commit})
		for code, s := range map[string]capability.Statement{
			"unique_violation": b.insert(1),
			"not_null":         {SQL: b.place("INSERT INTO " + b.table + " (k, v) VALUES (?, ?)"), Args: []any{int64(9), nil}},
			"missing_table":    {SQL: "SELECT * FROM no_such_table", Rows: true},
			"syntax":           {SQL: "SELECT FROM WHERE", Rows: true},
		} {
			open := b.must(capability.Work{Statements: []capability.Statement{b.insert(2)}})
			_, err := b.do(capability.Work{Transaction: open.Transaction, Statements: []capability.Statement{b.insert(3), s, b.insert(4)}, End: capability.Commit})
			e, ok := errors.AsType[*sdk.Error](err)
			if !ok || e.Code != code {
				b.Errorf("%s: %v", code, err)
			} else if i, ok := e.ItemIndex(); !ok || i != 1 {
				b.Errorf("%s: of statement %d", code, i)
			}
			if _, err := b.do(capability.Work{Transaction: open.Transaction, End: capability.Commit}); !errors.Is(err, sdk.ErrInvalid) {
				b.Errorf("%s: the transaction goes on: %v", code, err)
			}
			if n := b.count(); n != 1 {
				b.Errorf("%s: %d rows", code, n)
			}
		}
	})
}

// What would take a transaction out of the host's hands is refused, and ends it.
func TestRefusedStatements(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(b *bench) {
		for _, text := range []string{
			"COMMIT", "commit", " -- c\n ROLLBACK", "/* x */ BEGIN", "SAVEPOINT a", "SET autocommit = 1", "ATTACH DATABASE 'x' AS y", "PRAGMA journal_mode",
			"LOAD DATA INFILE 'x' INTO TABLE t", "COPY t FROM PROGRAM 'id'", "", ";", "SELECT 1; COMMIT", "SELECT 1 /* */ ; -- x\n COMMIT", "SELECT ';'; COMMIT",
			"/*! COMMIT */", "SELECT 1 /*!; COMMIT */", "CREATE TABLE x (a); COMMIT; SELECT 1", "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END; COMMIT", "(COMMIT)",
		} {
			open := b.must(capability.Work{Statements: []capability.Statement{b.insert(2)}})
			_, err := b.do(capability.Work{Transaction: open.Transaction, Statements: []capability.Statement{{SQL: text}}, End: capability.Commit})
			if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Code != "statement_refused" || strings.Contains(e.Error(), "PROGRAM") {
				b.Errorf("%q: %v", text, err)
			}
			if n := b.count(); n != 0 {
				b.Fatalf("%q: %d rows", text, n)
			}
		}
		for _, text := range []string{"SELECT ';' AS a", "SELECT 1;", "SELECT 1 -- ; COMMIT", "SELECT 1 /* ; COMMIT */", "WITH a AS (SELECT 1) SELECT * FROM a"} {
			if _, err := b.do(capability.Work{Statements: []capability.Statement{{SQL: text, Rows: true}}, End: capability.Rollback}); err != nil {
				b.Errorf("%q: %v", text, err)
			}
		}
	})
}

// A large result, many transactions and a passed deadline end in errors, and
// leave connections for others.
func TestBounds(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(b *bench) {
		many := "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10050) SELECT i FROM n"
		if b.db.kind == kindMySQL { // which counts recursions itself
			many = "SELECT a.table_name FROM information_schema.columns a, information_schema.columns c"
		}
		_, err := b.do(capability.Work{Statements: []capability.Statement{{SQL: many, Rows: true}}, End: capability.Rollback})
		if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Code != "result_too_large" {
			b.Errorf("many rows: %v", err)
		}
		b.must(capability.Work{})
		if b.db.kind != kindSQLite { // where a second one would wait for the first
			for range maxTransactions - 1 {
				b.must(capability.Work{})
			}
			if _, err := b.do(capability.Work{}); !errors.Is(err, sdk.ErrInvalid) {
				b.Errorf("many transactions: %v", err)
			}
		}
		b.next()
		ctx, stop := context.WithCancel(b.ctx)
		b.ctx = ctx
		open := b.must(capability.Work{Statements: []capability.Statement{b.insert(1)}})
		stop()
		if _, err := b.do(capability.Work{Transaction: open.Transaction, Statements: []capability.Statement{b.insert(2)}, End: capability.Commit}); !errors.Is(err, sdk.ErrUnavailable) {
			b.Errorf("after the deadline: %v", err)
		}
		b.next()
		if n := b.count(); n != 0 {
			b.Errorf("%d rows of a transaction that the deadline ended", n)
		}
		for range 3 * maxTransactions { // more than there are connections
			b.must(capability.Work{Statements: []capability.Statement{b.insert(1)}})
			b.next()
		}
	})
}

func TestOpenRefusals(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"", "oracle://hunter2@x/y", "mysql://u:hunter2@h", "mysql://u:hunter2@h/db?allowAllFiles=true", "sqlite:", "sqlite:x?hunter2", "postgres://u:hunter2@h:notaport/db"} {
		if _, err := Open(dsn, 1); !errors.Is(err, sdk.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", dsn, err)
		}
	}
}
