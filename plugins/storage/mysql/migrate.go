package mysql

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storage/migration"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const migrateHint = "run fencepost migrate up"

const (
	createMigrations = "CREATE TABLE IF NOT EXISTS fencepost_migrations (version BIGINT NOT NULL PRIMARY KEY, name VARBINARY(255) NOT NULL, " +
		"checksum VARBINARY(64) NOT NULL, applied_at DATETIME(6) NOT NULL) ENGINE = InnoDB"
	readMigrations = "SELECT version, name, checksum, applied_at FROM fencepost_migrations ORDER BY version"
	putMigration   = "INSERT INTO fencepost_migrations (version, name, checksum, applied_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6)) " +
		"ON DUPLICATE KEY UPDATE version = VALUES(version)"
)

// applied reads the bookkeeping; a store without it has none.
func (a *Adapter) applied(ctx context.Context) ([]storage.Migration, error) {
	var all []storage.Migration
	err := a.read(ctx, "read migrations", func(r []result) error {
		return r[0].each(func(r *row) {
			all = append(all, storage.Migration{Version: int(r.int()), Name: r.text(), Checksum: r.text(), AppliedAt: r.time()})
		})
	}, read(readMigrations))
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code == "schema_missing" {
		return nil, nil
	}
	return all, err
}

// checkSchema says why the schema cannot be used.
func (a *Adapter) checkSchema(ctx context.Context) error {
	known, err := migration.Known(migrationFiles, "migrations")
	if err != nil {
		return err
	}
	applied, err := a.applied(ctx)
	if err != nil {
		return err
	}
	missing, problem := migration.Compare(known, applied)
	switch {
	case problem != nil:
		return problem
	case len(missing) == len(known):
		return &sdk.Error{Tag: sdk.TagInvalid, Code: "schema_missing", Field: migration.Field, Rule: "a store with the fencepost schema", Hint: migrateHint}
	case len(missing) > 0:
		return &sdk.Error{
			Tag: sdk.TagInvalid, Code: "schema_outdated", Field: migration.Field,
			Rule: fmt.Sprintf("a store of schema version %d", len(known)), Hint: migrateHint,
		}
	}
	return nil
}

// MigrationStatus implements [storage.Migrator].
func (a *Adapter) MigrationStatus(ctx context.Context) ([]storage.Migration, error) {
	known, err := migration.Known(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	all, err := a.applied(ctx)
	if err != nil {
		return nil, err
	}
	_, problem := migration.Compare(known, all)
	for _, m := range known {
		if !slices.ContainsFunc(all, func(x storage.Migration) bool { return x.Version == m.Version }) {
			all = append(all, m.Migration)
		}
	}
	slices.SortFunc(all, func(a, b storage.Migration) int { return cmp.Compare(a.Version, b.Version) })
	if problem != nil {
		return all, problem
	}
	return all, nil
}

// Migrate implements [storage.Migrator]. MySQL commits each CREATE by itself, so
// a migration is written to be repeated: one that broke off, or that two hosts
// run at once, ends complete, and is noted when it is.
func (a *Adapter) Migrate(ctx context.Context) ([]storage.Migration, error) {
	known, err := migration.Known(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	before, err := a.applied(ctx)
	if err != nil {
		return nil, err
	}
	missing, problem := migration.Compare(known, before)
	if problem != nil {
		return nil, problem
	}
	if len(missing) == 0 {
		return nil, nil
	}
	for _, m := range missing {
		if err := a.apply(ctx, m); err != nil {
			return nil, failed(ctx, &m, err)
		}
	}
	after, err := a.applied(ctx)
	if err != nil {
		return nil, err
	}
	var done []storage.Migration
	for _, m := range after {
		if slices.ContainsFunc(missing, func(x migration.Migration) bool { return x.Version == m.Version }) {
			done = append(done, m)
		}
	}
	return done, nil
}

// failed is the error of a migration that could not be applied. What the database
// refuses it will refuse again.
func failed(ctx context.Context, m *migration.Migration, err error) error {
	cause := sdk.Unavailable("store", err)
	e, ok := errors.AsType[*sdk.Error](err)
	if ok {
		cause = e
	}
	if ctx.Err() != nil {
		return m.Failed(contextError(ctx.Err()), false)
	}
	final := ok && e.Tag != sdk.TagUnavailable
	f := m.Failed(cause, final)
	if final {
		f.Hint = "what it made before that stays; undo what was changed by hand, then run fencepost migrate up"
	}
	return f
}

func (a *Adapter) apply(ctx context.Context, m migration.Migration) error {
	done, err := a.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	list := []capability.Statement{{SQL: createMigrations}}
	for text := range strings.SplitSeq(m.SQL, ";\n") {
		if text = statement(text); text != "" {
			list = append(list, capability.Statement{SQL: text})
		}
	}
	list = append(list, capability.Statement{SQL: putMigration, Args: values([]any{m.Version, m.Name, m.Checksum})})
	t := &tx{ctx: ctx, sql: a.sql}
	_, err = t.do(list, capability.Commit)
	return err
}

// Script is the SQL of every migration, for people who apply it themselves. It
// does not note what was applied: Migrate, which can be repeated, does.
func Script() (string, error) {
	known, err := migration.Known(migrationFiles, "migrations")
	var b strings.Builder
	for _, m := range known {
		fmt.Fprintf(&b, "-- %04d_%s\n%s\n", m.Version, m.Name, m.SQL)
	}
	return b.String(), err
}

// statement leaves the comments out.
func statement(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.TrimSuffix(strings.TrimSpace(strings.Join(lines, "\n")), ";")
}
