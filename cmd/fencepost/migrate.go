package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/mysql"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

func migrateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "The schema of the store"}
	cmd.AddCommand(
		&cobra.Command{
			Use: "status", Short: "List migrations and whether they are applied", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return a.withStore(cmd.Context(), func(m storage.Migrator) error {
					list, err := m.MigrationStatus(cmd.Context())
					if len(list) == 0 {
						return err
					}
					// A store that must not be used has a list too.
					return errors.Join(a.print(migrationListing(list)), err)
				})
			},
		},
		&cobra.Command{
			Use: "up", Short: "Apply what is missing", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return a.withStore(cmd.Context(), func(m storage.Migrator) error {
					applied, err := m.Migrate(cmd.Context())
					if err != nil {
						return err
					}
					if len(applied) == 0 {
						fmt.Fprintln(a.err, "nothing to do: every migration is applied")
					}
					return a.print(migrationListing(applied))
				})
			},
		},
		&cobra.Command{
			Use: "print", Short: "Print the SQL, for people who apply it with a tool of their own", Args: noArgs,
			RunE: func(*cobra.Command, []string) error { return a.printMigrations() },
		},
	)
	return cmd
}

// withStore opens the configured store without changing its schema.
func (a *app) withStore(ctx context.Context, f func(storage.Migrator) error) error {
	if a.server != "" {
		return usageError{errors.New("--server (or FENCEPOST_SERVER): not for migrate, which works on the store itself")}
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	st, err := a.openAsItIs(ctx, cfg)
	if err != nil {
		return err
	}
	m, ok := storage.As[storage.Migrator](st)
	if !ok {
		return errors.Join(errOwnSchema, st.Close())
	}
	return errors.Join(f(m), st.Close())
}

// openAsItIs opens the configured store, whatever its schema.
func (a *app) openAsItIs(ctx context.Context, cfg config.Config) (storage.Adapter, error) {
	logger := errorLogger(a.err)
	switch cfg.Storage.Plugin {
	case "builtin:sqlite":
		st, err := openSQLite(ctx, cfg.Storage.DSN, sqlite.Config{Logger: logger, LockWait: -1})
		if err != nil {
			return nil, err // not a nil adapter in an interface
		}
		return st, nil
	case postgresPlugin:
		st, err := connectPostgres(ctx, cfg.Storage.DSN, postgres.Config{Logger: logger})
		if err != nil {
			return nil, err
		}
		return st, nil
	case mysqlPlugin:
		return openMySQL(ctx, cfg.Storage.DSN, logger, true)
	}
	return hostConfig(cfg, logger, false).OpenStorage(ctx)
}

var errOwnSchema = &sdk.Error{
	Tag: sdk.TagUnsupported, Field: "storage.plugin", Rule: "an adapter with migrations; this one versions its schema itself",
}

func migrationListing(list []storage.Migration) listing {
	type row struct {
		Version   int    `json:"version"`
		Name      string `json:"name"`
		Checksum  string `json:"checksum"`
		Applied   bool   `json:"applied"`
		AppliedAt string `json:"applied_at,omitempty"`
	}
	l := listing{columns: []string{"VERSION", "NAME", "APPLIED"}}
	rows := []row{}
	for _, m := range list {
		r := row{Version: m.Version, Name: m.Name, Checksum: m.Checksum, Applied: m.Applied()}
		at := "no"
		if m.Applied() {
			r.AppliedAt = m.AppliedAt.UTC().Format("2006-01-02T15:04:05.000000Z")
			at = r.AppliedAt
		}
		rows = append(rows, r)
		l.rows = append(l.rows, []string{strconv.Itoa(m.Version), m.Name, at})
		l.items = append(l.items, r)
	}
	l.data = rows
	return l
}

func (a *app) printMigrations() error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	if cfg.Storage.Plugin == postgresPlugin {
		dsn, err := secretDSN(cfg.Storage.DSN)
		if err != nil {
			return err
		}
		text, err := postgres.Script(dsn)
		if err == nil {
			fmt.Fprint(a.out, text)
		}
		return err
	}
	if cfg.Storage.Plugin == mysqlPlugin {
		text, err := mysql.Script()
		if err == nil {
			fmt.Fprint(a.out, text)
		}
		return err
	}
	if cfg.Storage.Plugin != "builtin:sqlite" {
		return errOwnSchema
	}
	return fs.WalkDir(migrations.FS, "sqlite", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".sql") {
			return err
		}
		b, err := fs.ReadFile(migrations.FS, path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		fmt.Fprintf(a.out, "-- %s\n%s\n", path, b)
		return nil
	})
}
