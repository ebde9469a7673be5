// Package host runs an engine: it opens the storage and the plugins that a
// configuration names, starts the loops that deliver, and closes all of it in
// order. cmd/fencepost and embedding programs start here.
package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/telemetry"
	"github.com/fencepost/fencepost/outpost/server"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// OpenStorage opens a builtin storage adapter at a data source.
type OpenStorage func(ctx context.Context, dsn string, logger *slog.Logger) (storage.Adapter, error)

// Builtins are the plugins linked into the program, by the name that follows
// "builtin:" in a configuration.
type Builtins struct {
	Storage map[string]OpenStorage
	// Exporters are Wasm modules.
	Exporters map[string]func() ([]byte, error)
	// Linked are exporters that run in this program with nothing around them.
	// They count before Exporters of the same name.
	Linked map[string]exporter.New
	// SQL opens the databases on which plugins run statements. Nil: this
	// program opens none, and refuses plugins that need one.
	SQL OpenDatabase
}

// Config is what a host is made of. The zero value needs a Store.
type Config struct {
	// Settings are the operator's. The zero value is a working default.
	Settings config.Config
	// Store is an adapter that the caller opened and will close. Nil: opened
	// from Settings.Storage and closed with the host.
	Store storage.Adapter
	// Builtins are what "builtin:" references find.
	Builtins Builtins
	// WithoutDelivery opens everything that recording and reading need and
	// starts no loop.
	WithoutDelivery bool
	// Routes is what the host does with the stored routes. The zero value follows
	// the configuration.
	Routes RouteUse
	// Worker are the arguments at which this program, started again, calls
	// worker.Serve and nothing else. Without them no plugin runs in a worker.
	Worker []string
	// Version names this program to plugins and people.
	Version string
	// Getenv finds the variables that "env:" secrets name. Nil: none.
	Getenv func(string) (string, bool)
	// Tracer makes spans of calls and deliveries. Nil: none are made. The
	// caller shuts it down after Close.
	Tracer trace.TracerProvider
	// MetricReaders read the metrics beside the Prometheus page; Close shuts
	// them down.
	MetricReaders []metric.Reader
	// Loaded is told of an exporter whose plugin was opened behind Open, from a
	// goroutine of the host. Nil: nobody.
	Loaded func(exporter string)
	Logger *slog.Logger     // nil: discarded
	Now    func() time.Time // nil: time.Now
}

// RouteUse is what a host does with the stored routes, which all hosts record by,
// and with the stored settings of features.
type RouteUse int

const (
	// RoutesFollow brings them to the configuration, for all hosts.
	RoutesFollow RouteUse = iota
	// RoutesFirst puts the configured routes into a store that never had any, and
	// leaves those of any other as they are. Settings of features are stored.
	RoutesFirst
	// RoutesKeep changes nothing.
	RoutesKeep
)

// Host is a running engine. It is safe for concurrent use.
type Host struct {
	cfg       Config
	store     storage.Adapter
	ownsStore bool
	engine    *engine.Engine
	metrics   *telemetry.Metrics
	tracing   *telemetry.Tracing // nil: no spans
	exporters []*exporterRuntime
	// loads are openings of plugins that nobody waits for but Close; life ends
	// with the host.
	loads    sync.WaitGroup
	life     context.Context //nolint:containedctx // of what begins with the host
	end      context.CancelFunc
	replays  *replays
	outposts *server.Server
	presence *presence // nil: the store knows no hosts
	asked    reconciles
	owner    string

	stop  context.CancelFunc
	loops sync.WaitGroup
	once  sync.Once
	err   error

	mu       sync.Mutex
	degraded []Degradation
	// down holds, by exporter, until when its breaker keeps it from being
	// tried, on the clock of egress.Elapsed.
	down map[string]time.Duration
	// closing is set once nothing may be loaded any more.
	closing bool
	// readyErr is what the store answered at readyAt, on the same clock.
	readyMu  sync.Mutex
	readyErr error
	readyAt  time.Duration
}

