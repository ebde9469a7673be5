package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/plugins/exporters/awsmarketplace"
	"github.com/fencepost/fencepost/plugins/exporters/cloudevents"
	"github.com/fencepost/fencepost/plugins/exporters/ndjson"
	"github.com/fencepost/fencepost/plugins/exporters/stripe/module"
	"github.com/fencepost/fencepost/plugins/exporters/webhook"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// version is set by the Makefile with -ldflags.
var version = "dev"

const defaultConfig = "fencepost.yaml"

// builtins are the plugins of this binary. lockWait bounds the wait for another
// process that has the store open; negative is none.
func builtins(lockWait time.Duration) host.Builtins {
	return host.Builtins{
		Storage: map[string]host.OpenStorage{
			"sqlite": func(ctx context.Context, dsn string, logger *slog.Logger) (storage.Adapter, error) {
				return openSQLite(ctx, dsn, sqlite.Config{Migrate: true, Logger: logger, LockWait: lockWait})
			},
			"postgres": openPostgres,
			"mysql": func(ctx context.Context, dsn string, logger *slog.Logger) (storage.Adapter, error) {
				return openMySQL(ctx, dsn, logger, false)
			},
		},
		SQL:       openDatabase,
		Exporters: map[string]func() ([]byte, error){"stripe": module.Bytes},
		Linked: map[string]exporter.New{
			"webhook": webhook.New, "cloudevents": cloudevents.New, "ndjson": ndjson.New, "aws-marketplace": awsmarketplace.New,
		},
	}
}

func openSQLite(ctx context.Context, dsn string, cfg sqlite.Config) (*sqlite.Adapter, error) {
	cfg.Path = dsn
	return sqlite.Open(ctx, cfg)
}

// loadConfig reads the configuration the user named, or ./fencepost.yaml if it
// exists, or none.
func (a *app) loadConfig() (config.Config, error) {
	path := a.configPath
	if path == "" {
		if _, err := os.Stat(defaultConfig); errors.Is(err, fs.ErrNotExist) {
			return config.Parse(nil)
		}
		path = defaultConfig
	}
	return config.Load(path)
}

// openHost opens the configured host, with its delivery loops or without.
func (a *app) openHost(ctx context.Context, cfg config.Config, logger *slog.Logger, deliver bool) (*host.Host, error) {
	return host.Open(ctx, hostConfig(cfg, logger, deliver))
}

func hostConfig(cfg config.Config, logger *slog.Logger, deliver bool) host.Config {
	lockWait := time.Duration(0) // a server waits for its predecessor to end
	if !deliver {
		lockWait = -1
	}
	return host.Config{
		Settings: cfg, Builtins: builtins(lockWait), WithoutDelivery: !deliver,
		Version: programVersion(), Getenv: os.LookupEnv, Logger: logger, Worker: []string{workerCommandName},
	}
}

func programVersion() string {
	if version != "dev" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return version
}

// storeExists keeps a command that reads from creating a store where there is
// none: an empty answer would look like no usage.
func storeExists(cfg config.Config) error {
	if cfg.Storage.Plugin != "builtin:sqlite" {
		return nil
	}
	if _, err := os.Stat(cfg.Storage.DSN); !errors.Is(err, fs.ErrNotExist) {
		return nil // what else may be wrong with it, opening says
	}
	return &sdk.Error{
		Tag: sdk.TagNotFound, Field: "storage.dsn", Rule: "a store that exists; there is none at " + cfg.Storage.DSN,
		Hint: "name its configuration with --config or a server with --server; serve and record create one",
	}
}

// access is what a command does with the store.
type access int

const (
	toRead    access = iota // the store must exist
	toWrite                 // it is created if there is none
	toRecord                // and exporters say what can be expressed
	toReplace               // as toRecord, but the store must exist
)

// openAPI returns a client of the API: of the server that was named, of this
// process on the configured store, or, if another process holds the store, of
// the server at the configured address. Exporters are loaded only for
// recording: nothing else asks what a provider can express.
func (a *app) openAPI(ctx context.Context, use access) (*client, error) {
	if a.server != "" {
		return remoteClient(a.server)
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	if use == toRead || use == toReplace {
		if err := storeExists(cfg); err != nil {
			return nil, err
		}
	}
	if use != toRecord && use != toReplace {
		cfg.Exporters = nil
	}
	for deadline := time.Now().Add(storePatience); ; {
		h, err := a.openHost(ctx, cfg, errorLogger(a.err), false)
		if err == nil {
			return localClient(h), nil
		}
		locked, ok := errors.AsType[*sdk.Error](err)
		if !ok || locked.Code != "store_locked" {
			return nil, err
		}
		c, err := remoteClient("http://" + cfg.Listen)
		if err != nil {
			return nil, err
		}
		if c.serves(ctx, storeName(cfg)) {
			return c, nil
		}
		if time.Now().After(deadline) {
			return nil, heldError(locked, c.base)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// storePatience is how long a command waits for another that has the store
// open, or for a server that is starting to answer.
const storePatience = 3 * time.Second

func heldError(locked *sdk.Error, base string) error {
	return &sdk.Error{
		Tag: sdk.TagUnavailable, Code: locked.Code, Field: "storage.dsn", Err: locked.Err,
		Rule: "a store that no other process has open, or whose server answers at " + base,
		Hint: "if a server on this store listens elsewhere, name it with --server; otherwise stop the process that has the store open",
	}
}

// storeHeader is where a server names the store that it has open, so that a
// command which finds the store taken can tell its server from any other at
// the same address.
const storeHeader = "Fencepost-Store"

// storeName names the configured store, the same for every path that leads to
// it, without telling the path.
func storeName(cfg config.Config) string {
	if cfg.Storage.Plugin == postgresPlugin {
		sum := sha256.Sum256([]byte(postgresPlugin + "\x00" + postgresName(cfg.Storage.DSN)))
		return hex.EncodeToString(sum[:16])
	}
	path, err := filepath.Abs(cfg.Storage.DSN)
	if err != nil {
		path = cfg.Storage.DSN
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	sum := sha256.Sum256([]byte(cfg.Storage.Plugin + "\x00" + path))
	return hex.EncodeToString(sum[:16])
}

// errorLogger is for commands that say themselves what went wrong.
func errorLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelError}))
}

// quietLogger shows a command's user only what is wrong.
func quietLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
