// Package telemetry holds the metrics of a running host: OpenTelemetry inside,
// a Prometheus page outside. No metric ever carries a tenant.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Metrics are the instruments of one host. Its methods are safe for concurrent
// use. A nil *Metrics records nothing.
type Metrics struct {
	provider *sdkmetric.MeterProvider
	registry *prometheus.Registry

	recordEvents   metric.Int64Counter
	recordDuration metric.Float64Histogram
	deliver        metric.Float64Histogram
	stale          metric.Int64Counter
	pluginCalls    metric.Int64Counter
	pluginDuration metric.Float64Histogram
	pluginStarts   metric.Int64Counter
	pluginEnded    metric.Int64Counter
	egress         metric.Int64Counter
	lied           metric.Int64Counter
	paused         metric.Float64Counter
	flush          metric.Float64Histogram

	mu         sync.Mutex
	stats      storage.OutboxStats
	reconciled map[string]reconciled
	known      []string
	degraded   func() []string
	plugins    func() []PluginSeries
}

// secondsBuckets reach from a transaction on a fast disk to a lease.
var secondsBuckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}

// New returns metrics with a registry of their own; nothing global is touched.
// They are read by the Prometheus page and by the given readers, which Close
// shuts down.
func New(readers ...sdkmetric.Reader) (*Metrics, error) {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exp, err := otelprom.New(otelprom.WithRegisterer(m.registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("prometheus exporter: %w", err)
	}
	options := []sdkmetric.Option{sdkmetric.WithReader(exp)}
	for _, r := range readers {
		options = append(options, sdkmetric.WithReader(r))
	}
	m.provider = sdkmetric.NewMeterProvider(options...)
	if err := m.instruments(m.provider.Meter("github.com/fencepost/fencepost")); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Metrics) instruments(mt metric.Meter) error {
	var err error
	counter := func(name, desc string) metric.Int64Counter {
		c, e := mt.Int64Counter(name, metric.WithDescription(desc))
		if e != nil {
			err = e
		}
		return c
	}
	seconds := func(name, desc string) metric.Float64Histogram {
		h, e := mt.Float64Histogram(name, metric.WithDescription(desc), metric.WithUnit("s"),
			metric.WithExplicitBucketBoundaries(secondsBuckets...))
		if e != nil {
			err = e
		}
		return h
	}
	m.recordEvents = counter("fencepost.record.events", "Events by the outcome of recording them.")
	m.recordDuration = seconds("fencepost.record.duration", "Time of one Record call.")
	m.deliver = seconds("fencepost.outbox.deliver.duration", "Time from claim to outcome of one item, by the state it landed in.")
	m.stale = counter("fencepost.outbox.stale_worker", "Conditional updates that changed nothing because the lease was lost.")
	m.flush = seconds("fencepost.counter.flush.duration", "Time of writing one batch of counters.")
	m.pluginCalls = counter("fencepost.plugin.calls", "Calls into plugins by outcome.")
	m.pluginDuration = seconds("fencepost.plugin.duration", "Time of one call into a plugin.")
	m.pluginStarts = counter("fencepost.plugin.starts", "Processes started for plugins.")
	m.pluginEnded = counter("fencepost.plugin.ended", "Instances and processes of plugins ended for what they did in a call.")
	m.egress = counter("fencepost.egress.requests", "Requests sent for plugins by what the host saw.")
	m.lied = counter("fencepost.plugin.lied", "Outcomes that the host's own evidence excluded.")
	if err != nil {
		return fmt.Errorf("instruments: %w", err)
	}
	if m.paused, err = mt.Float64Counter("fencepost.outbox.paused", metric.WithUnit("s"),
		metric.WithDescription("Time for which nothing was claimed for a destination, by reason.")); err != nil {
		return fmt.Errorf("instruments: %w", err)
	}
	return errors.Join(m.gauges(mt), m.pluginGauges(mt))
}

// Handler serves the Prometheus page.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Close flushes and stops the provider.
func (m *Metrics) Close(ctx context.Context) error {
	if err := m.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("stop metrics: %w", err)
	}
	return nil
}

// Recorded counts n events with one outcome.
func (m *Metrics) Recorded(outcome string, n int) {
	if m == nil || n == 0 {
		return
	}
	m.recordEvents.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("outcome", outcome)))
}

// RecordTook notes the time of one Record call.
func (m *Metrics) RecordTook(d time.Duration) {
	if m == nil {
		return
	}
	m.recordDuration.Record(context.Background(), d.Seconds())
}

// FlushTook notes the time of writing one batch of counters.
func (m *Metrics) FlushTook(d time.Duration) {
	if m == nil {
		return
	}
	m.flush.Record(context.Background(), d.Seconds())
}

// Delivered notes that an item of an exporter landed in a state.
func (m *Metrics) Delivered(exporterName string, state storage.ItemState, d time.Duration) {
	if m == nil {
		return
	}
	m.deliver.Record(context.Background(), d.Seconds(), metric.WithAttributes(
		attribute.String("exporter", exporterName), attribute.String("state", string(state))))
}

// Stale counts conditional updates that changed nothing.
func (m *Metrics) Stale(exporterName string, n int) {
	if m == nil || n == 0 {
		return
	}
	m.stale.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("exporter", exporterName)))
}

// PluginCalled notes one call into a plugin.
func (m *Metrics) PluginCalled(plugin, outcome string, d time.Duration) {
	if m == nil {
		return
	}
	a := metric.WithAttributes(attribute.String("plugin", plugin), attribute.String("outcome", outcome))
	m.pluginCalls.Add(context.Background(), 1, a)
	m.pluginDuration.Record(context.Background(), d.Seconds(), metric.WithAttributes(attribute.String("plugin", plugin)))
}

// PluginStarted counts a process started for a plugin.
func (m *Metrics) PluginStarted(plugin string) {
	if m == nil {
		return
	}
	m.pluginStarts.Add(context.Background(), 1, metric.WithAttributes(attribute.String("plugin", plugin)))
}

// PluginEnded counts an instance or a process of a plugin that was ended for
// what it did in a call: the kind of fault.
func (m *Metrics) PluginEnded(plugin, reason string) {
	if m == nil {
		return
	}
	m.pluginEnded.Add(context.Background(), 1, metric.WithAttributes(attribute.String("plugin", plugin), attribute.String("reason", reason)))
}

// Requested counts one request sent for a plugin.
func (m *Metrics) Requested(plugin, class string) {
	if m == nil {
		return
	}
	m.egress.Add(context.Background(), 1, metric.WithAttributes(
		attribute.String("plugin", plugin), attribute.String("class", class)))
}

// Lied counts outcomes of a plugin that the host's evidence excluded.
func (m *Metrics) Lied(plugin string, n int) {
	if m == nil || n == 0 {
		return
	}
	m.lied.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("plugin", plugin)))
}

// Paused adds to the time for which a destination was not served.
func (m *Metrics) Paused(exporterName, reason string, d time.Duration) {
	if m == nil {
		return
	}
	m.paused.Add(context.Background(), d.Seconds(), metric.WithAttributes(
		attribute.String("exporter", exporterName), attribute.String("reason", reason)))
}
