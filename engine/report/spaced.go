package report

import (
	"context"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// spaced stages the window of a counter for an exporter that gets at most one for
// each customer and key in a span. Where the span has one, of this counter or of
// another of the same customer, what was counted waits for the next span; so does
// what the provider cannot be told yet (Q21).
func (p *pass) spaced(ctx context.Context, c storage.Counter, route storage.Route, b reported, m exporter.Manifest) error {
	key := keyOf(c, route)
	if _, spent := p.spent[key]; spent {
		return nil
	}
	to := outbox.Carry(m.Values, b.acked, c.Value.Sub(b.elsewhere), !p.now.Before(c.PeriodEnd))
	if to.Equal(b.acked) {
		p.sum.Carried++
		return nil
	}
	b.span = outbox.Span(&m, p.now)
	before := p.sum.Staged
	done, err := p.stage(ctx, c, route, b, to)
	if err != nil {
		return err
	}
	if !done || p.sum.Staged > before {
		p.spent[key] = b.span.Add(m.Every)
	}
	return nil
}
