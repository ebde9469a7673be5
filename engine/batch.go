package engine

import (
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Input is one thing to record. Exactly one field is set.
type Input struct {
	Plain *Event
	Cloud *meter.CloudEvent
}

func (in Input) id() string {
	switch {
	case in.Plain != nil:
		return in.Plain.ID
	case in.Cloud != nil:
		return in.Cloud.ID
	}
	return ""
}

func (in Input) tenant() string {
	if in.Plain != nil {
		return in.Plain.Tenant
	}
	return in.Cloud.Subject
}

// identity is the key under which two inputs are the same delivery.
func (in Input) identity() storage.EventKey {
	if in.Plain != nil {
		return storage.EventKey{Tenant: in.Plain.Tenant, EventID: in.Plain.ID}
	}
	// No plain id begins with "ce:", so the two kinds never meet.
	return storage.EventKey{Tenant: in.Cloud.Subject, EventID: "ce:" + in.Cloud.ReceiptID()}
}

// Batch is one call. The zero Mode is atomic.
type Batch struct {
	Inputs []Input
	Mode   storage.RecordMode
}

func plainBatch(events []Event) Batch {
	b := Batch{Mode: storage.Atomic, Inputs: make([]Input, len(events))}
	for i := range events {
		b.Inputs[i].Plain = &events[i]
	}
	return b
}

// Outcome is what became of one input.
type Outcome string

// The outcomes of an input.
const (
	Inserted  Outcome = "inserted"
	Duplicate Outcome = "duplicate"
	Conflict  Outcome = "conflict"
	Invalid   Outcome = "invalid"
	// Unmatched is a CloudEvent that no meter wants: stored once, counted,
	// and part of no total.
	Unmatched Outcome = "unmatched"
)

// Result answers one input.
type Result struct {
	// Index is the input's position in the batch, from zero.
	Index   int
	ID      string
	Outcome Outcome
	// Seq is the insertion identity of a plain event.
	Seq int64
	// Entries are the features that a CloudEvent fed.
	Entries []Entry
	// Err says what is wrong: set for invalid and conflict. If the outcome
	// is empty, Err is why nothing is known of it (tag unavailable).
	Err error
}

// Entry is one feature of a CloudEvent.
type Entry struct {
	Feature string
	EventID string
	Outcome Outcome
	Seq     int64
}

// conflictError is the error of an input whose identity exists with other
// content.
func conflictError() *sdk.Error {
	return &sdk.Error{
		Tag: sdk.TagConflict, Code: "payload_differs", Field: "id",
		Rule: "an id that was recorded before has the same content when it comes again",
	}
}
