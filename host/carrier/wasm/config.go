package wasm

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Config says what to load and what it may do. Zero fields take the defaults
// that their comments name.
type Config struct {
	// Name and Version name the plugin in errors, logs and faults. Name is
	// required.
	Name, Version string
	// Module is the WebAssembly binary, at most 16 MiB. It must not be changed
	// afterwards.
	Module []byte
	// SHA256 is the expected digest of Module in lower-case hex. Empty skips
	// the comparison.
	SHA256 string
	// Declared are the capabilities in the plugin's manifest, Granted those
	// that the operator allows. A module that imports a capability which is
	// not in both is refused before any of its code runs. A capability that
	// is in both but not imported is harmless.
	Declared, Granted []capability.Name
	// InertFiles lets the module import WASI's file functions, which then
	// always answer "not supported". A Go guest links them as soon as any
	// package below it could open a file, net/http for one. Off, such a
	// module is refused. No plugin ever gets a file, either way.
	InertFiles bool
	// Host acts for the plugin.
	Host Host
	// Setup are calls that every new instance answers before its first call.
	// An Error message or a Fault of one is what that first call gets.
	Setup []SetupCall
	// Limits bound what the plugin uses.
	Limits Limits
	// CacheDir holds compiled code. It is created with mode 0700; an existing
	// one that is not owned by this user, or that others may write, is
	// refused, because its content runs as native code. Empty means no cache.
	CacheDir string
	// Logger gets what the plugin writes to stdout and stderr, at most a few
	// lines a second, and what happens to instances. Default: discarded.
	Logger *slog.Logger
}

// SetupCall is one call made to a new instance.
type SetupCall = carrier.SetupCall

// Host holds the handlers behind the import modules. They are called from the
// goroutine of Call.
type Host = carrier.Host

// Limits bound one plugin. Zero fields take the default.
type Limits struct {
	// MemoryPages is the most memory an instance may have, in pages of
	// 64 KiB. Default 512 (32 MiB), at most 16,384 (1 GiB).
	MemoryPages uint32
	// HighWaterPages: an instance with more memory than this after a call is
	// replaced, because guest memory never shrinks. Default 3/4 of
	// MemoryPages.
	HighWaterPages uint32
	// MaxCalls: an instance is replaced after this many calls. Default
	// 10,000.
	MaxCalls int
	// MaxInstances is how many calls may run at once; others wait. Default 2.
	MaxInstances int
	// MaxRequest and MaxOutput bound request and answer in bytes. Defaults
	// 4 MiB and 1 MiB.
	MaxRequest, MaxOutput int
	// MaxHTTPBatch bounds one encoded HttpBatch, AppendBatch or Work of sqlv1 in
	// bytes. Default 4 MiB.
	MaxHTTPBatch int
	// MaxHTTPSends bounds the batches of one call. Default 1,000.
	MaxHTTPSends int
	// MaxLogLines bounds the log capability's lines of one call; more are
	// dropped and counted. Default 100.
	MaxLogLines int
	// MaxFunctions bounds the functions that the module defines. Default
	// 20,000.
	MaxFunctions int
	// CallTimeout bounds a call whose context has no earlier deadline.
	// Default 2 minutes.
	CallTimeout time.Duration
}

// maxModule is the largest module: what a large Go guest needs, and no more
// than compiles in bounded memory.
const maxModule = 16 << 20

// maxPages is the largest memory that may be configured.
const maxPages = 16_384

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		return c, errors.New("plugin name: required")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("plugin", c.Name, "version", c.Version)
	if c.Host.Now == nil {
		c.Host.Now = time.Now
	}
	if c.Host.Random == nil {
		c.Host.Random = rand.Reader
	}
	if c.Host.Log == nil {
		logger := c.Logger
		c.Host.Log = func(ctx context.Context, level capability.Level, line string) {
			logger.Log(ctx, slog.Level(level), "plugin says", "line", line)
		}
	}
	c.Limits = c.Limits.withDefaults()
	return c, nil
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.MemoryPages, 512)
	l.MemoryPages = min(l.MemoryPages, maxPages)
	orDefault(&l.HighWaterPages, l.MemoryPages/4*3)
	orDefault(&l.MaxCalls, 10_000)
	orDefault(&l.MaxInstances, 2)
	orDefault(&l.MaxRequest, 4<<20)
	orDefault(&l.MaxOutput, 1<<20)
	orDefault(&l.MaxHTTPBatch, 4<<20)
	orDefault(&l.MaxHTTPSends, 1_000)
	orDefault(&l.MaxLogLines, 100)
	orDefault(&l.MaxFunctions, 20_000)
	orDefault(&l.CallTimeout, 2*time.Minute)
	return l
}

func orDefault[T uint32 | int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
