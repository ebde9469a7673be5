package telemetry

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// PluginSeries is what the gauges show of one exporter's plugin.
type PluginSeries struct {
	Plugin    string // the exporter's name
	Version   string
	SHA256    string
	Isolation string
	// Parked: it is not called, because it failed again and again.
	Parked bool
	// Instances exist now, with so much memory together.
	Instances   int
	MemoryBytes uint64
}

// SetPlugins gives the gauges what lists the plugins. It is asked for every page
// and must not block.
func (m *Metrics) SetPlugins(list func() []PluginSeries) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plugins = list
}

func (m *Metrics) pluginGauges(mt metric.Meter) error {
	var errs []error
	gauge := func(name, desc string, unit ...metric.Int64ObservableGaugeOption) metric.Int64ObservableGauge {
		g, err := mt.Int64ObservableGauge(name, append(unit, metric.WithDescription(desc))...)
		errs = append(errs, err)
		return g
	}
	info := gauge("fencepost.plugin.info", "1 for the version of a plugin that runs.")
	parked := gauge("fencepost.plugin.parked", "1 while a plugin is not called because it failed again and again.")
	instances := gauge("fencepost.plugin.instances", "Instances or processes of a plugin.")
	memory := gauge("fencepost.plugin.memory", "Memory of a plugin's instances or processes.", metric.WithUnit("By"))
	_, err := mt.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		m.mu.Lock()
		list := m.plugins
		m.mu.Unlock()
		if list == nil {
			return nil
		}
		for _, p := range list() {
			by := metric.WithAttributes(attribute.String("plugin", p.Plugin))
			var is int64
			if p.Parked {
				is = 1
			}
			o.ObserveInt64(parked, is, by)
			o.ObserveInt64(instances, int64(p.Instances), by)
			o.ObserveInt64(memory, int64(p.MemoryBytes), by)
			o.ObserveInt64(info, 1, metric.WithAttributes(attribute.String("plugin", p.Plugin), attribute.String("version", p.Version),
				attribute.String("sha256", p.SHA256), attribute.String("isolation", p.Isolation)))
		}
		return nil
	}, info, parked, instances, memory)
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("gauges of plugins: %w", err)
	}
	return nil
}
