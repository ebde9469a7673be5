package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storage/migration"
)

const migrateHint = "run fencepost migrate up"

const (
	qSchemaExists    query = "schema_exists"
	qSchemaCreate    query = "schema_create"
	qSchemaEnsure    query = "schema_ensure"
	qMigrationsTable query = "migrations_table"
	qMigrationsExist query = "migrations_exist"
	qMigrations      query = "migrations"
	qMigrationInsert query = "migration_insert"
)

// migrateTimeout bounds a migration whose context has no deadline.
const migrateTimeout = 15 * time.Minute

// schemaError is why the schema cannot be used.
type schemaError struct{ err *sdk.Error }

// schemaProblem answers the reason, or nil. For a call the store is
// unavailable: its input is as good as it was, and passes once the schema is
// the one that this version knows.
func (a *Adapter) schemaProblem() error {
	if p := a.schemaErr.Load(); p != nil {
		e := *p.err
		e.Tag = sdk.TagUnavailable
		return &e
	}
	return nil
}

func (a *Adapter) setSchemaProblem(e *sdk.Error) {
	if e == nil {
		a.schemaErr.Store(nil)
		return
	}
	a.schemaErr.Store(&schemaError{e})
}

// knownMigrations reads the embedded files, in order.
func knownMigrations() ([]migration.Migration, error) {
	return migration.Known(migrations.FS, "postgres")
}

// appliedMigrations reads the bookkeeping; a store without it has none.
func appliedMigrations(ctx context.Context, t *tx) ([]storage.Migration, error) {
	var exists bool
	if err := t.row(ctx, qMigrationsExist, []any{&exists}); err != nil || !exists {
		return nil, err
	}
	var all []storage.Migration
	err := t.each(ctx, qMigrations, func(rows pgx.Rows) error {
		var m storage.Migration
		if err := rows.Scan(&m.Version, &m.Name, &m.Checksum, &m.AppliedAt); err != nil {
			return err
		}
		m.AppliedAt = m.AppliedAt.UTC()
		all = append(all, m)
		return nil
	})
	return all, err
}

// checkSchema compares without changing anything, and remembers the answer for
// every later call. Its error is a failure to look.
func (a *Adapter) checkSchema(ctx context.Context) error {
	applied, err := a.applied(ctx, "check schema")
	if err != nil {
		return err
	}
	known, err := knownMigrations()
	if err != nil {
		return storeError(ctx, "check schema", err)
	}
	missing, problem := migration.Compare(known, applied)
	if problem == nil && len(missing) > 0 {
		code, rule := "schema_missing", "a database with the fencepost schema"
		if len(missing) < len(known) {
			code, rule = "schema_outdated", fmt.Sprintf("a store of schema version %d", len(known))
		}
		problem = &sdk.Error{Tag: sdk.TagInvalid, Code: code, Field: dsnField, Rule: rule, Hint: migrateHint}
	}
	a.setSchemaProblem(problem)
	return nil
}

func (a *Adapter) applied(ctx context.Context, op string) (all []storage.Migration, err error) {
	err = ownTx{a}.reading(ctx, op, reading{pool: healthPool}, func(ctx context.Context, t *tx) (err error) {
		all, err = appliedMigrations(ctx, t)
		return err
	})
	return all, err
}

// MigrationStatus lists every migration that this adapter knows or that the
// store carries, by version. Of a store that this version must not use the list
// is complete too, beside the error that Migrate would answer.
func (a *Adapter) MigrationStatus(ctx context.Context) ([]storage.Migration, error) {
	const op = "migration status"
	known, err := knownMigrations()
	if err != nil {
		return nil, storeError(ctx, op, err)
	}
	all, err := a.applied(ctx, op)
	if err != nil {
		return nil, configError(op, err)
	}
	_, problem := migration.Compare(known, all)
	applied := len(all)
	for _, m := range known {
		if !slices.ContainsFunc(all[:applied], func(x storage.Migration) bool { return x.Version == m.Version }) {
			all = append(all, m.Migration)
		}
	}
	slices.SortFunc(all, func(a, b storage.Migration) int { return cmp.Compare(a.Version, b.Version) })
	if problem != nil {
		return all, fmt.Errorf("%s: %w", op, problem)
	}
	return all, nil
}

// Migrate applies what is missing, all of it in one transaction, and answers
// what it applied. Two hosts that migrate at once take turns. The schema is
// created if it does not exist. A store with a newer migration is unsupported,
// code "schema_newer"; one with a changed migration is invalid, code
// "schema_changed"; neither is touched. One that the server refuses is invalid,
// code "schema_failed", and names its number, its file and the cause.
func (a *Adapter) Migrate(ctx context.Context) ([]storage.Migration, error) {
	const op = "migrate"
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, migrateTimeout)
		defer cancel()
	}
	known, err := knownMigrations()
	if err != nil {
		return nil, storeError(ctx, op, err)
	}
	var done []storage.Migration
	err = ownTx{a}.transact(ctx, op, writing{pool: healthPool}, func(ctx context.Context, t *tx) (err error) {
		if err := t.tryExclusive(ctx, lockClassMigrate); err != nil {
			return err
		}
		done, err = a.migrate(ctx, t, known)
		return err
	})
	if err != nil {
		return nil, configError(op, err)
	}
	a.setSchemaProblem(nil)
	return done, nil
}

