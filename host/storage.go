package host

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Database is one that the operator named, on which a plugin runs statements. A
// transaction belongs to the call that began it. See package host/sql.
type Database interface {
	// Begin starts a call of the plugin; end rolls back what it left open.
	Begin(ctx context.Context) (_ context.Context, end func())
	// Do performs an encoded Work for the call whose context this is.
	Do(ctx context.Context, work []byte) ([]byte, error)
	// Close closes its connections.
	Close() error
}

// OpenDatabase opens what a data source name leads to, with at most so many
// connections. Nothing is connected yet. Its errors never hold the name.
type OpenDatabase func(dsn string, conns int) (Database, error)

// openStore opens what storage.plugin names: "builtin:NAME" in this program, or
// "exec:NAME" and "wasm:NAME" among the installed plugins.
func (h *Host) openStore(ctx context.Context) error {
	if h.store != nil {
		return nil
	}
	st, err := h.cfg.openStorage(ctx, func() { h.metrics.PluginStarted(storeMetric) }, true)
	if err != nil {
		return fmt.Errorf("open storage: %w", err)
	}
	h.store, h.ownsStore = st, true
	return nil
}

// storeMetric is how a plugin that is the store is called in metrics.
const storeMetric = "storage"

// OpenStorage opens the adapter that cfg.Settings names, as a host with this
// configuration does, but leaves its schema as it is where it is a plugin; a
// builtin does as its function does. Its caller closes it.
func (cfg Config) OpenStorage(ctx context.Context) (storage.Adapter, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	st, err := cfg.openStorage(ctx, nil, false)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	return st, nil
}

func (cfg *Config) openStorage(ctx context.Context, started func(), migrate bool) (storage.Adapter, error) {
	s := cfg.Settings.Storage
	scheme, name, _ := strings.Cut(s.Plugin, ":")
	open := cfg.Builtins.Storage[name]
	switch {
	case scheme == "builtin" && open != nil:
		return open(ctx, s.DSN, cfg.Logger)
	case (scheme == "exec" || scheme == "wasm") && name != "":
		p, err := cfg.storePlugin(name, scheme == "wasm")
		if err != nil {
			return nil, err
		}
		dsn, err := cfg.storeName()
		if err != nil {
			return nil, err
		}
		p.Started, p.AsItIs = started, !migrate
		return p.Open(ctx, dsn)
	}
	return nil, unknownPlugin("storage.plugin", "exec:NAME or wasm:NAME of an installed plugin, or one of", slices.Collect(maps.Keys(cfg.Builtins.Storage)))
}

// storeName resolves storage.dsn, which may be a reference: it holds a password.
func (cfg *Config) storeName() (string, error) {
	dsn := cfg.Settings.Storage.DSN
	if !strings.HasPrefix(dsn, "env:") && !strings.HasPrefix(dsn, "file:") {
		return dsn, nil
	}
	secret, err := grant.ResolveSecret(dsn, cfg.Getenv, os.ReadFile)
	if err != nil {
		return "", &sdk.Error{Tag: sdk.TagInvalid, Field: "storage.dsn", Rule: "a reference to a data source name", Err: err}
	}
	return secret.Reveal(), nil
}

// storePlugin finds an installed adapter: its bytes were compared with
// plugins.lock, and what its manifest wants was granted there.
func (cfg *Config) storePlugin(name string, module bool) (StoragePlugin, error) {
	lock, err := grant.LoadLock(cfg.Settings.Plugins.Lock)
	if err != nil {
		return StoragePlugin{}, err
	}
	p, err := lock.Open(cfg.Settings.Plugins.Dir, name)
	if err != nil {
		return StoragePlugin{}, err
	}
	switch {
	case p.Kind != grant.KindStorage:
		return StoragePlugin{}, sdk.Invalid("storage.plugin", "a plugin of kind storage; "+p.Name+" is of kind "+string(p.Kind))
	case grant.IsModule(p.Bytes) != module:
		return StoragePlugin{}, sdk.Invalid("storage.plugin", "wasm: for a module and exec: for a program")
	case module != (p.Isolation == grant.InProcess || p.Isolation == grant.Worker):
		return StoragePlugin{}, sdk.Invalid("storage.plugin", "a program of isolation process, or a module of isolation inproc or worker; "+p.Name+" has isolation "+string(p.Isolation))
	}
	return StoragePlugin{
		Name: p.Name, Version: p.Version, Bytes: p.Bytes, Isolation: p.Isolation, Capabilities: p.Capabilities, Network: p.Network,
		Memory: int64(cfg.Settings.Plugins.Memory), Worker: cfg.Worker, CacheDir: cfg.Settings.Plugins.CacheDir(), Database: cfg.Builtins.SQL, Logger: cfg.Logger,
	}, nil
}
