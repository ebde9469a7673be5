package postgres

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// What is wrong with a DSN is said by the key and the rule, and nothing of the
// DSN is repeated: it holds a password.
func TestOpenRefusesDSN(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.Schema(t)
	for name, test := range map[string]struct {
		dsn, code string
		tag       sdk.Tag
	}{
		"none":        {"", "", sdk.TagInvalid},
		"malformed":   {"postgres://user:s3cret@[::bad/db", "", sdk.TagInvalid},
		"bad port":    {"postgres://user:s3cret@host:port/db", "", sdk.TagInvalid},
		"schema":      {"postgres://user:s3cret@localhost/db?fencepost_schema=a%22%3Bdrop", "", sdk.TagInvalid},
		"long schema": {"postgres://user:s3cret@localhost/db?fencepost_schema=" + strings.Repeat("s3cret", 11), "", sdk.TagInvalid},
		"pooler":      {"postgres://user:s3cret@localhost/db?pgbouncer=s3cret", "", sdk.TagInvalid},
		"parameter":   {"postgres://user:s3cret@localhost/db?fencepost_schem=x", "unknown_parameter", sdk.TagInvalid},
		"unknown":     {dsn + "&s3cret=x", "unknown_parameter", sdk.TagInvalid},
		"unreachable": {"postgres://user:s3cret@127.0.0.1:1/db", "connection", sdk.TagUnavailable},
		"no database": {strings.Replace(dsn, "/postgres?", "/s3cret?", 1), "no_database", sdk.TagInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if (name == "no database" || name == "unknown") && pooled(dsn) {
				t.Skip("a pooler answers for the server")
			}
			_, err := Open(t.Context(), Config{DSN: test.dsn})
			wantFailure(t, err, test.tag, test.code)
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error repeats the DSN: %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "storage.dsn") {
				t.Errorf("the error does not name the key: %v", err)
			}
		})
	}
}

// A server on which a promise would not hold is refused with what to change.
func TestOpenRefusesServer(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.Schema(t)
	if pooled(dsn) {
		t.Skip("a pooler takes no settings of a session")
	}
	for code, setting := range map[string]string{
		"synchronous_commit": "synchronous_commit=off", // F12
		"isolation":          "default_transaction_isolation=serializable",
	} {
		_, err := Open(t.Context(), Config{DSN: dsn + "&" + setting})
		wantFailure(t, err, sdk.TagInvalid, code)
	}
	// S10: a node that takes no writes is none that can be opened.
	_, err := Open(t.Context(), Config{DSN: dsn + "&default_transaction_read_only=on"})
	if sdk.TagOf(err) != sdk.TagUnavailable {
		t.Errorf("a read-only server: %v", err)
	}
}

// A parameter of ours that is misspelt is named.
func TestOpenNamesParameter(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Config{DSN: "host=localhost password=s3cret fencepost_schem=x"})
	if err == nil || !strings.Contains(err.Error(), "not fencepost_schem") {
		t.Errorf("error %v", err)
	}
}

// S10: applied once, under a lock, in a schema of one's choice.
func TestMigrate(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.Schema(t)
	a, err := Open(t.Context(), Config{DSN: dsn})
	must(t, err)
	t.Cleanup(func() { _ = a.Close() })
	_, err = a.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Each})
	wantFailure(t, err, sdk.TagUnavailable, "schema_missing")
	wantFailure(t, a.Ping(t.Context()), sdk.TagUnavailable, "schema_missing")
	status, err := a.MigrationStatus(t.Context())
	if err != nil || len(status) == 0 || status[0].Applied() {
		t.Fatalf("status %+v, %v", status, err)
	}
	applied := make(chan int, 4)
	for range cap(applied) { // hosts that start at once
		go func() {
			b, err := Open(t.Context(), Config{DSN: dsn})
			if err != nil {
				t.Error(err)
				applied <- 0
				return
			}
			done, err := b.Migrate(t.Context())
			if err != nil {
				t.Error(err)
			}
			_ = b.Close()
			applied <- len(done)
		}()
	}
	total := 0
	for range cap(applied) {
		total += <-applied
	}
	if total != len(status) {
		t.Errorf("%d migrations were applied, want %d", total, len(status))
	}
	must(t, a.Ping(t.Context())) // looks again
	status, err = a.MigrationStatus(t.Context())
	if err != nil || !status[len(status)-1].Applied() {
		t.Errorf("status %+v, %v", status, err)
	}
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "1"))}})
}

