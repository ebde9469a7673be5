package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// reconciled is what the last reconciliation with one exporter found.
type reconciled struct{ differing, unconfirmed int64 }

// gauges registers what is read when somebody looks.
func (m *Metrics) gauges(mt metric.Meter) error {
	var errs []error
	count := func(name, desc string) metric.Int64ObservableGauge {
		g, err := mt.Int64ObservableGauge(name, metric.WithDescription(desc))
		errs = append(errs, err)
		return g
	}
	seconds := func(name, desc string) metric.Float64ObservableGauge {
		g, err := mt.Float64ObservableGauge(name, metric.WithDescription(desc), metric.WithUnit("s"))
		errs = append(errs, err)
		return g
	}
	items := count("fencepost.outbox.items", "Outbox items by state; open ones are those nobody has settled.")
	disputed := count("fencepost.outbox.disputed", "Items with evidence against them that nobody has settled.")
	unconfirmed := count("fencepost.outbox.unconfirmed", "Accepted items without the provider's evidence for longer than it needs, by the last reconciliation.")
	difference := count("fencepost.reconcile.difference", "Sums of the last reconciliation in which the provider differs.")
	degraded := count("fencepost.degraded", "1 while this holds, 0 otherwise: what is wrong without keeping Record from working.")
	pending := seconds("fencepost.outbox.oldest_pending_age", "Age of the oldest pending item.")
	accepted := seconds("fencepost.outbox.oldest_accepted_age", "Time since the acceptance of the oldest item that is not confirmed.")
	_, err := mt.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		stats, found, known, wrong := m.read()
		for _, c := range stats.Counts {
			for open, n := range map[bool]int64{true: c.Open, false: c.Items - c.Open} {
				o.ObserveInt64(items, n, metric.WithAttributes(attribute.String("state", string(c.State)),
					attribute.String("exporter", c.Exporter), attribute.Bool("open", open)))
			}
		}
		o.ObserveInt64(disputed, stats.Disputed)
		o.ObserveFloat64(pending, stats.OldestPending.Seconds())
		o.ObserveFloat64(accepted, stats.OldestAccepted.Seconds())
		for name, r := range found {
			by := metric.WithAttributes(attribute.String("exporter", name))
			o.ObserveInt64(unconfirmed, r.unconfirmed, by)
			o.ObserveInt64(difference, r.differing, by)
		}
		for _, code := range known {
			var holds int64
			if slices.Contains(wrong, code) {
				holds = 1
			}
			o.ObserveInt64(degraded, holds, metric.WithAttributes(attribute.String("reason", code)))
		}
		return nil
	}, items, disputed, unconfirmed, difference, degraded, pending, accepted)
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("gauges: %w", err)
	}
	return nil
}

// read is what the gauges show.
func (m *Metrics) read() (stats storage.OutboxStats, found map[string]reconciled, known, wrong []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found = make(map[string]reconciled, len(m.reconciled))
	maps.Copy(found, m.reconciled)
	if m.degraded != nil {
		wrong = m.degraded()
	}
	return m.stats, found, m.known, wrong
}

// SetOutbox replaces what the gauges show. Every state of every exporter is
// shown, with zero rows too, else an alert on it would never resolve.
func (m *Metrics) SetOutbox(exporters []string, s storage.OutboxStats) {
	if m == nil {
		return
	}
	s.Counts = complete(exporters, s.Counts)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats = s
}

// Reconciled notes what a finished reconciliation with an exporter found: sums
// that differ, and accepted items that should be confirmed by now and are not.
func (m *Metrics) Reconciled(exporterName string, differing, unconfirmed int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reconciled == nil {
		m.reconciled = map[string]reconciled{}
	}
	m.reconciled[exporterName] = reconciled{differing: differing, unconfirmed: unconfirmed}
}

// SetDegraded gives the gauge the codes that there are, each of which is shown
// with zero too, and what answers those that hold. It is asked for every page and
// must not block.
func (m *Metrics) SetDegraded(known []string, holding func() []string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known, m.degraded = known, holding
}

func complete(exporters []string, counts []storage.ItemCount) []storage.ItemCount {
	type key struct {
		exporter string
		state    storage.ItemState
	}
	have := map[key]bool{}
	for _, c := range counts {
		have[key{c.Exporter, c.State}] = true
	}
	for _, e := range exporters {
		for _, st := range storage.ItemStates {
			if !have[key{e, st}] {
				counts = append(counts, storage.ItemCount{Exporter: e, State: st})
			}
		}
	}
	return counts
}
