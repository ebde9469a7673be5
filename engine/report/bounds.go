package report

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// reading is what a counter said at some moment.
type reading = decimal.Decimal

// reported is how far a counter has been reported to one destination.
type reported struct {
	acked  reading
	staged bool
	// elsewhere is what the exporter reported of the counter to destinations
	// it has moved from since, an account or a mode: what was, or is being,
	// charged there is not charged again here. // Q4, Q20
	elsewhere reading
	customer  string
	// span is that of the window to be staged, at an exporter that gets one in
	// each; zero at others.
	span time.Time
}

// boundsBy are bounds by their key.
type boundsBy struct {
	rows map[storage.BoundKey]storage.Bound
	// lineage are the destinations that the exporter had, the present one too.
	lineage []outbox.Destination
}

func keyOf(c storage.Counter, r storage.Route) storage.BoundKey {
	return keyAt(c, outbox.DestinationOf(r))
}

func keyAt(c storage.Counter, d outbox.Destination) storage.BoundKey {
	return storage.BoundKey{
		Exporter: d.Exporter, Account: d.Account, Mode: d.Mode, Tenant: c.Tenant, Feature: c.Feature, PeriodStart: c.PeriodStart.UTC(),
	}
}

// boundKeys is how many bounds one call reads.
const boundKeys = 1000

// bounds reads how far counters have been reported by an exporter, to every
// destination that it has had.
func (p *pass) bounds(ctx context.Context, list []storage.Counter, route storage.Route) (boundsBy, error) {
	out := boundsBy{rows: map[storage.BoundKey]storage.Bound{}}
	seen := map[outbox.Destination]bool{}
	for _, r := range p.set.Routes {
		if d := outbox.DestinationOf(r); r.Exporter == route.Exporter && !seen[d] {
			seen[d] = true
			out.lineage = append(out.lineage, d)
		}
	}
	var keys []storage.BoundKey
	for _, c := range list {
		for _, d := range out.lineage {
			keys = append(keys, keyAt(c, d))
		}
	}
	for len(keys) > 0 {
		n := min(len(keys), boundKeys)
		found, err := p.cfg.Store.ReportBounds(ctx, storage.BoundQuery{Keys: keys[:n], Limit: n})
		if err != nil {
			return out, fmt.Errorf("read bounds: %w", err)
		}
		for _, b := range found.Bounds {
			b.PeriodStart = b.PeriodStart.UTC()
			out.rows[b.BoundKey] = b
		}
		keys = keys[n:]
	}
	return out, nil
}

// of says how far one counter has been reported.
func (b boundsBy) of(c storage.Counter, route storage.Route, customer string) reported {
	out := reported{customer: customer}
	for _, d := range b.lineage {
		row, ok := b.rows[keyAt(c, d)]
		switch {
		case !ok:
		case d == outbox.DestinationOf(route):
			out.acked, out.staged = row.Acked, row.StagedTo != nil
		case row.StagedTo != nil:
			out.elsewhere = out.elsewhere.Add(*row.StagedTo)
		default:
			out.elsewhere = out.elsewhere.Add(row.Acked)
		}
	}
	return out
}