// S10: a newer schema and a changed one are refused and left alone.
func TestForeignSchema(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change string
		tag    sdk.Tag
		code   string
	}{
		"newer":   {"INSERT INTO {schema}.fencepost_migrations VALUES (999, 'future', '00', now())", sdk.TagUnsupported, "schema_newer"},
		"changed": {"UPDATE {schema}.fencepost_migrations SET checksum = '00'", sdk.TagInvalid, "schema_changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, _ := pgtest.Schema(t)
			a := openDSN(t, dsn)
			sqlExec(t, a, test.change)
			// A call is not at fault: what it brings is good in the right store.
			wantFailure(t, a.Ping(t.Context()), sdk.TagUnavailable, test.code)
			_, err := a.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Each})
			wantFailure(t, err, sdk.TagUnavailable, test.code)
			list, err := a.MigrationStatus(t.Context())
			wantFailure(t, err, test.tag, test.code)
			if len(list) == 0 {
				t.Error("no list beside the refusal")
			}
			_, err = a.Migrate(t.Context())
			wantFailure(t, err, test.tag, test.code)
			_, err = Open(t.Context(), Config{DSN: dsn, Migrate: true})
			wantFailure(t, err, test.tag, test.code)
			b, err := Open(t.Context(), Config{DSN: dsn})
			must(t, err)
			defer func() { _ = b.Close() }()
			_, err = b.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: "acme"})
			wantFailure(t, err, sdk.TagUnavailable, test.code)
		})
	}
}

// What Script prints makes a store that the adapter takes for its own.
func TestScript(t *testing.T) {
	t.Parallel()
	dsn, schema := pgtest.Schema(t)
	text, err := Script(dsn)
	must(t, err)
	c, err := pgx.Connect(t.Context(), pgtest.Plain(dsn))
	must(t, err)
	defer func() { _ = c.Close(t.Context()) }()
	must(t, c.PgConn().Exec(t.Context(), text).Close())
	a, err := Open(t.Context(), Config{DSN: dsn})
	must(t, err)
	defer func() { _ = a.Close() }()
	must(t, a.Ping(t.Context()))
	if done, err := a.Migrate(t.Context()); err != nil || len(done) != 0 {
		t.Errorf("applied %+v, %v", done, err)
	}
	if got := Name("postgres://u:p@h:5/d?fencepost_schema=" + schema); got != "h:5/d/"+schema {
		t.Errorf("name %q", got)
	}
}

