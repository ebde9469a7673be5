package outbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Gauge reads the counts of items and adds a zero for every state of every
// given exporter that has none, so that an alert on a state can end. Counts
// come in the order of exporters and of [storage.ItemStates].
func Gauge(ctx context.Context, store storage.OutboxStore, exporters []string) (storage.OutboxStats, error) {
	stats, err := store.OutboxStats(ctx)
	if err != nil {
		return storage.OutboxStats{}, fmt.Errorf("count items: %w", err)
	}
	type cell struct {
		exporter string
		state    storage.ItemState
	}
	counts := make(map[cell]storage.ItemCount)
	names := slices.Clone(exporters)
	for _, c := range stats.Counts {
		counts[cell{c.Exporter, c.State}] = c
		names = append(names, c.Exporter)
	}
	slices.Sort(names)
	stats.Counts = nil
	for _, name := range slices.Compact(names) {
		for _, state := range storage.ItemStates {
			c := counts[cell{name, state}]
			c.Exporter, c.State = name, state
			stats.Counts = append(stats.Counts, c)
		}
	}
	return stats, nil
}
