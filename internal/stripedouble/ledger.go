package stripedouble

import "time"

// Entry is what the double knows of one identifier.
type Entry struct {
	Identifier string `json:"identifier"`
	Account    string `json:"account"`
	Livemode   bool   `json:"livemode"`
	// EventName, Customer, Value and Timestamp are those of the first charge.
	// Value is canonical decimal text, Timestamp in seconds since the epoch.
	EventName string `json:"event_name"`
	Customer  string `json:"customer"`
	Value     string `json:"value"`
	Timestamp int64  `json:"timestamp"`
	// FirstSeen is when it was first charged, LastCharged when it was last
	// charged, by the double's clock.
	FirstSeen   time.Time `json:"first_seen"`
	LastCharged time.Time `json:"last_charged"`
	// TimesSeen counts the executions that named it, Charges those that
	// charged. Replays under an Idempotency-Key are no executions.
	// A charge that was not counted after all is no charge any more.
	TimesSeen int `json:"times_seen"`
	Charges   int `json:"charges"`
	// CancelledAt is when an adjustment cancelled it; zero: it stands.
	CancelledAt time.Time `json:"cancelled_at,omitzero"`
	// Rejected is the code with which it was not counted after all, RejectedAt
	// when that was.
	Rejected   string    `json:"rejected,omitempty"`
	RejectedAt time.Time `json:"rejected_at,omitzero"`
	// Omitted: no summary has it.
	Omitted bool `json:"omitted,omitempty"`
}

// EventTotal is what was charged to one event name.
type EventTotal struct {
	Events  int    `json:"events"`  // identifiers
	Charges int    `json:"charges"` // of which more than one may be the same identifier's
	Total   string `json:"total"`   // exact decimal sum over the charges
	Net     string `json:"net"`     // the same without what was cancelled
}

// Ledger is the double's judgement. All but Requests, Answers, Replays,
// Adjustments, Reads and FaultsFired survives a restart.
type Ledger struct {
	// ChargesTotal is the exact decimal sum of all charges by event name.
	ChargesTotal map[string]string `json:"charges_total"`
	// Events is the number of identifiers, Charges that of charges. They
	// differ if something was charged twice.
	Events  int `json:"events"`
	Charges int `json:"charges"`
	// DoubleCharges is the number of identifiers charged more than once;
	// DoubleCharged names the first hundred of them.
	DoubleCharges int      `json:"double_charges"`
	DoubleCharged []string `json:"double_charged"`
	// DuplicatesRefused counts repeats that were refused.
	DuplicatesRefused int `json:"duplicates_refused"`
	// NetTotal is ChargesTotal without what was cancelled: what Stripe would
	// bill. Cancelled counts cancelled charges, Rejected those that were not
	// counted after all.
	NetTotal    map[string]string     `json:"net_total"`
	Cancelled   int                   `json:"cancelled"`
	Rejected    int                   `json:"rejected"`
	ByEventName map[string]EventTotal `json:"by_event_name"`

	// Requests counts calls of POST /v1/billing/meter_events since the start,
	// Answers the statuses sent to them, Replays the stored answers among
	// those. A request whose connection was cut is in no answer.
	Requests int64            `json:"requests"`
	Answers  map[string]int64 `json:"answers"`
	Replays  int64            `json:"replays"`
	// Adjustments counts calls of POST /v1/billing/meter_event_adjustments,
	// Reads those of the meters, summaries and events.
	Adjustments int64 `json:"adjustments"`
	Reads       int64 `json:"reads"`
	// FaultsFired counts by rule how often a fault took place.
	FaultsFired map[string]int64 `json:"faults_fired"`
	// Clock is the double's time.
	Clock time.Time `json:"clock"`
}
