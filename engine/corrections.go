package engine

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Corrections returns a page of the corrections of one event in the order of
// their seq: at most limit (1 to 1000) after a cursor, which is 0 for the first
// page and Next of the page before. An event without any, known or not, has an
// empty page. It is unsupported where the store does not list corrections.
func (e *Engine) Corrections(ctx context.Context, original storage.EventKey, after int64, limit int) (storage.EventPage, error) {
	if limit < 1 || limit > 1000 {
		return storage.EventPage{}, sdk.Invalid("limit", "1 to 1000")
	}
	list, err := need[storage.CorrectionLister](e.cfg.Store, storage.Corrections)
	if err != nil {
		return storage.EventPage{}, err
	}
	page, err := list.ListCorrections(ctx, original, after, limit)
	if err != nil {
		return page, fmt.Errorf("list corrections: %w", err)
	}
	return page, nil
}
