package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/journal"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// exporterRuntime is one configured exporter. Its plugin may be loaded anew while
// it runs. It is an [outbox.Sender].
type exporterRuntime struct {
	settings config.Exporter
	conf     exporter.Configuration
	// field names the exporter in errors about the configuration.
	field string
	// manifest is what the engine goes by: that of the version that the host
	// began with. No reload changes what it says, but for the [reloadable].
	manifest exporter.Manifest
	host     *Host
	// messages is held while what one message says is stored.
	messages sync.Mutex

	// turn is held by a reload until the version before has ended.
	turn chan struct{}
	// ready is closed once there was a version that can be called.
	ready     chan struct{}
	readyOnce sync.Once

	mu   sync.Mutex
	now  *loaded
	file *journal.File // nil: no version asked for append
}

func (h *Host) newExporter(e config.Exporter, field string) *exporterRuntime {
	return &exporterRuntime{settings: e, field: field, host: h, turn: make(chan struct{}, 1), ready: make(chan struct{})}
}

// loadExporter opens the plugin of one exporter, checks it against its grants
// and configures it. What an installed plugin says of itself is remembered by
// its digest; then the rest of its opening, which takes seconds for a module
// that is not in the cache, goes on behind the host's start.
func (h *Host) loadExporter(ctx context.Context, e config.Exporter, field string) (*exporterRuntime, error) {
	x := h.newExporter(e, field)
	p, err := h.findPlugin(e, field)
	if err != nil {
		return nil, err
	}
	if x.conf, err = configuration(e, field); err != nil {
		return nil, err
	}
	l := x.newLoaded(p)
	behind, err := l.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", field, e.Name, errors.Join(err, l.close(context.WithoutCancel(ctx)), x.closeFile()))
	}
	x.now, x.manifest = l, l.manifest
	switch {
	case behind && h.cfg.WithoutDelivery:
		l.settle(errNotCalled)
	case behind:
		h.loads.Go(func() { x.loadBehind(h.life, l) })
	default:
		x.isReady()
	}
	return x, nil
}

var errNotCalled = errors.New("this host delivers nothing")

func (x *exporterRuntime) isReady() { x.readyOnce.Do(func() { close(x.ready) }) }

// current is the version that is called now.
func (x *exporterRuntime) current() *loaded {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.now
}

// hold is current, which is not closed before release is called.
func (x *exporterRuntime) hold() (l *loaded, release func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l = x.now
	l.users.Add(1)
	return l, l.users.Done
}

// sends reports whether requests leave this host for the exporter.
func (x *exporterRuntime) sends() bool { return x.current().http != nil }

// capabilities are what a builtin exporter is granted: the operator who names
// it grants what it needs and nothing else exists to grant.
var exporterCapabilities = []capability.Name{capability.HTTPName, capability.LogName, capability.AppendName}

// checkMapping refuses a mapping without what the provider needs: a misspelt
// key would quarantine everything that is recorded from then on.
func (l *loaded) checkMapping() error {
	features := l.of.settings.Mapping.Features
	for _, f := range slices.Sorted(maps.Keys(features)) {
		for _, key := range l.manifest.MappingKeys {
			if features[f][key] == "" {
				return sdk.Invalid("mapping.features."+f, "has the key "+key)
			}
		}
	}
	return nil
}

func (l *loaded) openEgress(g grant.Grant, follows *egress.Client) error {
	x := l.of
	cfg := egress.Config{
		Plugin: x.settings.Name, Hosts: g.HostsFor(l.manifest), AllowPrivate: g.AllowPrivate,
		Secrets: map[string]egress.InjectedSecret{}, Answers: l.manifest.Answers, Records: l.manifest.Records,
		Rate: l.manifest.Rate, Concurrency: l.manifest.Concurrency, Logger: x.host.cfg.Logger, Now: x.host.cfg.Now,
		Left: outbox.LeaseLeft, Follows: follows,
		Observe: func(c exporter.HostClass) { x.host.metrics.Requested(x.settings.Name, string(c)) },
	}
	for _, s := range l.manifest.Secrets {
		cfg.Secrets[s.Name] = egress.InjectedSecret{Scheme: s.Scheme, Header: s.Header, Prefix: s.Prefix, Value: g.Secrets[s.Name]}
	}
	var err error
	if g.CAFile != "" {
		if cfg.RootCAs, err = egress.LoadCAFile(g.CAFile); err != nil {
			return fmt.Errorf("ca_file: %w", err)
		}
	}
	if l.http, err = egress.New(cfg); err != nil {
		return fmt.Errorf("egress: %w", err)
	}
	return nil
}

