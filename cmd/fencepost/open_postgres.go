package main

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
)

const postgresPlugin = "builtin:postgres"

// secretDSN reads a data source name, which may be a reference: it holds a
// password.
func secretDSN(dsn string) (string, error) {
	if !strings.HasPrefix(dsn, "env:") && !strings.HasPrefix(dsn, "file:") {
		return dsn, nil
	}
	secret, err := grant.ResolveSecret(dsn, os.LookupEnv, os.ReadFile)
	if err != nil {
		return "", &sdk.Error{Tag: sdk.TagInvalid, Field: "storage.dsn", Rule: "a reference to a data source name", Err: err}
	}
	return secret.Reveal(), nil
}

func openPostgres(ctx context.Context, dsn string, logger *slog.Logger) (storage.Adapter, error) {
	st, err := connectPostgres(ctx, dsn, postgres.Config{Logger: logger, Migrate: true})
	if err != nil {
		return nil, err // not a nil adapter in an interface
	}
	return st, nil
}

func connectPostgres(ctx context.Context, dsn string, cfg postgres.Config) (*postgres.Adapter, error) {
	var err error
	if cfg.DSN, err = secretDSN(dsn); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, cfg)
}

// postgresName names the database and the schema without the credentials.
func postgresName(dsn string) string {
	resolved, err := secretDSN(dsn)
	if err != nil {
		return dsn // a reference that names nothing
	}
	return postgres.Name(resolved)
}