// The printed script asks for no more than the schema that is there: the role
// need not be one that may create schemas.
func TestScriptWithoutCreateOnDatabase(t *testing.T) {
	t.Parallel()
	dsn, schema := pgtest.Schema(t)
	text, err := Script(dsn)
	must(t, err)
	c, err := pgx.Connect(t.Context(), pgtest.Plain(dsn))
	must(t, err)
	defer func() { _ = c.Close(t.Context()) }()
	role := schema + "_migrator"
	must(t, c.PgConn().Exec(t.Context(), "CREATE ROLE "+role+"; GRANT USAGE, CREATE ON SCHEMA "+schema+" TO "+role).Close())
	defer func() {
		must(t, c.PgConn().Exec(t.Context(), "ROLLBACK; RESET ROLE; DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role).Close())
	}()
	as := "BEGIN; SET LOCAL ROLE " + role + ";" + strings.TrimPrefix(text, "BEGIN;")
	must(t, c.PgConn().Exec(t.Context(), as).Close())
}

// A server that will not let us do what we could a moment ago says nothing of
// the input of a call, which passes later: only Open and Migrate take it for a
// mistake in the configuration (S4).
func TestServerTroubleIsNotInvalid(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.Schema(t)
	if pooled(dsn) {
		t.Skip("a pooler answers for the server")
	}
	a := openDSN(t, dsn)
	role := a.target.schema + "_host"
	sqlExec(t, a, "CREATE ROLE "+role+" LOGIN")
	defer sqlExec(t, a, "DROP ROLE "+role)
	defer sqlExec(t, a, "DROP OWNED BY "+role)
	sqlExec(t, a, "GRANT USAGE ON SCHEMA {schema} TO "+role)
	sqlExec(t, a, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO "+role)
	sqlExec(t, a, "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO "+role)
	u, err := url.Parse(dsn)
	must(t, err)
	u.User = url.User(role)
	host, err := Open(t.Context(), Config{DSN: u.String()})
	must(t, err)
	defer func() { _ = host.Close() }()
	each := storage.RecordRequest{Mode: storage.Each, Units: []storage.Unit{plain(tokens("acme", "e1", "1"))}}
	record(t, host, each)

	sqlExec(t, a, "REVOKE USAGE ON SCHEMA {schema} FROM "+role)
	_, err = host.RecordEvents(t.Context(), each)
	wantFailure(t, err, sdk.TagUnavailable, "no_privilege")
	_, err = Open(t.Context(), Config{DSN: u.String(), Migrate: true})
	wantFailure(t, err, sdk.TagInvalid, "no_privilege")

	sqlExec(t, a, "ALTER ROLE "+role+" NOLOGIN")
	for _, p := range host.pools {
		p.Reset()
	}
	_, err = host.RecordEvents(t.Context(), each)
	wantFailure(t, err, sdk.TagUnavailable, "authentication")
	_, err = Open(t.Context(), Config{DSN: u.String()})
	wantFailure(t, err, sdk.TagInvalid, "authentication")
}

// S10: every statement is one that the server takes, and every name has its
// file.
func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.Schema(t)
	a := openDSN(t, dsn)
	c, err := pgx.Connect(t.Context(), pgtest.Plain(dsn))
	must(t, err)
	defer func() { _ = c.Close(t.Context()) }()
	used := usedQueries(t)
	for name, text := range a.texts {
		if strings.Contains(text, "{schema}") {
			t.Errorf("%s: a schema that was not put in", name)
		}
		if !used[name] {
			t.Errorf("sql/%s.sql is used by nothing", name)
		}
		texts := map[recordParts]string{0: text}
		if name == qRecord {
			for parts := range 2 * withLookup {
				texts[parts] = assemble(text, parts).text
			}
		}
		for parts, text := range texts {
			if _, err := c.Prepare(t.Context(), "", text); err != nil {
				t.Errorf("%s (parts %b): %v", name, parts, err)
			}
		}
		if strings.Contains(text, " fencepost_") { // a literal is quoted
			t.Errorf("%s: a table without the schema", name)
		}
		delete(used, name)
	}
	for name := range used {
		t.Errorf("there is no sql/%s.sql", name)
	}
}

// usedQueries reads the constants of type query from the source.
func usedQueries(t *testing.T) map[query]bool {
	t.Helper()
	files, err := fs.Glob(os.DirFS("."), "*.go")
	must(t, err)
	used := map[query]bool{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		must(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), name, b, 0)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "query" && len(spec.Values) == 1 {
				if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
					s, err := strconv.Unquote(lit.Value)
					must(t, err)
					used[query(s)] = true
				}
			}
			return true
		})
	}
	return used
}

