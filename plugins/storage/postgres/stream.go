package postgres

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

type horizon struct{}

// StreamEvents returns events in insertion order after a cursor.
func (a *Adapter) StreamEvents(context.Context, storage.StreamQuery) (storage.EventPage, error) {
	return storage.EventPage{}, sdk.Unavailable("store", errors.New("not written yet"))
}
