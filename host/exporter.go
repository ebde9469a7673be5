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
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/journal"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// exporterRuntime is one configured exporter: its plugin, what the plugin may
// reach, and how its answers become a report. It is an [outbox.Sender].
type exporterRuntime struct {
	settings config.Exporter
	manifest exporter.Manifest
	plugin   plugin
	caller   carrier.Caller
	// image is what processes of the plugin execute; nil without any.
	image *process.Image
	// grade is who vouches for what the plugin sent.
	grade func() outbox.Grade
	http  *egress.Client // nil: it does not ask for http
	file  *journal.File  // nil: it does not ask for append
	host  *Host
	// messages is held while what one message says is stored.
	messages sync.Mutex
}

// loadExporter opens the plugin of one exporter, checks it against its grants
// and configures it.
func (h *Host) loadExporter(ctx context.Context, e config.Exporter, field string) (*exporterRuntime, error) {
	x := &exporterRuntime{settings: e, host: h}
	var err error
	if x.plugin, err = h.findPlugin(e, field); err != nil {
		return nil, err
	}
	conf, err := configuration(e, field)
	if err != nil {
		return nil, err
	}
	if err := x.open(ctx, conf); err != nil {
		_ = x.close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("%s %s: %w", field, e.Name, err)
	}
	return x, nil
}

// capabilities are what a builtin exporter is granted: the operator who names
// it grants what it needs and nothing else exists to grant.
var exporterCapabilities = []capability.Name{capability.HTTPName, capability.LogName, capability.AppendName}

func (x *exporterRuntime) open(ctx context.Context, conf exporter.Configuration) error {
	configure := carrier.SetupCall{Method: uint32(wirev1.MethodConfigure), Request: wirev1.EncodeConfiguration(conf)}
	if err := x.carry(ctx, []carrier.SetupCall{configure}); err != nil {
		return err
	}
	x.plugin.bytes = nil // the carrier has them
	return x.describe(ctx)
}

// describe reads the manifest, checks the grants and opens the way out.
func (x *exporterRuntime) describe(ctx context.Context) error {
	answer, err := x.call(ctx, wirev1.MethodDescribe, nil)
	if err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	if x.manifest, err = wirev1.DecodeManifest(answer); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	x.manifest.Rate = smaller(x.manifest.Rate, x.settings.Rate)
	x.manifest.Concurrency = smaller(x.manifest.Concurrency, x.settings.Concurrency)
	if h := time.Duration(x.settings.Horizon); h > 0 && (x.manifest.IdentifierHorizon == 0 || h < x.manifest.IdentifierHorizon) {
		x.manifest.IdentifierHorizon = h
	}
	if err := errors.Join(x.checkMapping(), x.checkWindows()); err != nil {
		return err
	}
	if x.host.cfg.WithoutDelivery {
		return nil // nothing will be sent, so neither secret nor certificate is needed
	}
	g, err := x.grant()
	if err != nil {
		return err
	}
	if err := grant.Check(x.manifest, g); err != nil {
		return fmt.Errorf("grants: %w", err)
	}
	return x.openWays(ctx, g)
}

// checkMapping refuses a mapping without what the provider needs: a misspelt
// key would quarantine everything that is recorded from then on.
func (x *exporterRuntime) checkMapping() error {
	for _, f := range slices.Sorted(maps.Keys(x.settings.Mapping.Features)) {
		for _, key := range x.manifest.MappingKeys {
			if x.settings.Mapping.Features[f][key] == "" {
				return sdk.Invalid("mapping.features."+f, "has the key "+key)
			}
		}
	}
	return nil
}

