package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storage/migration"
)

const migrateHint = "run fencepost migrate up"

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

// knownMigrations reads the embedded files, in order.
func knownMigrations() ([]migration.Migration, error) {
	return migration.Known(migrations.FS, "sqlite")
}

// appliedMigrations reads the bookkeeping; a store without it has none.
func appliedMigrations(c *conn) ([]storage.Migration, error) {
	found, err := c.bind(qMigrationsExist).one(func(*row) {})
	if err != nil || !found {
		return nil, err
	}
	var all []storage.Migration
	err = c.bind(qMigrations).each(func(r *row) error {
		all = append(all, storage.Migration{
			Version: int(r.int()), Name: r.text(), Checksum: r.text(), AppliedAt: r.time(),
		})
		return nil
	})
	return all, err
}

// checkSchema compares without changing anything, and remembers the answer for
// every later call. Its error is a failure to look.
func (a *Adapter) checkSchema(ctx context.Context) error {
	known, err := knownMigrations()
	if err != nil {
		return storeError(ctx, "check schema", err)
	}
	c, err := a.acquire(ctx, a.writer, openWriter)
	if err != nil {
		return storeError(ctx, "check schema", err)
	}
	defer a.release(a.writer, c)
	applied, err := appliedMigrations(c)
	if err != nil {
		return storeError(ctx, "check schema", err)
	}
	missing, problem := migration.Compare(known, applied)
	if problem == nil && len(missing) > 0 {
		code, rule := "schema_missing", "a store with the fencepost schema"
		if len(missing) < len(known) {
			code, rule = "schema_outdated", fmt.Sprintf("a store of schema version %d", len(known))
		}
		problem = &sdk.Error{Tag: sdk.TagInvalid, Code: code, Field: dsnField, Rule: rule, Hint: migrateHint}
	}
	a.setSchemaProblem(problem)
	return nil
}

func (a *Adapter) setSchemaProblem(e *sdk.Error) {
	if e == nil {
		a.schemaErr.Store(nil)
		return
	}
	a.schemaErr.Store(&schemaError{e})
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
	c, err := a.acquire(ctx, a.writer, openWriter)
	if err != nil {
		return nil, storeError(ctx, op, err)
	}
	defer a.release(a.writer, c)
	applied, err := appliedMigrations(c)
	if err != nil {
		return nil, storeError(ctx, op, err)
	}
	_, problem := migration.Compare(known, applied)
	all := applied
	for _, m := range known {
		if !slices.ContainsFunc(applied, func(x storage.Migration) bool { return x.Version == m.Version }) {
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
// what it applied. A store with a newer migration is unsupported, code
// "schema_newer"; one with a changed migration is invalid, code
// "schema_changed"; neither is touched. One that SQLite refuses is invalid, code
// "schema_failed", and names its number, its file and the cause.
func (a *Adapter) Migrate(ctx context.Context) ([]storage.Migration, error) {
	known, err := knownMigrations()
	if err != nil {
		return nil, storeError(ctx, "migrate", err)
	}
	var done []storage.Migration
	err = a.transact(ctx, "migrate", faults{}, func(_ context.Context, c *conn) error {
		if err := c.run(qMigrationsTable); err != nil {
			return err
		}
		applied, err := appliedMigrations(c)
		if err != nil {
			return err
		}
		missing, problem := migration.Compare(known, applied)
		if problem != nil {
			a.setSchemaProblem(problem)
			return problem
		}
		now := a.now()
		for _, m := range missing {
			if err := sqlitex.ExecuteScript(c.Conn, m.SQL, nil); err != nil {
				return migrationError(&m, err)
			}
			m.AppliedAt = now
			if _, err := c.bind(qMigrationInsert).int(int64(m.Version)).text(m.Name).text(m.Checksum).time(now).run(); err != nil {
				return err
			}
			done = append(done, m.Migration)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.setSchemaProblem(nil)
	return done, nil
}

// migrationError names the migration that met err. What SQLite says of the file
// itself it will say again: that is final.
func migrationError(m *migration.Migration, err error) error {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultError, sqlite.ResultConstraint, sqlite.ResultMismatch:
		return m.Failed(sdk.Unavailable("", err), true)
	default:
		return m.Failed(classify(err), false)
	}
}
