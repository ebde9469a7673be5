package main

import (
	"context"
	"log/slog"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/sql"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/mysql"
)

// database is what host/sql opens, as the host takes it.
type database struct{ *sql.Database }

// Begin implements [host.Database].
func (d database) Begin(ctx context.Context) (context.Context, func()) {
	ctx, session := d.Database.Begin(ctx)
	return ctx, session.End
}

func openDatabase(dsn string, conns int) (host.Database, error) {
	db, err := sql.Open(dsn, conns)
	if err != nil {
		return nil, err // not a nil database in an interface
	}
	return database{db}, nil
}

const mysqlPlugin = "builtin:mysql"

// openMySQL opens the adapter that is linked in: the same as a module or a
// program, without what would keep it apart.
func openMySQL(ctx context.Context, dsn string, logger *slog.Logger, asItIs bool) (storage.Adapter, error) {
	dsn, err := secretDSN(dsn)
	if err != nil {
		return nil, err
	}
	return host.StoragePlugin{
		Name: "mysql", Version: mysql.Version, Link: mysql.OpenPlugin, Capabilities: []capability.Name{capability.SQLName},
		Database: openDatabase, AsItIs: asItIs, Logger: logger,
	}.Open(ctx, dsn)
}