func (a *Adapter) migrate(ctx context.Context, t *tx, known []migration.Migration) (done []storage.Migration, err error) {
	applied, err := appliedMigrations(ctx, t)
	if err != nil {
		return nil, err
	}
	missing, problem := migration.Compare(known, applied)
	if problem != nil {
		a.setSchemaProblem(problem)
		return nil, problem
	}
	if len(applied) == 0 {
		if err := a.createSchema(ctx, t); err != nil {
			return nil, err
		}
	}
	for _, m := range missing {
		if err := t.script(ctx, withSchema(m.SQL, a.target.schema)); err != nil {
			return nil, migrationError(ctx, &m, err)
		}
		if err := t.row(ctx, qMigrationInsert, []any{&m.AppliedAt}, m.Version, m.Name, m.Checksum); err != nil {
			return nil, migrationError(ctx, &m, err)
		}
		m.AppliedAt = m.AppliedAt.UTC()
		done = append(done, m.Migration)
	}
	return done, nil
}

// migrationError names the migration that met err. What the server says of the
// file itself, by the classes of its SQLSTATEs, it will say again: that is final.
func migrationError(ctx context.Context, m *migration.Migration, err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		cause := classify(err)
		if ctxErr := ctx.Err(); ctxErr != nil {
			cause = contextError(ctxErr)
		}
		return m.Failed(cause, false)
	}
	cause := classify(err)
	if pg.Code == stateNoPrivilege {
		return m.Failed(cause, false) // somebody grants it, see its hint
	}
	switch class := pg.Code[:min(2, len(pg.Code))]; class {
	case "22": // quotes the value that it could not read
		return m.Failed(cause, true)
	case "0A", "23", "2B", "42":
		said := *cause
		said.Err = refusal{serverError{pg}}
		return m.Failed(&said, true)
	}
	return m.Failed(cause, false)
}

// refusal is a server's answer to a migration with its words: of these classes
// they name tables, columns and constraints, which are ours. The values stand in
// its detail.
type refusal struct{ serverError }

func (e refusal) Error() string { return e.serverError.Error() + ": " + e.pg.Message }

// createSchema makes the schema, unless it is there: a role that may use a
// schema need not be one that may create them.
func (a *Adapter) createSchema(ctx context.Context, t *tx) error {
	var exists bool
	if err := t.row(ctx, qSchemaExists, []any{&exists}, a.target.schema); err != nil {
		return err
	}
	if !exists {
		if _, err := t.exec(ctx, qSchemaCreate); err != nil {
			return err
		}
	}
	_, err := t.exec(ctx, qMigrationsTable)
	return err
}

// Script is all that Migrate would do to an empty database, for people who
// apply it with a tool of their own, as one transaction.
func Script(dsn string) (string, error) {
	t, err := parseDSN(Config{DSN: dsn})
	if err != nil {
		return "", err
	}
	known, err := knownMigrations()
	if err != nil {
		return "", err
	}
	texts, err := loadStatements(t.schema)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "BEGIN;\n\n%s;\n\n%s;\n", strings.TrimSpace(texts[qSchemaEnsure]), strings.TrimSpace(texts[qMigrationsTable]))
	for _, m := range known {
		fmt.Fprintf(&b, "\n-- %04d_%s\n\n%s\nINSERT INTO %s.fencepost_migrations VALUES (%d, '%s', '%s', now());\n",
			m.Version, m.Name, withSchema(m.SQL, t.schema), t.schema, m.Version, m.Name, m.Checksum)
	}
	b.WriteString("\nCOMMIT;\n")
	return b.String(), nil
}

// Name tells the database and the schema of a DSN, without its credentials. It
// is empty for a DSN that cannot be read.
func Name(dsn string) string {
	t, err := parseDSN(Config{DSN: dsn})
	if err != nil {
		return ""
	}
	c := t.pool.ConnConfig
	return fmt.Sprintf("%s:%d/%s/%s", c.Host, c.Port, c.Database, t.schema)
}

// script runs statements without values. Only migrations do.
func (t *tx) script(ctx context.Context, text string) error {
	c, ok := t.q.(*pgxpool.Conn)
	if !ok {
		return errors.New("a script needs a connection of its own")
	}
	return c.Conn().PgConn().Exec(ctx, text).Close()
}