// P6, I1: history does not change, whoever asks; retention removes only in a
// transaction that says so.
func TestImmutable(t *testing.T) {
	t.Parallel()
	a := open(t)
	route, rev := routed(t, a)
	e := tokens("acme", "e1", "1")
	record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{plain(e, itemFor(e, route, "m1")), cloudEvent("acme", "1", "x", "in")}})
	sqlExec(t, a, "INSERT INTO {schema}.fencepost_bucket_seals VALUES ('acme', 'tokens', 1, now(), 0, now())")
	const attempt = `INSERT INTO {schema}.fencepost_attempts (item, lease_token, owner, host_class, outcome, evidence, status, request_id, code, message, decided, fenced, recorded_at)
VALUES (1, 1, '', '', '', '', 0, '', '', '', '', false, now())`
	sqlExec(t, a, attempt)
	for _, text := range []string{
		"UPDATE {schema}.fencepost_events SET quantity = 9", "DELETE FROM {schema}.fencepost_events", "TRUNCATE {schema}.fencepost_events",
		"UPDATE {schema}.fencepost_cloudevents SET type = ''", "DELETE FROM {schema}.fencepost_cloudevents",
		"UPDATE {schema}.fencepost_outbox_items SET subject_ref = ''", "UPDATE {schema}.fencepost_outbox_items SET customer = 'cus_2'",
		"DELETE FROM {schema}.fencepost_outbox_items",
		"UPDATE {schema}.fencepost_mappings SET label = ''", "DELETE FROM {schema}.fencepost_mappings",
		"UPDATE {schema}.fencepost_attempts SET code = ''", "DELETE FROM {schema}.fencepost_attempts",
		"UPDATE {schema}.fencepost_routes SET feature = ''", "DELETE FROM {schema}.fencepost_routes",
		"UPDATE {schema}.fencepost_bucket_seals SET seq = 9", "DELETE FROM {schema}.fencepost_bucket_seals",
		"UPDATE {schema}.fencepost_outbox_state SET lease_token = -1",
		"UPDATE {schema}.fencepost_outbox_items SET subject_key = sha256('')",
	} {
		_, err := a.pools[workPool].Exec(t.Context(), withSchema(text, a.target.schema))
		if err == nil || !strings.Contains(err.Error(), "is immutable") {
			t.Errorf("%s: %v", text, err)
		}
	}
	must(t, pgx.BeginFunc(t.Context(), a.pools[workPool], func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT set_config('fencepost.prune', 'on', true)")
		if err == nil {
			_, err = tx.Exec(t.Context(), withSchema("DELETE FROM {schema}.fencepost_events WHERE event_id = 'e1'", a.target.schema))
		}
		return err
	}))
	_, err := a.pools[workPool].Exec(t.Context(), withSchema("DELETE FROM {schema}.fencepost_events", a.target.schema))
	if err == nil {
		t.Error("the permission to prune outlived its transaction")
	}
}

// S1, S9, Q8: what the types and checks of the tables refuse by themselves.
func TestChecks(t *testing.T) {
	t.Parallel()
	a := open(t)
	const columns = `INSERT INTO {schema}.fencepost_events (tenant_key, event_id, feature, quantity, effect, kind, occurred_at, period_start,
  period_end, period_source, payload_hash, dedupe_hash, recorded_at) VALUES (`
	const rest = ", 'usage', now(), now(), now(), 'calendar', sha256(''), sha256(''), now())"
	for name, text := range map[string]string{
		"NaN":               columns + "'t', 'e', 'f', 'NaN', 'NaN'" + rest,
		"infinity":          columns + "'t', 'e', 'f', 'Infinity', 'Infinity'" + rest,
		"27 digits":         columns + "'t', 'e', 'f', 1e26, 1e26" + rest,
		"no tenant":         columns + "'', 'e', 'f', 1, 1" + rest,
		"null tenant":       columns + "NULL, 'e', 'f', 1, 1" + rest,
		"no id":             columns + "'t', '', 'f', 1, 1" + rest,
		"effect":            columns + "'t', 'e', 'f', 1, -1" + rest,
		"total below zero":  "INSERT INTO {schema}.fencepost_totals VALUES ('t', 'f', now(), 1, now(), -1, 1, 1, false)",
		"total of no value": "INSERT INTO {schema}.fencepost_totals VALUES ('t', 'f', now(), 1, now(), 'NaN', 1, 1, true)",
	} {
		if _, err := a.pools[workPool].Exec(t.Context(), withSchema(text, a.target.schema)); err == nil {
			t.Errorf("%s was stored", name)
		}
	}
}