// Open opens storage and plugins, brings the stored routes up to the
// configuration, and starts delivering; cfg may tell it otherwise.
//
// ctx bounds opening only. On an error everything that was opened is closed
// again; errors are tagged and name the setting at fault.
func Open(ctx context.Context, cfg Config) (_ *Host, err error) {
	if err := fault.Check(); err != nil {
		return nil, fmt.Errorf("fault schedule: %w", err)
	}
	cfg.Settings = cfg.Settings.WithDefaults()
	if err := cfg.Settings.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	h := &Host{cfg: cfg, store: cfg.Store, owner: newOwner(), stop: func() {}}
	h.life, h.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			_ = h.Close(context.WithoutCancel(ctx))
		}
	}()
	if h.metrics, err = telemetry.New(cfg.MetricReaders...); err != nil {
		return nil, err
	}
	if cfg.Tracer != nil {
		h.tracing = telemetry.NewTracing(cfg.Tracer)
	}
	if err := h.openStore(ctx); err != nil {
		return nil, err
	}
	h.metrics.SetPlugins(h.pluginSeries)
	for i, e := range cfg.Settings.Exporters {
		x, err := h.loadExporter(ctx, e, fmt.Sprintf("exporters[%d]", i))
		if err != nil {
			return nil, err
		}
		h.mu.Lock()
		h.exporters = append(h.exporters, x)
		h.mu.Unlock()
	}
	if err := h.openEngine(ctx); err != nil {
		return nil, err
	}
	if !cfg.WithoutDelivery {
		return h, h.start(ctx)
	}
	return h, nil
}

func newOwner() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

func unknownPlugin(field, rule string, known []string) error {
	names := make([]string, 0, len(known))
	for _, n := range known {
		names = append(names, "builtin:"+n)
	}
	slices.Sort(names)
	return &sdk.Error{
		Tag: sdk.TagUnsupported, Code: "unknown_plugin", Field: field,
		Rule: rule + " " + strings.Join(names, ", "),
	}
}

// cacheDir is where compiled plugins are kept; empty if there is no place.
func (h *Host) cacheDir() string { return h.cfg.Settings.Plugins.CacheDir() }

func (h *Host) openEngine(ctx context.Context) error {
	s := h.cfg.Settings
	meters, err := s.MeterSet()
	if err != nil {
		return err
	}
	cfg := engine.Config{
		Store: h.store, Meters: meters, Features: map[string]engine.Feature{}, Manifests: map[string]exporter.Manifest{},
		AttemptBudget: s.Outbox.Attempts, RecordTimeout: time.Duration(s.Limits.RecordTimeout), RecordConcurrency: s.Limits.RecordConcurrency,
		Buffer: engine.Buffer{FlushEvery: time.Duration(s.Counters.Flush), Max: s.Counters.Max, Host: h.owner},
		Recovery: engine.Recovery{
			QuietTime: time.Duration(s.Outbox.QuietTime), Horizon: time.Duration(s.Outbox.Horizon), TrustedSince: h.trustedSince,
			Blocked: h.undecidable,
		},
		Now: h.cfg.Now, Logger: h.cfg.Logger, Observer: h.recordObserver(), Changed: h.balanceChanged,
	}
	for name, f := range s.Features {
		dimensions, kept := f.BucketDimensions()
		cfg.Features[name] = engine.Feature{
			Buffered: f.Buffered(), Cutover: f.CutoverTime(), Signed: f.Signed, Buckets: kept, BucketDimensions: dimensions,
		}
	}
	for _, m := range s.Outpost.Meters {
		cfg.CreditMeters = append(cfg.CreditMeters, engine.CreditMeter{Name: m.Name, Feature: m.Feature, Filter: m.Filter, Renew: m.RenewAmount()})
	}
	var plans []engine.RoutePlan
	for _, x := range h.exporters {
		cfg.Manifests[x.settings.Name] = x.manifest
		plans = append(plans, x.plan())
	}
	if h.engine, err = engine.New(cfg); err != nil {
		return err
	}
	h.outposts = h.newOutposts()
	h.replays = newReplays(h.engine, h.cfg.Now)
	h.presence = h.newPresence()
	h.metrics.SetDegraded(degradedCodes(), h.degradedNow)
	if err := h.engine.CheckSources(ctx); err != nil {
		return err
	}
	set, err := h.routes(ctx, plans)
	if err != nil {
		return err
	}
	h.noteUnmapped()
	if h.cfg.WithoutDelivery {
		return nil // nobody asks this host what it delivers
	}
	h.degraded, err = h.unserved(ctx, set)
	return err
}

// routes reads the routes in force, after bringing them to the plans where this
// host is to.
func (h *Host) routes(ctx context.Context, plans []engine.RoutePlan) (storage.RouteSet, error) {
	switch h.cfg.Routes {
	case RoutesKeep:
		return h.engine.Routes(ctx)
	case RoutesFirst:
		return h.engine.FirstRoutes(ctx, plans)
	default:
		return h.engine.ApplyRoutes(ctx, plans)
	}
}

