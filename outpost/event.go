package outpost

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"time"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/outpost/state"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// Event is what an application tracks: a CloudEvent whose subject is a customer.
type Event struct {
	// ID is unique for its source. Empty: a new UUIDv7. Whoever repeats a call
	// gives the same ID.
	ID string
	// Source is that of the client if it is empty.
	Source string
	Type   string
	// Customer is the engine's tenant.
	Customer string
	// Time is when it happened. Zero, and what lies ahead of the client's clock,
	// is now: the engine takes no future.
	Time time.Time
	Data json.RawMessage
}

// filled is the event with what is absent filled in.
func (c *Client) filled(e Event) (meter.CloudEvent, error) {
	now := c.cfg.Now().UTC()
	if e.Time.IsZero() || e.Time.After(now) {
		e.Time = now // C-T10: one clock that is ahead must not refuse a batch
	}
	if e.ID == "" {
		id, err := newID(c.cfg.Rand, now)
		if err != nil {
			return meter.CloudEvent{}, sdk.Unavailable("random", err)
		}
		e.ID = id
	}
	if e.Source == "" {
		e.Source = c.cfg.Source
	}
	ev := meter.CloudEvent{
		ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Customer, Time: meter.Truncate(e.Time), Data: e.Data,
	}
	if e.Data != nil {
		ev.DataContentType = "application/json"
	}
	// What the engine would refuse is refused here, before anything is written,
	// by the same decoder.
	text, err := json.Marshal(ev)
	if err != nil {
		return ev, sdk.Invalid("data", "JSON")
	}
	ev, err = meter.DecodeCloudEvent(text)
	if err != nil {
		return ev, err
	}
	if len(ev.ReceiptID()) > maxReceipt {
		return ev, sdk.Invalid("id", "with the source at most 120 bytes: both together name the event in Redis")
	}
	return ev, nil
}

// maxReceipt is the longest name of an event that is kept in Redis as it is: of a
// hash the engine could not say whether it has it.
const maxReceipt = 128

// name is what the state calls an event.
func name(e meter.CloudEvent) string { return state.EventID(state.CloudEvent, e.ReceiptID()) }

// newID is a UUIDv7 (RFC 9562): ids of one instance rise with time.
func newID(random io.Reader, now time.Time) (string, error) {
	if random == nil {
		random = rand.Reader
	}
	var b [16]byte
	if _, err := io.ReadFull(random, b[6:]); err != nil {
		return "", err
	}
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli()))
	copy(b[:6], ms[2:])
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:], nil
}
