package meter

import (
	"encoding/json"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// PlainEvent is an event in the project's own JSON form.
type PlainEvent struct {
	ID       string
	Tenant   string
	Feature  string
	Quantity decimal.Decimal
	// Time is in UTC, cut to microseconds towards the past; zero if the event
	// came without one.
	Time       time.Time
	Dimensions map[string]string // nil if there are none
	Metadata   json.RawMessage   // the caller's text of a JSON object, or nil
}

// DedupeHash is the canonical hash of e as it came, absent time as absent.
// It fails only for an event that [Rules.Plain] refuses.
func (e PlainEvent) DedupeHash() (storage.Hash, error) {
	return storage.Hash{}, sdk.Invalid("", "not built yet")
}

// PlainItem is one event of a batch, or what is wrong with it.
type PlainItem struct {
	Event PlainEvent
	Err   error // nil, or Errors naming "events[i].…"
}

// DecodePlain reads one event. Unknown fields are errors. The result keeps every
// limit of this package except those that need a clock or a feature's settings;
// see [Rules.Plain].
func DecodePlain(body []byte) (PlainEvent, error) {
	return PlainEvent{}, Errors{sdk.Invalid("", "not built yet")}
}

// DecodePlainBatch reads a JSON array of events. The error concerns the batch as
// a whole; what is wrong with one event is in its item.
func DecodePlainBatch(body []byte) ([]PlainItem, error) {
	return nil, Errors{sdk.Invalid("", "not built yet")}
}
