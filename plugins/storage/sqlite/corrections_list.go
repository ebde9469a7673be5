package sqlite

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var _ storage.CorrectionLister = (*Adapter)(nil)

// ListCorrections returns a page of the corrections of one event.
func (a *Adapter) ListCorrections(ctx context.Context, original storage.EventKey, after int64, limit int) (page storage.EventPage, err error) {
	const op = "list corrections"
	if err := checkLimit(limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) error {
		page = storage.EventPage{Events: []storage.Event{}, Next: after}
		return c.bind(qCorrectionsOf).text(original.Tenant).text(original.EventID).int(after).int(int64(limit) + 1).each(func(r *row) error {
			page.Events = append(page.Events, r.event())
			return nil
		})
	})
	if err != nil {
		return storage.EventPage{}, err
	}
	if page.More = len(page.Events) > limit; page.More {
		page.Events = page.Events[:limit]
	}
	if n := len(page.Events); n > 0 {
		page.Next = page.Events[n-1].Seq
	}
	return page, nil
}
