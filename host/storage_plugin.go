package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/linked"
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/host/carrier/worker"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/remote"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest/storageplugin"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// StoragePlugin is a storage adapter that is a plugin, wherever it runs: a
// program in a process of its own, a module in this process or in a worker, or
// code of this program. One of Bytes and Link is set.
type StoragePlugin struct {
	Name, Version string
	// Bytes are the program, an ELF executable, or the module.
	Bytes []byte
	// Link opens an adapter of this program.
	Link storageplugin.Open
	// Isolation of Bytes: process, inproc or worker.
	Isolation grant.Isolation
	// Capabilities are granted. One that has sql gets no data source name: the
	// host opens what it leads to.
	Capabilities []capability.Name
	// Network lets a program use the host's network. It may write files; a
	// module can neither.
	Network bool
	// Memory is what a process may have, in bytes; zero: a default.
	Memory int64
	// Worker are the arguments at which this program is a worker.
	Worker []string
	// CacheDir holds the compiled code of modules; empty: none is kept.
	CacheDir string
	// Database opens what a data source name leads to. Needed with sql.
	Database OpenDatabase
	// AsItIs leaves the schema as it is, for those who look at it or bring it
	// up to date; else Open does.
	AsItIs bool
	// Started is told of every process; nil: nobody.
	Started func()
	// Logger gets what it writes to stderr; nil: nobody.
	Logger *slog.Logger
}

const (
	// storeCalls is how many calls of a program run at once: more than record
	// at once by default, so that deliveries do not wait for them.
	storeCalls = 128
	// storeInstances is how many calls of a module run at once, each in an
	// instance, or in a worker, of its own.
	storeInstances = 8
	// storePages is the most memory of an instance: a request and its answer
	// may have 32 MiB each.
	storePages = 2048
	// storeAsks is how often one call may ask for work on its database: a
	// thousand transitions read and write in pages.
	storeAsks = 10_000
)

// storeConns is how many connections a plugin's database gets. A call has one
// transaction open at a time, or waits.
const storeConns = 16

// Open opens the store that dsn names. Closing the adapter ends what runs.
func (p StoragePlugin) Open(ctx context.Context, dsn string) (storage.Adapter, error) {
	cfg := remote.Config{Plugin: p.Name, Opening: storage.Opening{DSN: dsn, Migrate: !p.AsItIs}}
	var acts carrier.Host
	var db Database
	if slices.Contains(p.Capabilities, capability.SQLName) {
		if p.Database == nil {
			return nil, &sdk.Error{
				Tag: sdk.TagUnsupported, Code: "no_sql", Field: "storage.plugin",
				Rule: "without the capability sql in a program that opens no databases", Hint: "set host.Builtins.SQL",
			}
		}
		var err error
		if db, err = p.Database(dsn, storeConns); err != nil {
			return nil, atDSN(err)
		}
		acts.SQLDo, cfg.Begin, cfg.Opening.DSN = db.Do, db.Begin, ""
	}
	caller, image, err := p.carry(ctx, acts, cfg.Opening)
	if err != nil {
		return nil, errors.Join(err, closeDatabase(db))
	}
	cfg.Caller = withResources{carrier.Supervise(p.Name, &reopening{Caller: caller}, p.supervision()), image, db}
	a, err := remote.Open(ctx, cfg)
	if err != nil {
		return nil, err // not a nil adapter in an interface
	}
	return a, nil
}

// atDSN says which setting an error of a data source name is about.
func atDSN(err error) error {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return err
	}
	at := *e
	at.Field = "storage.dsn"
	return &at
}

// supervision starts what ended again, later and later. A call that took too
// long says nothing of a store: others may be slow as well, and a process that
// does not answer is ended by its carrier.
func (p StoragePlugin) supervision() carrier.Supervision {
	return carrier.Supervision{
		Cap: 5 * time.Second, Park: 15 * time.Second, Elapsed: egress.Elapsed, Uniform: uniform, Logger: p.Logger,
		Blames: func(f *carrier.Fault) bool {
			return f.Kind == carrier.KindTrap || f.Kind == carrier.KindExit || f.Kind == carrier.KindMemory || f.Kind == carrier.KindProtocol
		},
	}
}

