package postgres

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// RecordEvents writes units, their totals and their outbox items in one
// transaction; see [storage.RecordRequest].
func (store) RecordEvents(context.Context, storage.RecordRequest) (storage.RecordResult, error) {
	return storage.RecordResult{}, sdk.Unavailable("store", errors.New("not written yet"))
}
