package state

import (
	"context"
	"strconv"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Event is what is tracked: one event of one customer and what it is worth to
// each reducer that it feeds.
type Event struct {
	Customer string
	// ID is what [EventID] returns.
	ID string
	// Bucket is what [BucketOf] returns for the event's time.
	Bucket int64
	// Values has at least one.
	Values []Value
}

// Value is an event's quantity under one reducer.
type Value struct {
	Reducer string
	// Definition is a text of 1 to 150 bytes that changes when the same
	// reducer means something else.
	Definition string
	Quantity   decimal.Decimal
}

// Outcome says what a write did under one reducer.
type Outcome string

// Outcomes of [Store.Track].
const (
	// Added: counted, and pending by id.
	Added Outcome = "new"
	// Duplicate: it was counted before, and nothing changed.
	Duplicate Outcome = "duplicate"
	// Spilled: counted, but too many are pending. It is in an aggregate that
	// cannot give it up by id and counts until a snapshot that is asked for an
	// hour later.
	Spilled Outcome = "spilled"
)

// Change is what a write did to one state. Its message is the one that was
// published; a duplicate's has Kind [KindNone] and tells epoch, revision and tip.
type Change struct {
	Outcome Outcome
	Message Message
}

// Track counts an event under all its reducers at once, or under none. Changes
// follow the order of e.Values. It may be repeated with the same id.
//
// Errors: invalid; [ErrConflict], [ErrDefinition] and [ErrOverflow] with the
// position of the value as index; unavailable when it may have happened, or when
// Redis says why it did not.
func (s *Store) Track(ctx context.Context, e Event) ([]Change, error) {
	names, args, err := s.trackArgs(e)
	if err != nil {
		return nil, err
	}
	reply, err := s.trackOnce(ctx, names, args)
	if err != nil {
		return nil, err
	}
	if len(reply) != 1+2*len(e.Values) {
		return nil, errAnswer
	}
	changes := make([]Change, len(e.Values))
	for i := range changes {
		m, err := parseMessage(reply[2+2*i])
		if err != nil {
			return nil, errAnswer
		}
		changes[i] = Change{Outcome(reply[1+2*i]), m}
	}
	return changes, nil
}

// trackOnce keeps the position that a refusal names.
func (s *Store) trackOnce(ctx context.Context, names []string, args []any) ([]string, error) {
	reply, err := s.run(ctx, s.scripts.track, names, args...)
	if err != nil {
		return nil, err
	}
	out := texts(reply)
	if out == nil {
		return nil, errAnswer
	}
	if out[0] == "ok" {
		return out, nil
	}
	refused := refusal(out)
	if e, ok := refused.(*sdk.Error); ok && len(out) == 2 && e.Tag != sdk.TagInvalid { //nolint:errorlint // it was made there
		if i, err := strconv.Atoi(out[1]); err == nil {
			return nil, e.At(i)
		}
	}
	return nil, refused
}

func (s *Store) trackArgs(e Event) (names []string, args []any, err error) {
	if err := checkCustomer(e.Customer); err != nil {
		return nil, nil, err
	}
	if err := checkEvent(e.ID); err != nil {
		return nil, nil, err
	}
	if err := checkBucket(e.Bucket); err != nil {
		return nil, nil, err
	}
	if len(e.Values) == 0 || len(e.Values) > MaxReducers {
		return nil, nil, errReducers
	}
	nonce, err := s.mark()
	if err != nil {
		return nil, nil, err
	}
	args = make([]any, 0, 8+2*len(e.Values))
	args = append(args, s.keys.channel(e.Customer), nonce, s.now(), s.caps[0], s.caps[1], s.caps[2], e.ID, e.Bucket)
	seen := make(map[string]bool, len(e.Values))
	for _, v := range e.Values {
		if err := checkReducer(v.Reducer); err != nil {
			return nil, nil, err
		}
		if seen[v.Reducer] {
			return nil, nil, sdk.Invalid("reducer", "each at most once")
		}
		seen[v.Reducer] = true
		text, err := quantity(v.Quantity)
		if err != nil {
			return nil, nil, err
		}
		d, err := definition(v.Definition)
		if err != nil {
			return nil, nil, err
		}
		key := s.keys.state(Identity{e.Customer, v.Reducer})
		names = append(names, key, dedupe(key, e.Bucket))
		args = append(args, d, text)
	}
	return names, args, nil
}

var errReducers = sdk.Invalid("reducers", "1 to 64 reducers")

// definition is what the state keeps of it: with the scale, which a layout
// never changes.
func definition(d string) (string, error) {
	if d == "" || len(d) > 150 {
		return "", sdk.Invalid("definition", "1 to 150 bytes")
	}
	return strconv.Itoa(decimal.MaxDecimals) + "/" + d, nil
}

// Delivered names events of one customer whose deliveries have ended.
type Delivered struct {
	Customer string
	Reducers []string
	// IDs are at most MaxIDs.
	IDs []string
	// Buckets are those of the events, each at least once, in any order. An
	// event whose bucket is missing may be counted twice, until a snapshot, if
	// it is tracked again. Confirm ignores them.
	Buckets []int64
}

// Acknowledge says that the engine has stored the events. In a hot bucket they
// stop being pending, since it counts them whole; in a cold one they stay until
// a snapshot counts them. Unknown ids are skipped.
func (s *Store) Acknowledge(ctx context.Context, d Delivered) ([]Message, error) {
	args, err := s.delivered(d)
	if err != nil {
		return nil, err
	}
	seen := make(map[int64]bool, len(d.Buckets))
	var buckets []int64
	for _, b := range d.Buckets {
		if err := checkBucket(b); err != nil {
			return nil, err
		}
		if !seen[b] {
			seen[b] = true
			buckets = append(buckets, b)
		}
	}
	args = append(args, len(d.Reducers), len(buckets))
	for _, b := range buckets {
		args = append(args, b)
	}
	var names []string
	for _, r := range d.Reducers {
		key := s.keys.state(Identity{d.Customer, r})
		names = append(names, key, window(key), questions(key))
		for _, b := range buckets {
			names = append(names, dedupe(key, b))
		}
	}
	return s.changed(ctx, s.scripts.acknowledge, names, appendIDs(args, d.IDs))
}

// Confirm says that the engine will never count the events: they were dropped.
// They stop being pending anywhere. A hot bucket keeps them until a snapshot
// replaces it, because a minimum cannot give up a value, and because a dropped
// event may have been stored after all.
func (s *Store) Confirm(ctx context.Context, d Delivered) ([]Message, error) {
	args, err := s.delivered(d)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range d.Reducers {
		names = append(names, s.keys.state(Identity{d.Customer, r}))
	}
	return s.changed(ctx, s.scripts.confirm, names, appendIDs(args, d.IDs))
}

// delivered checks d and begins the arguments of its script.
func (s *Store) delivered(d Delivered) ([]any, error) {
	if err := checkCustomer(d.Customer); err != nil {
		return nil, err
	}
	if len(d.Reducers) == 0 || len(d.Reducers) > MaxReducers {
		return nil, errReducers
	}
	for _, r := range d.Reducers {
		if err := checkReducer(r); err != nil {
			return nil, err
		}
	}
	if err := checkIDs(d.IDs); err != nil {
		return nil, err
	}
	nonce, err := s.mark()
	if err != nil {
		return nil, err
	}
	return []any{s.keys.channel(d.Customer), nonce, s.now()}, nil
}

func checkIDs(ids []string) error {
	if len(ids) == 0 || len(ids) > MaxIDs {
		return sdk.Invalid("ids", "1 to 1000 ids")
	}
	for _, id := range ids {
		if err := checkEvent(id); err != nil {
			return err
		}
	}
	return nil
}

func appendIDs(args []any, ids []string) []any {
	for _, id := range ids {
		args = append(args, id)
	}
	return args
}

// changed runs a script that answers with the records that it published.
func (s *Store) changed(ctx context.Context, sc script, names []string, args []any) ([]Message, error) {
	reply, err := s.write(ctx, sc, names, args...)
	if err != nil {
		return nil, err
	}
	messages := make([]Message, 0, len(reply)-1)
	for _, record := range reply[1:] {
		m, err := parseMessage(record)
		if err != nil {
			return nil, errAnswer
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func texts(reply []any) []string {
	out := make([]string, len(reply))
	for i := range reply {
		text, ok := reply[i].(string)
		if !ok {
			return nil
		}
		out[i] = text
	}
	return out
}
