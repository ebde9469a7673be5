package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const qCorrectionsOf query = "corrections_of"

var _ storage.CorrectionLister = (*Adapter)(nil)

// ListCorrections returns a page of the corrections of one event.
func (s store) ListCorrections(ctx context.Context, original storage.EventKey, after int64, limit int) (page storage.EventPage, err error) {
	const op = "list corrections"
	if err := checkLimit(limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = s.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		page = storage.EventPage{Events: []storage.Event{}, Next: after}
		return t.each(ctx, qCorrectionsOf, func(r pgx.Rows) error {
			ev, err := scanEvent(r)
			page.Events = append(page.Events, ev)
			return err
		}, original.Tenant, original.EventID, after, limit+1)
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