func (x *exporterRuntime) openEgress(g grant.Grant) error {
	cfg := egress.Config{
		Plugin: x.settings.Name, Hosts: g.HostsFor(x.manifest), AllowPrivate: g.AllowPrivate,
		Secrets: map[string]egress.InjectedSecret{}, Answers: x.manifest.Answers, Records: x.manifest.Records,
		Rate: x.manifest.Rate, Concurrency: x.manifest.Concurrency, Logger: x.host.cfg.Logger, Now: x.host.cfg.Now,
		Left:    outbox.LeaseLeft,
		Observe: func(c exporter.HostClass) { x.host.metrics.Requested(x.settings.Name, string(c)) },
	}
	for _, s := range x.manifest.Secrets {
		cfg.Secrets[s.Name] = egress.InjectedSecret{Scheme: s.Scheme, Header: s.Header, Prefix: s.Prefix, Value: g.Secrets[s.Name]}
	}
	var err error
	if g.CAFile != "" {
		if cfg.RootCAs, err = egress.LoadCAFile(g.CAFile); err != nil {
			return fmt.Errorf("ca_file: %w", err)
		}
	}
	if x.http, err = egress.New(cfg); err != nil {
		return fmt.Errorf("egress: %w", err)
	}
	return nil
}

// grant is what the configuration allows this exporter.
func (x *exporterRuntime) grant() (grant.Grant, error) {
	g := grant.Grant{
		Capabilities: x.plugin.capabilities, Hosts: x.plugin.hosts,
		Secrets: map[string]grant.Secret{}, CAFile: x.settings.CAFile, Mode: x.settings.Mode,
	}
	if x.plugin.builtin {
		g.Hosts = x.manifest.Hosts
	}
	for name, ref := range x.settings.Secrets {
		if !x.plugin.builtin && !slices.Contains(x.plugin.secrets, name) {
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

// send is the http capability of this plugin, over bytes.
func (x *exporterRuntime) send(ctx context.Context, batch []byte) ([]byte, error) {
	requests, err := wirev1.DecodeRequests(batch)
	if err != nil {
		return nil, fmt.Errorf("decode requests: %w", err)
	}
	if x.http == nil { // before Describe was answered nothing may be sent
		return nil, errors.New("the http capability is not open yet")
	}
	// The requests end before the call does, so that the plugin can still read
	// the answers that did come: a call that is cut answers for no item.
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-readingTime(deadline.Sub(x.host.cfg.Now()))))
		defer cancel()
	}
	responses, err := x.http.Send(ctx, requests)
	return wirev1.EncodeResponses(responses, err), nil
}

// readingTime is what a plugin gets of the time left to make outcomes of answers.
func readingTime(left time.Duration) time.Duration { return min(max(left/8, 0), 5*time.Second) }

// call performs one method of the plugin and counts it.
func (x *exporterRuntime) call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, error) {
	start := x.host.cfg.Now()
	answer, err := x.caller.Call(ctx, uint32(method), request)
	outcome := "ok"
	var fault *carrier.Fault
	var refused *carrier.PluginError
	switch {
	case errors.As(err, &fault):
		outcome = string(fault.Kind)
	case errors.As(err, &refused):
		outcome = "error"
		if decoded, derr := wirev1.DecodeError(refused.Payload); derr == nil {
			err = decoded
		}
	}
	x.host.metrics.PluginCalled(x.settings.Name, outcome, x.host.cfg.Now().Sub(start))
	return answer, err
}

// Manifest is the plugin's, with the operator's smaller limits applied.
func (x *exporterRuntime) Manifest() exporter.Manifest { return x.manifest }

// Send hands a batch to the plugin and reports what it said and what the host
// saw on the wirev1.
func (x *exporterRuntime) Send(ctx context.Context, items []outbox.SendItem, deadline time.Time) outbox.Report {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	d := exporter.Delivery{Deadline: deadline, Items: make([]exporter.Item, len(items))}
	for i, it := range items {
		d.Items[i] = it.Item
	}
	ctx, exchanges := x.witness(ctx, items)
	answer, err := x.call(ctx, wirev1.MethodDeliver, wirev1.EncodeDelivery(d))
	report := outbox.Report{Called: entered(err), Exchanges: exchanges(), Grade: x.grade(), Err: err}
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

// close ends the plugin and its connections.
func (x *exporterRuntime) close(ctx context.Context) error {
	var errs []error
	if x.caller != nil {
		errs = append(errs, x.caller.Close(ctx))
	}
	if x.image != nil {
		errs = append(errs, x.image.Close())
	}
	if x.http != nil {
		errs = append(errs, x.http.Close())
	}
	if x.file != nil {
		errs = append(errs, x.file.Close())
	}
	return errors.Join(errs...)
}
