package reconcile

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// present reports whether a sum has exactly what one open item would add, and
// nothing else could: then that item was taken. That a sum lacks an item shows
// nothing (Q23).
func present(t storage.ItemSum, difference *decimal.Decimal) bool {
	return difference != nil && !difference.IsZero() && t.Open == 1 && t.Disputed == 0 && t.Fresh == 0 &&
		difference.Equal(t.OpenValue)
}

// attest tells of the open item of a group, if it is uncertain and no other
// uncertain item could be meant.
func (r *run) attest(ctx context.Context, g *group, line *storage.ReconciliationLine) error {
	if r.Items == nil || r.Attest == nil {
		return nil
	}
	var uncertain []int64
	for i := range g.sums {
		s := &g.sums[i]
		if s.Open == 0 {
			continue
		}
		page, err := r.Items.ListItems(ctx, storage.ItemQuery{
			Exporter: r.Destination.Exporter, Account: r.Destination.Account, Mode: r.Destination.Mode,
			Feature: s.Feature, State: storage.Uncertain, Limit: 1000,
		})
		if err != nil {
			return fmt.Errorf("look for the open item: %w", err)
		}
		if page.More {
			return nil // so many that a person looks first
		}
		for _, it := range page.Items {
			if it.SupersededBy == 0 && it.Customer == s.Customer && it.Identity.MappingVersion == s.MappingVersion {
				uncertain = append(uncertain, it.ItemID)
			}
		}
	}
	if len(uncertain) != 1 {
		return nil
	}
	d, err := r.Items.LoadItem(ctx, uncertain[0])
	if err != nil {
		return fmt.Errorf("load the open item: %w", err)
	}
	if !is(d, g.query, *line.Difference) {
		return nil // the open item of this stretch is another one, which may still move
	}
	return r.Attest(ctx, uncertain[0], fmt.Sprintf(
		"the provider's sum at meter %s from %s to %s differs by exactly this item, and nothing else is open there",
		line.Meter, line.From.Format(timeFormat), line.To.Format(timeFormat)))
}

// is reports whether an item is of the stretch and worth the value.
func is(d storage.ItemDetail, q storage.SumQuery, value decimal.Decimal) bool {
	c := storage.ClaimedItem{Identity: d.Item.Identity, Digest: d.Item.Digest, Payload: d.Payload, Mapping: d.Mapping}
	if d.Event != nil {
		c.Event = *d.Event
	}
	item, err := outbox.Payload(c)
	if err != nil || item.Timestamp.Before(q.From) || !item.Timestamp.Before(q.To) {
		return false
	}
	worth, err := decimal.ParseTotal(item.Value)
	return err == nil && worth.Equal(value)
}

const timeFormat = "2006-01-02T15:04Z"
