package host

import (
	"maps"
	"slices"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/grant"
)

// Degradation is something that is wrong and keeps nobody from recording.
type Degradation struct {
	// Code is one of a few words, for metrics and alerts.
	Code string
	// Detail is what a person should know.
	Detail string
}

// String is the code and the detail, as people read them.
func (d Degradation) String() string { return d.Code + ": " + d.Detail }

// The codes beside those that stop delivery, such as [ReasonRestorePending].
const (
	DegradedRouteUnserved  = "route_unserved"
	DegradedRouteGone      = "route_gone"
	DegradedItemsUnserved  = "items_unserved"
	DegradedExporterPaused = "exporter_paused"
	DegradedPluginParked   = "plugin_parked"
	DegradedPluginUnloaded = "plugin_not_loaded"
)

// Degradations lists what is wrong without keeping Record from working. // Q17a.
func (h *Host) Degradations() []Degradation {
	reason, hint := h.blocked()
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.degraded)
	if reason != "" {
		list = append(list, Degradation{reason, hint})
	}
	for _, name := range slices.Sorted(maps.Keys(h.down)) {
		if egress.Elapsed() < h.down[name]+breakerShown {
			list = append(list, Degradation{DegradedExporterPaused, "exporter " + name + " is paused: its destination cannot be reached or refuses us"})
		}
	}
	return append(list, h.degradedPlugins()...)
}

// degradedPlugins lists the plugins that are not called. h.mu is held.
func (h *Host) degradedPlugins() []Degradation {
	var list []Degradation
	for _, x := range h.exporters {
		name := x.settings.Name
		switch state, why := x.current().state(); state {
		case api.PluginParked:
			list = append(list, Degradation{DegradedPluginParked, "the plugin of exporter " + name + " failed again and again and is tried once a minute"})
		case api.PluginDisabled:
			list = append(list, Degradation{DegradedPluginUnloaded, "the plugin of exporter " + name + " is disabled in plugins.lock: fencepost plugin enable, then reload"})
		case api.PluginFailed:
			list = append(list, Degradation{DegradedPluginUnloaded, "the plugin of exporter " + name + " could not be loaded and is tried again: " + grant.Sanitize(why)})
		}
	}
	return list
}

// Degraded is [Host.Degradations] as texts.
func (h *Host) Degraded() []string {
	var out []string
	for _, d := range h.Degradations() {
		out = append(out, d.String())
	}
	return out
}

// degradedCodes are all that there are, for the gauge.
func degradedCodes() []string {
	return []string{
		DegradedRouteUnserved, DegradedRouteGone, DegradedMappingDiffers, DegradedItemsUnserved, DegradedExporterPaused, DegradedPluginParked, DegradedPluginUnloaded,
		ReasonRestorePending, ReasonNoMemory, ReasonFailoverPending, ReasonUnreached,
	}
}

// degradedNow are the codes that hold.
func (h *Host) degradedNow() []string {
	var codes []string
	for _, d := range h.Degradations() {
		codes = append(codes, d.Code)
	}
	return codes
}
