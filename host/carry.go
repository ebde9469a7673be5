package host

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/linked"
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/host/carrier/worker"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// carry puts the plugin on the carrier of its isolation, under supervision. A
// module is compiled, or read from the cache; nothing of a plugin runs yet.
func (l *loaded) carry(ctx context.Context) error {
	h := l.of.host
	setup := []carrier.SetupCall{{Method: uint32(wirev1.MethodConfigure), Request: wirev1.EncodeConfiguration(l.of.conf)}}
	caller, err := l.carrierOf(ctx, setup)
	if err != nil {
		return fmt.Errorf("load plugin: %w", err)
	}
	l.caller = carrier.Supervise(l.of.settings.Name, caller, carrier.Supervision{
		Elapsed: egress.Elapsed, Uniform: uniform, Logger: h.cfg.Logger,
		Parked: func(parked bool) { l.parked.Store(parked) },
	})
	if m, ok := caller.(carrier.Measured); ok {
		l.usage = m.Usage
	}
	return nil
}

func (l *loaded) carrierOf(ctx context.Context, setup []carrier.SetupCall) (carrier.Caller, error) {
	h, p, name := l.of.host, l.plugin, l.of.settings.Name
	acts := carrier.Host{HTTPSend: l.send, AppendSend: l.append, Now: h.cfg.Now}
	l.grade = func() outbox.Grade { return outbox.GradeHost }
	switch p.isolation {
	case linkedIn:
		l.grade = func() outbox.Grade { return outbox.GradePlugin } // nothing keeps it from the network (Q9)
		return linked.Open(linked.Config{
			Name: name, New: func(h capability.Host) linked.Callee { return guest.NewDispatcher(p.link, h) },
			Granted: p.capabilities, Host: acts, Setup: setup, Logger: h.cfg.Logger,
		})
	case grant.InProcess:
		return wasm.Open(ctx, wasm.Config{
			Name: name, Version: p.version, Module: p.bytes, Declared: p.capabilities, Granted: p.capabilities,
			Host: acts, Setup: setup,
			// Go programs link file functions that they never call; they get
			// ones that always fail.
			InertFiles: true, CacheDir: h.cacheDir(), Logger: h.cfg.Logger,
		})
	case grant.Worker:
		return l.openWorker(acts, setup)
	case grant.Process:
		return l.openProcess(acts, setup)
	}
	return nil, sdk.Invalid("isolation", "inproc, worker or process")
}

// hasWorker fails if a plugin is to run in a worker and the program has none: what
// no waiting mends.
func hasWorker(isolation grant.Isolation, args []string) error {
	if isolation != grant.Worker || len(args) > 0 {
		return nil
	}
	return &sdk.Error{
		Tag: sdk.TagUnsupported, Code: "no_worker", Field: "isolation",
		Rule: "inproc in a program that has no worker", Hint: "host.Config.Worker names arguments at which the program calls worker.Serve",
	}
}

func (l *loaded) openWorker(acts carrier.Host, setup []carrier.SetupCall) (carrier.Caller, error) {
	h, p, name := l.of.host, l.plugin, l.of.settings.Name
	if err := hasWorker(p.isolation, h.cfg.Worker); err != nil {
		return nil, err
	}
	image, err := process.Self()
	if err != nil {
		return nil, err
	}
	l.image = image
	return worker.Open(worker.Config{
		Name: name, Version: p.version, Image: image, Args: h.cfg.Worker, Module: p.bytes,
		Declared: p.capabilities, Granted: p.capabilities, InertFiles: true, Host: acts, Setup: setup,
		Memory: int64(h.cfg.Settings.Plugins.Memory), CacheDir: h.cacheDir(),
		Started: func() { h.metrics.PluginStarted(name) }, Logger: h.cfg.Logger,
	})
}

func (l *loaded) openProcess(acts carrier.Host, setup []carrier.SetupCall) (carrier.Caller, error) {
	h, p, name := l.of.host, l.plugin, l.of.settings.Name
	image, err := process.NewImage(name, p.bytes)
	if err != nil {
		return nil, err
	}
	l.image = image
	native, err := process.Open(process.Config{
		Name: name, Version: p.version, Image: image, Granted: p.capabilities, Host: acts, Setup: setup,
		Sandbox: process.Sandbox{Network: p.network}, Limits: process.Limits{Memory: int64(h.cfg.Settings.Plugins.Memory)},
		Started: func() { h.metrics.PluginStarted(name) }, Logger: h.cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	// The host vouches for what was sent only if there is no other way out.
	l.grade = func() outbox.Grade {
		if native.Isolation().Network {
			return outbox.GradeHost
		}
		return outbox.GradePlugin
	}
	return native, nil
}
