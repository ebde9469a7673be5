package host

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/host/telemetry"
)

// Plugins lists what runs for the exporters of this host. It does not block.
func (h *Host) Plugins() []api.PluginState {
	h.mu.Lock()
	exporters := h.exporters
	h.mu.Unlock()
	list := make([]api.PluginState, len(exporters))
	for i, x := range exporters {
		l := x.current()
		s := api.PluginState{
			Exporter: x.settings.Name, Plugin: x.settings.Plugin, PluginVersion: version(l), Isolation: string(l.plugin.isolation),
		}
		if s.State, s.Error = l.state(); s.State == api.PluginReady && l.usage != nil {
			u := l.usage()
			s.Instances, s.MemoryBytes = u.Instances, u.MemoryBytes
		}
		list[i] = s
	}
	return list
}

// state is one of those of [api.PluginState], and why.
func (l *loaded) state() (state, why string) {
	select {
	case <-l.opened:
	default:
		if err := l.failed.Load(); err != nil {
			return api.PluginFailed, (*err).Error()
		}
		return api.PluginLoading, ""
	}
	switch {
	case errors.Is(l.err, errDisabled):
		return api.PluginDisabled, ""
	case l.err != nil && !errors.Is(l.err, errNotCalled):
		return api.PluginFailed, l.err.Error()
	case l.parked.Load():
		return api.PluginParked, ""
	}
	return api.PluginReady, ""
}

// pluginSeries is what the metrics show of plugins.
func (h *Host) pluginSeries() []telemetry.PluginSeries {
	states := h.Plugins()
	list := make([]telemetry.PluginSeries, len(states))
	for i, s := range states {
		list[i] = telemetry.PluginSeries{
			Plugin: s.Exporter, Version: s.Version, SHA256: s.SHA256, Isolation: s.Isolation, Parked: s.State == api.PluginParked,
			Instances: s.Instances, MemoryBytes: s.MemoryBytes,
		}
	}
	return list
}

// closePlugins waits for what is being opened, as long as ctx lets it, and
// closes what is open. A module that is being compiled cannot be interrupted; it
// is left behind when ctx ends.
func (h *Host) closePlugins(ctx context.Context) error {
	loaded := make(chan struct{})
	go func() {
		h.loads.Wait()
		close(loaded)
	}()
	select {
	case <-loaded:
	case <-ctx.Done():
		return errors.New("close: a plugin is still being loaded")
	}
	var errs []error
	for _, x := range h.exporters {
		errs = append(errs, x.close(ctx))
	}
	return errors.Join(errs...)
}
