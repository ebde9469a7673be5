package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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
	toSettle                // as toRecord, but the store must exist
	toReplace               // as toSettle, and makes items anew by the mapping in force
)

// routes is what a command does with the routes of the store: they are those of
// all servers, and only a server puts another mapping in force. A command that
// records does where there was none, so that nothing is recorded to nowhere.
func (u access) routes() host.RouteUse {
	if u == toRecord {
		return host.RoutesFirst
	}
	return host.RoutesKeep
}

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
	if use != toWrite && use != toRecord {
		if err := storeExists(cfg); err != nil {
			return nil, err
		}
	}
	if use == toRead || use == toWrite {
		cfg.Exporters = nil
	}
	for deadline := time.Now().Add(storePatience); ; {
		settings := hostConfig(cfg, errorLogger(a.err), false)
		settings.Routes = use.routes()
		h, err := host.Open(ctx, settings)
		if err == nil {
			return a.openLocal(ctx, h, use)
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

// openLocal returns a client of a host in this process, once it has said where
// the routes in force are not the configured ones: an item made anew by another
// mapping than its operator has before the eyes would be a surprise, and what is
// recorded is recorded by the mapping in force, as every host does.
func (a *app) openLocal(ctx context.Context, h *host.Host, use access) (*client, error) {
	c := localClient(h)
	if use != toRecord && use != toReplace {
		return c, nil
	}
	list, err := h.Unapplied(ctx)
	for _, d := range list {
		switch {
		case use == toRecord:
			fmt.Fprintf(a.err, "warning: only a server puts another mapping in force, this command records by the one in force: %s\n", visible(d.Detail))
		case d.Code == host.DegradedMappingDiffers:
			err = errors.Join(err, mappingDiffers(d))
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func mappingDiffers(d host.Degradation) error {
	return &sdk.Error{
		Tag: sdk.TagConflict, Code: d.Code, Field: "exporters", Rule: "the mapping in force; " + d.Detail,
		Hint: "name a server with --server, or start one with this configuration to put its mapping in force",
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