// plan is what the configuration asks of the routes of an exporter.
func (x *exporterRuntime) plan() engine.RoutePlan {
	return engine.RoutePlan{
		Exporter: x.settings.Name, Provider: x.manifest.Name, Account: x.settings.Account, Mode: x.settings.Mode,
		Features: x.settings.Mapping.Features, Ignore: x.settings.Mapping.Ignore, Label: label(x.settings.Mapping.Version),
	}
}

// noteUnmapped warns of features that something here measures or declares and
// an exporter neither maps nor ignores: their usage will wait in quarantine.
func (h *Host) noteUnmapped() {
	known := map[string]bool{}
	for _, m := range h.cfg.Settings.Meters {
		known[m.Feature] = true
	}
	for name, f := range h.cfg.Settings.Features {
		if !f.Buffered() { // what is only counted leads to no items, and stays in its counter
			known[name] = true
		}
	}
	for _, x := range h.exporters {
		m := x.settings.Mapping
		for _, f := range slices.Sorted(maps.Keys(known)) {
			if _, mapped := m.Features[f]; !mapped && !slices.Contains(m.Ignore, f) {
				h.cfg.Logger.Warn("a feature has no mapping: its usage will be quarantined as feature_unmapped",
					"feature", f, "exporter", x.settings.Name)
			}
		}
	}
}

func label(version any) string {
	if version == nil {
		return ""
	}
	return fmt.Sprint(version)
}

// Engine returns the engine. It is usable until Close.
func (h *Host) Engine() *engine.Engine { return h.engine }

// breakerShown is how long after its pause an exporter still counts as down:
// the probe that follows the pause takes a moment.
const breakerShown = 5 * time.Second

// paused notes that an exporter's breaker is open.
func (h *Host) paused(name string, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down == nil {
		h.down = map[string]time.Duration{}
	}
	h.down[name] = egress.Elapsed() + d
}

// delivered notes that an exporter's destination answered.
func (h *Host) delivered(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.down, name)
}

// Handler returns the HTTP API of this host.
func (h *Host) Handler() http.Handler {
	items, _ := h.store.(storage.OutboxStore) // the engine required it
	served := api.New(api.Config{
		Engine: h.engine, Outbox: items, Ready: h.ready, Degraded: h.Degraded,
		Replays: h.replays, Plugins: h, Webhooks: h, Restorer: settling{h}, Reconciler: settling{h}, Outposts: h.outposts, Metrics: h.metrics.Handler(), MaxBody: int64(h.cfg.Settings.Limits.BatchBytes),
		MaxEvents: h.cfg.Settings.Limits.BatchEvents,
		Observer:  h.metrics, RequestTimeout: 2 * time.Duration(h.cfg.Settings.Limits.RecordTimeout), Logger: h.cfg.Logger,
	})
	if h.tracing == nil {
		return served
	}
	return h.tracing.Handler(served)
}

// StopDelivery stops claiming and sending at once, and returns without waiting
// for what is on its way. Recording and reading go on. Close completes it.
func (h *Host) StopDelivery() {
	h.stop()
	if h.replays != nil {
		h.replays.stop()
	}
}

// Close stops claiming at once, lets what is in flight end, writes what was
// tracked, and closes what Open opened. ctx bounds the writing; what could not
// be written is an error and is named in the log. Later calls return what the
// first did.
func (h *Host) Close(ctx context.Context) error {
	h.once.Do(func() {
		h.StopDelivery()
		h.mu.Lock()
		h.closing = true
		h.mu.Unlock()
		h.end()
		h.loops.Wait()
		var errs []error
		if h.engine != nil {
			h.replays.wait()
			errs = append(errs, h.outposts.Close(ctx), h.engine.StopTracking(ctx))
			h.engine.Close()
		}
		errs = append(errs, h.closePlugins(ctx))
		if h.ownsStore {
			errs = append(errs, h.store.Close())
		}
		if h.metrics != nil {
			errs = append(errs, h.metrics.Close(ctx))
		}
		h.err = errors.Join(errs...)
	})
	return h.err
}

// uniform draws retry jitter; it is no secret.
func uniform(n int64) int64 {
	return mathrand.Int64N(n) //nolint:gosec // jitter, not a secret
}
