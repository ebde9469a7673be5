// Package protocol is what an outpost and the engine say to each other over
// GET /v1/outpost: the subprotocol outpost.v1, one JSON object in each text frame.
// Decimals are strings, times are microseconds since 1970, ids are strings. What a
// side does not know, types and fields, it ignores.
package protocol

import (
	"encoding/json"
	"errors"

	"github.com/fencepost/fencepost/engine/meter"
)

const (
	// Subprotocol is what both sides name in the handshake.
	Subprotocol = "outpost.v1"
	// MaxFrame is the largest frame, in bytes.
	MaxFrame = 1 << 20
	// MaxIDs is how many ids one question may ask about.
	MaxIDs = 1000
	// MaxInterest is how many identities one message may name.
	MaxInterest = 1000
	// MaxIdentities is how many a connection may be interested in.
	MaxIdentities = 100_000
	// Scale is how many decimals a quantity has at most.
	Scale = 12
)

// Close codes beyond those of RFC 6455.
const (
	// CloseUnauthorized says that a token is none: final for it.
	CloseUnauthorized = 4401
	// CloseForbidden says that a token may not do this: final for it.
	CloseForbidden = 4403
)

// Type says what a message is.
type Type string

// The messages of a client.
const (
	TypeHello    Type = "hello"
	TypeInterest Type = "interest"
	TypeQuestion Type = "question"
)

// The messages of the engine.
const (
	TypeWelcome       Type = "welcome"
	TypeConfiguration Type = "configuration"
	TypeSnapshot      Type = "snapshot"
	TypeChanged       Type = "changed"
	TypeError         Type = "error"
	TypeGoodbye       Type = "goodbye"
)

// Envelope is every message. RID names a question, and its one answer.
type Envelope struct {
	Type    Type            `json:"type"`
	RID     string          `json:"rid,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Hello is a client's first message.
type Hello struct {
	SDK      string `json:"sdk"`
	Layouts  []int  `json:"layouts"`
	Instance string `json:"instance"`
}

// Welcome answers it.
type Welcome struct {
	Session          string `json:"session"`
	ServerTime       int64  `json:"server_time"`
	HeartbeatSeconds int    `json:"heartbeat_s"`
	MaxIDs           int    `json:"max_ids"`
	MaxFrame         int    `json:"max_frame"`
	Layout           int    `json:"layout"`
}

// Configuration says what there is to compute. It follows the welcome.
type Configuration struct {
	// ETag is the same for equal configurations.
	ETag     string    `json:"etag"`
	Reducers []Reducer `json:"reducers"`
	// Measures are the meters that measure CloudEvents, as the engine does.
	Measures []meter.Meter `json:"measures"`
}

// Reducer is what usage is added up by.
type Reducer struct {
	ID string `json:"id"`
	// Definition changes when the reducer means something else.
	Definition string            `json:"definition"`
	Feature    string            `json:"feature"`
	Function   string            `json:"function"`
	Filter     map[string]string `json:"filter,omitempty"`
	// Meters are the names of those whose balance is computed from it.
	Meters []string `json:"meters"`
}

// Identity is one reducer of one customer.
type Identity struct {
	Customer string `json:"customer"`
	Reducer  string `json:"reducer"`
}

// Interest says which identities a client wants to hear of.
type Interest struct {
	Add    []Identity `json:"add,omitempty"`
	Remove []Identity `json:"remove,omitempty"`
}

// Question asks for a snapshot. A zero ColdFloor asks for none.
type Question struct {
	Identity

	Definition string   `json:"definition"`
	ColdFloor  int64    `json:"cold_floor,omitempty"`
	Bootstrap  bool     `json:"bootstrap,omitempty"`
	Events     []string `json:"events,omitempty"`
	Receipts   []string `json:"receipts,omitempty"`
}

// Snapshot is the answer to a question.
type Snapshot struct {
	Identity

	Definition  string            `json:"definition"`
	Version     int64             `json:"version"`
	ColdUntil   int64             `json:"cold_until"`
	WindowStart int64             `json:"window_start,omitempty"`
	Count       int64             `json:"count"`
	Sum         string            `json:"sum"`
	Min         *string           `json:"min,omitempty"`
	Max         *string           `json:"max,omitempty"`
	Credits     map[string]string `json:"credits"`
	Events      []string          `json:"events,omitempty"`
	Receipts    []string          `json:"receipts,omitempty"`
	AsOf        int64             `json:"as_of"`
	Known       bool              `json:"known"`
}

// Cause says why an answer would be another one now.
type Cause string

// The causes.
const (
	CauseEdge       Cause = "edge" // a bucket has closed
	CauseLate       Cause = "late" // usage of a closed bucket, or a correction
	CauseCredit     Cause = "credit"
	CauseSeal       Cause = "seal"
	CauseDefinition Cause = "definition"
)

// Changed is a hint about an identity; an empty reducer means all of the
// customer's. It never carries totals.
type Changed struct {
	Identity

	Cause Cause `json:"cause"`
}

// Code says why a question is not answered.
type Code string

// The codes of errors.
const (
	CodeBadRequest        Code = "bad_request"
	CodeUnknownReducer    Code = "unknown_reducer"
	CodeDefinitionChanged Code = "definition_changed"
	CodeColdRegressed     Code = "cold_regressed"
	CodeRateLimited       Code = "rate_limited"
	CodeUnavailable       Code = "unavailable"
	CodeUnsupported       Code = "unsupported"
)

// Error answers a question that has no answer.
type Error struct {
	Code         Code   `json:"code"`
	Field        string `json:"field,omitempty"`
	Rule         string `json:"rule,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

// Goodbye comes before the engine closes.
type Goodbye struct {
	Reason       string `json:"reason"`
	RetryAfterMS int64  `json:"retry_after_ms"`
}

// ErrFrame is the error of what is no message.
var ErrFrame = errors.New("a frame that is no message of outpost.v1")

// Encode makes a frame.
func Encode(t Type, rid string, payload any) ([]byte, error) {
	p, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	return json.Marshal(Envelope{Type: t, RID: rid, Payload: p})
}

// Decode reads a frame. Types and fields that are not known are no errors.
func Decode(frame []byte) (Envelope, error) {
	var e Envelope
	if len(frame) > MaxFrame || json.Unmarshal(frame, &e) != nil || e.Type == "" || len(e.RID) > 128 {
		return Envelope{}, ErrFrame
	}
	return e, nil
}

// Into reads the payload.
func (e Envelope) Into(v any) error {
	if len(e.Payload) == 0 || json.Unmarshal(e.Payload, v) != nil {
		return ErrFrame
	}
	return nil
}