// carry puts the adapter on the carrier of its isolation.
func (p StoragePlugin) carry(ctx context.Context, acts carrier.Host, o storage.Opening) (carrier.Caller, *process.Image, error) {
	request, err := storagev1.EncodeOpening(&o)
	if err != nil {
		return nil, nil, err
	}
	// Each instance opens the store for itself.
	setup := []carrier.SetupCall{{Method: uint32(storagev1.MethodOpen), Request: request}}
	if p.Link != nil {
		c, err := linked.Open(linked.Config{
			Name: p.Name, New: func(h capability.Host) linked.Callee { return storageplugin.NewDispatcher(p.Link, h) },
			Granted: p.Capabilities, Host: acts, Setup: setup, MaxInstances: storeConns,
			Asks: carrier.AskLimits{MaxHTTPSends: storeAsks}, Logger: p.Logger,
		})
		return c, nil, err
	}
	limits := wasm.Limits{
		MaxRequest: wirev1.MaxMessage, MaxOutput: wirev1.MaxMessage, MaxInstances: storeInstances, MemoryPages: storePages, MaxHTTPSends: storeAsks,
	}
	switch p.Isolation {
	case grant.InProcess:
		c, err := wasm.Open(ctx, wasm.Config{
			Name: p.Name, Version: p.Version, Module: p.Bytes, Declared: p.Capabilities, Granted: p.Capabilities,
			Host: acts, Setup: setup, InertFiles: true, Limits: limits, CacheDir: p.CacheDir, Logger: p.Logger,
		})
		return c, nil, err
	case grant.Worker:
		return p.work(acts, setup, limits)
	case grant.Process:
		return p.run(acts)
	}
	return nil, nil, sdk.Invalid("isolation", "inproc, worker or process")
}

func (p StoragePlugin) work(acts carrier.Host, setup []carrier.SetupCall, limits wasm.Limits) (carrier.Caller, *process.Image, error) {
	if err := hasWorker(grant.Worker, p.Worker); err != nil {
		return nil, nil, err
	}
	image, err := process.Self()
	if err != nil {
		return nil, nil, err
	}
	c, err := worker.Open(worker.Config{
		Name: p.Name, Version: p.Version, Image: image, Args: p.Worker, Module: p.Bytes, Declared: p.Capabilities, Granted: p.Capabilities,
		InertFiles: true, Host: acts, Setup: setup, Limits: limits, Memory: p.Memory, CacheDir: p.CacheDir, Started: p.Started, Logger: p.Logger,
	})
	if err != nil {
		return nil, nil, errors.Join(err, image.Close())
	}
	return c, image, nil
}

func (p StoragePlugin) run(acts carrier.Host) (carrier.Caller, *process.Image, error) {
	image, err := process.NewImage(p.Name, p.Bytes)
	if err != nil {
		return nil, nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "storage.plugin", Rule: "a program that runs here", Err: err}
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("current folder: %w", err), image.Close())
	}
	c, err := process.OpenShared(process.Config{
		Name: p.Name, Version: p.Version, Image: image, Granted: p.Capabilities, Host: acts,
		// A relative file name in dsn is that of the same file for builtin and exec.
		Sandbox: process.Sandbox{Network: p.Network, Files: true, Dir: dir},
		Limits: process.Limits{
			MaxRequest: wirev1.MaxMessage, MaxOutput: wirev1.MaxMessage, MaxInstances: storeCalls, Memory: p.Memory,
			Asks: carrier.AskLimits{MaxHTTPSends: storeAsks},
		},
		Started: p.Started, Logger: p.Logger,
	}, 0)
	if err != nil {
		return nil, nil, errors.Join(err, image.Close())
	}
	return c, image, nil
}

// reopening opens the store again in a process that took the place of one that
// ended, as a part of the call that finds it so: under supervision an answer that
// it is not open yet would count as one of a plugin that works.
type reopening struct {
	carrier.Caller
	mu sync.Mutex
	// request opened the store, and answer is what came of it.
	request, answer []byte
}

func (r *reopening) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	answer, err := r.Caller.Call(ctx, method, request)
	r.mu.Lock()
	open, want := r.request, r.answer
	if err == nil && method == uint32(storagev1.MethodOpen) && open == nil {
		r.request, r.answer = request, answer
	}
	r.mu.Unlock()
	if open == nil || method == uint32(storagev1.MethodOpen) || !notOpen(err) {
		return answer, err
	}
	got, openErr := r.Caller.Call(ctx, uint32(storagev1.MethodOpen), open)
	if fault, ok := errors.AsType[*carrier.Fault](openErr); ok {
		unreached := *fault
		unreached.Entered = false // the call itself was not reached
		return nil, &unreached
	}
	if openErr != nil || !bytes.Equal(got, want) {
		return answer, err // remote opens it, and says what is wrong
	}
	return r.Caller.Call(ctx, method, request)
}

func notOpen(err error) bool {
	told, ok := errors.AsType[*carrier.PluginError](err)
	if !ok {
		return false
	}
	e, err := wirev1.DecodeError(told.Payload)
	return err == nil && e.Code == storagev1.CodeNotOpen
}

// withResources closes what a carrier stands on with it.
type withResources struct {
	carrier.Caller
	image *process.Image
	db    Database
}

func (w withResources) Close(ctx context.Context) error {
	err := w.Caller.Close(ctx)
	if w.image != nil {
		err = errors.Join(err, w.image.Close())
	}
	return errors.Join(err, closeDatabase(w.db))
}

func closeDatabase(db Database) error {
	if db == nil {
		return nil
	}
	return db.Close()
}