// grant is what the configuration allows this exporter.
func (l *loaded) grant() (grant.Grant, error) {
	x, p := l.of, &l.plugin
	g := grant.Grant{
		Capabilities: p.capabilities, Hosts: p.hosts,
		Secrets: map[string]grant.Secret{}, CAFile: x.settings.CAFile, Mode: x.settings.Mode,
	}
	if p.builtin {
		g.Hosts = l.manifest.Hosts
	}
	for name, ref := range x.settings.Secrets {
		if !p.builtin && !slices.Contains(p.secrets, name) {
			continue // not granted in plugins.lock
		}
		s, err := grant.ResolveSecret(ref, x.host.cfg.Getenv, os.ReadFile)
		if err != nil {
			return g, fmt.Errorf("secrets.%s: %w", name, err)
		}
		g.Secrets[name] = s
	}
	for _, c := range x.settings.AllowPrivate {
		p, err := netip.ParsePrefix(c)
		if err != nil {
			return g, sdk.Invalid("allow_private", "CIDR prefixes, such as 127.0.0.0/8")
		}
		g.AllowPrivate = append(g.AllowPrivate, p)
	}
	if x.settings.BaseURL != "" {
		u, err := url.Parse(x.settings.BaseURL)
		if err != nil || u.Scheme != "https" || u.Host == "" {
			return g, sdk.Invalid("base_url", "an https URL")
		}
		g.Endpoint = u.Host
		if u.Port() == "" {
			g.Endpoint += ":443"
		}
	}
	return g, nil
}

func configuration(e config.Exporter, field string) (exporter.Configuration, error) {
	c := exporter.Configuration{Name: e.Name, Account: e.Account, Mode: e.Mode, BaseURL: e.BaseURL}
	if len(e.Settings) > 0 {
		raw, err := json.Marshal(e.Settings)
		if err != nil {
			return c, sdk.Invalid(field+".settings", "values that JSON has")
		}
		c.Settings = raw
	}
	return c, nil
}

// smaller returns the smaller of two limits of which zero is none.
func smaller(a, b int) int {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// readingTime is what a plugin gets of the time left to make outcomes of answers.
func readingTime(left time.Duration) time.Duration { return min(max(left/8, 0), 5*time.Second) }

// call performs one method of the plugin and counts it.
func (x *exporterRuntime) call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, error) {
	l, release := x.hold()
	defer release()
	return l.call(ctx, method, request)
}

// Manifest is the plugin's, with the operator's smaller limits applied.
func (x *exporterRuntime) Manifest() exporter.Manifest { return x.current().manifest }

// Send hands a batch to the plugin and reports what it said and what the host
// saw on the wire.
func (x *exporterRuntime) Send(ctx context.Context, items []outbox.SendItem, deadline time.Time) outbox.Report {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	l, release := x.hold() // one version for the whole batch
	defer release()
	d := exporter.Delivery{Deadline: deadline, Items: make([]exporter.Item, len(items))}
	for i, it := range items {
		d.Items[i] = it.Item
	}
	ctx, exchanges := l.witness(ctx, items)
	answer, err := l.call(ctx, wirev1.MethodDeliver, wirev1.EncodeDelivery(d))
	report := outbox.Report{Called: entered(err), Exchanges: exchanges(), Grade: l.vouches(), Err: err}
	if err != nil {
		return report
	}
	report.Outcomes, report.Err = wirev1.DecodeOutcomes(answer)
	return report
}

// entered reports whether the plugin's code may have run.
func entered(err error) bool {
	if fault, ok := errors.AsType[*carrier.Fault](err); ok {
		return fault.Entered
	}
	return true
}

// close ends the plugin and what it was given.
func (x *exporterRuntime) close(ctx context.Context) error {
	var err error
	if l := x.current(); l != nil {
		err = l.close(ctx)
	}
	return errors.Join(err, x.closeFile())
}

func (x *exporterRuntime) closeFile() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.file == nil {
		return nil
	}
	return x.file.Close()
}
