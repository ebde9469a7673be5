package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/remote"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// openStore opens what storage.plugin names: "builtin:NAME" in this program, or
// "exec:NAME" among the installed plugins.
func (h *Host) openStore(ctx context.Context) error {
	if h.store != nil {
		return nil
	}
	s := h.cfg.Settings.Storage
	scheme, name, _ := strings.Cut(s.Plugin, ":")
	var st storage.Adapter
	var err error
	switch open := h.cfg.Builtins.Storage[name]; {
	case scheme == "builtin" && open != nil:
		st, err = open(ctx, s.DSN, h.cfg.Logger)
	case scheme == "exec" && name != "":
		st, err = h.storePlugin(ctx, name, s.DSN)
	default:
		return unknownPlugin("storage.plugin", "exec:NAME of an installed plugin, or one of", slices.Collect(maps.Keys(h.cfg.Builtins.Storage)))
	}
	if err != nil {
		return fmt.Errorf("open storage: %w", err)
	}
	h.store, h.ownsStore = st, true
	return nil
}

// storePlugin runs a storage adapter as a process of its own, from the bytes
// that were compared with plugins.lock. A store is made of files, or lies
// behind the network: it may write the former, and has the latter if that was
// granted.
func (h *Host) storePlugin(ctx context.Context, name, dsn string) (storage.Adapter, error) {
	lock, err := grant.LoadLock(h.cfg.Settings.Plugins.Lock)
	if err != nil {
		return nil, err
	}
	p, err := lock.Open(h.cfg.Settings.Plugins.Dir, name)
	if err != nil {
		return nil, err
	}
	if p.Kind != grant.KindStorage || p.Isolation != grant.Process {
		return nil, sdk.Invalid("storage.plugin", "a program of kind storage; "+p.Name+" is of kind "+string(p.Kind)+", isolation "+string(p.Isolation))
	}
	if strings.HasPrefix(dsn, "env:") || strings.HasPrefix(dsn, "file:") {
		secret, err := grant.ResolveSecret(dsn, h.cfg.Getenv, os.ReadFile)
		if err != nil {
			return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "storage.dsn", Rule: "a reference to a data source name", Err: err}
		}
		dsn = secret.Reveal()
	}
	return StorageProgram{
		Name: p.Name, Version: p.Version, Bytes: p.Bytes, Network: p.Network, Memory: int64(h.cfg.Settings.Plugins.Memory),
		Started: func() { h.metrics.PluginStarted(p.Name) }, Logger: h.cfg.Logger,
	}.Open(ctx, dsn)
}

// StorageProgram is a storage adapter that runs as a process of its own. It may
// write files.
type StorageProgram struct {
	Name, Version string
	// Bytes are the program: an ELF executable.
	Bytes []byte
	// Network lets it use the host's network.
	Network bool
	// Memory is what it may have, in bytes; zero: a default.
	Memory int64
	// Started is told of every process; nil: nobody.
	Started func()
	// Logger gets what it writes to stderr; nil: nobody.
	Logger *slog.Logger
}

// Open starts the program and opens the store that dsn names, with its schema
// brought up to date. The adapter ends the process when it is closed.
func (p StorageProgram) Open(ctx context.Context, dsn string) (storage.Adapter, error) {
	image, err := process.NewImage(p.Name, p.Bytes)
	if err != nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "storage.plugin", Rule: "a program that runs here", Err: err}
	}
	shared, err := process.OpenShared(process.Config{
		Name: p.Name, Version: p.Version, Image: image, Sandbox: process.Sandbox{Network: p.Network, Files: true},
		Limits: process.Limits{
			MaxRequest: wirev1.MaxMessage, MaxOutput: wirev1.MaxMessage, MaxInstances: storeCalls, Memory: p.Memory,
		},
		Started: p.Started, Logger: p.Logger,
	}, 0)
	if err != nil {
		return nil, errors.Join(err, image.Close())
	}
	a, err := remote.Open(ctx, remote.Config{
		Caller: withImage{shared, image}, Plugin: p.Name, Opening: storage.Opening{DSN: dsn, Migrate: true},
	})
	if err != nil {
		return nil, err // not a nil adapter in an interface
	}
	return a, nil
}

// storeCalls is how many calls of a storage plugin run at once: more than record
// at once by default, so that deliveries do not wait for them.
const storeCalls = 128

// withImage closes the image with the carrier.
type withImage struct {
	carrier.Caller
	image *process.Image
}

func (w withImage) Close(ctx context.Context) error {
	return errors.Join(w.Caller.Close(ctx), w.image.Close())
}
