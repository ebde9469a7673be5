package state

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// MessageKind says what a message tells.
type MessageKind string

// Kinds of messages. What a reader does not know makes it load again.
const (
	KindTrack       MessageKind = "T" // one more event
	KindAcknowledge MessageKind = "A" // delivered
	KindConfirm     MessageKind = "C" // no longer pending: dropped, settled or too old
	KindSnapshot    MessageKind = "S" // the engine's totals were replaced: load
	KindNew         MessageKind = "N" // the state was made: load
	KindMerged      MessageKind = "R" // buckets were merged: load
	KindReset       MessageKind = "X" // the state is gone: load
	KindNone        MessageKind = "D" // of a duplicate: nothing changed
)

// Message is one change of one state, as it was published. Changes of a state
// form a chain: each names the tip before it.
type Message struct {
	Kind MessageKind
	// Key is the state's; [Store.Key] of an identity.
	Key             string
	Epoch, Tip      string
	Previous        string
	Revision        int64
	fields          []string // of a track
	ids             []string // of acknowledge (with a flag before each) and confirm
	reloadsItsState bool
}

var (
	errMessage = errors.New("not a message of layout v1")
	errField   = errors.New("not a field of layout v1")
)

// ParseMessages reads what arrives on a channel: one or more changes, of one
// customer, that happened at once.
func ParseMessages(payload string) ([]Message, error) {
	records, err := unpack(payload)
	if err != nil || len(records) == 0 {
		return nil, errMessage
	}
	out := make([]Message, len(records))
	for i, r := range records {
		if out[i], err = parseMessage(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func parseMessage(record string) (Message, error) {
	f, err := unpack(record)
	if err != nil || len(f) < 3 {
		return Message{}, errMessage
	}
	link := strings.Split(f[2], "|")
	if len(link) != 4 {
		return Message{}, errMessage
	}
	m := Message{Kind: MessageKind(f[0]), Key: f[1], Epoch: link[1], Previous: link[2], Tip: link[3]}
	if m.Revision, err = strconv.ParseInt(link[0], 10, 64); err != nil {
		return Message{}, errMessage
	}
	switch m.Kind {
	case KindTrack:
		if len(f) < 6 {
			return Message{}, errMessage
		}
		body := strings.Split(f[4], "|")
		if len(body) != 8 {
			return Message{}, errMessage
		}
		m.fields = slices.Concat(body, []string{f[3], f[5]})
	case KindAcknowledge, KindConfirm:
		if len(f) < 4 {
			return Message{}, errMessage
		}
		if m.ids, err = unpack(f[3]); err != nil {
			return Message{}, errMessage
		}
	case KindNone:
	default:
		m.reloadsItsState = true
	}
	return m, nil
}

// unpack reads length-prefixed fields: "3:abc0:".
func unpack(s string) ([]string, error) {
	var out []string
	for s != "" {
		length, rest, ok := strings.Cut(s, ":")
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n < 0 || n > len(rest) || length != strconv.Itoa(n) {
			return nil, errMessage
		}
		out = append(out, rest[:n])
		s = rest[n:]
	}
	return out, nil
}

// Effect is what a message meant to a copy of the state.
type Effect int

// Effects of [State.Apply].
const (
	// Applied: the copy is now what Redis holds after the message.
	Applied Effect = iota
	// Known: the copy holds it already.
	Known
	// Reload: the copy is not what the message follows. Load the state.
	Reload
)

// Apply brings a copy one change further, in place, if it is exactly the state
// that the change was made to: the same epoch and the same tip. A revision alone
// would not do, since numbers begin anew after a loss (C-T13). After Reload the
// copy is as it was.
func (st *State) Apply(m Message) Effect {
	if m.Epoch == st.Epoch && m.Tip == st.Tip {
		return Known
	}
	if m.reloadsItsState || m.Kind == KindNone || st.Epoch == "" || m.Epoch != st.Epoch || m.Previous != st.Tip {
		return Reload
	}
	return st.follow(m)
}

func (st *State) follow(m Message) Effect {
	switch m.Kind {
	case KindTrack:
		if !st.track(m.fields) {
			return Reload
		}
	case KindAcknowledge:
		for _, id := range m.ids {
			if len(id) < 2 {
				return Reload
			}
		}
		for _, id := range m.ids {
			if id[0] == 'h' {
				st.forget(id[1:])
			} else {
				st.deliver(id[1:])
			}
		}
	case KindConfirm:
		for _, id := range m.ids {
			st.forget(id)
		}
	default:
		return Reload
	}
	st.Tip, st.Revision = m.Tip, m.Revision
	return Applied
}

// track takes the fields bucket, value, tracked, p or o, the bucket's new count,
// sum, min and max (empty when cold), the id and the spilled aggregate.
func (st *State) track(f []string) bool {
	bucket, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return false
	}
	var hot Aggregate
	if f[4] != "" {
		if hot, err = aggregate(f[4:8]); err != nil {
			return false
		}
	}
	if f[3] == "p" {
		p, err := parsePending(strings.Join(f[:4], "|"))
		if err != nil {
			return false
		}
		st.remember(f[8], p)
	} else {
		o, err := parseSpill(f[9])
		if err != nil {
			return false
		}
		st.spilled[bucket] = o
	}
	if f[4] != "" {
		st.hot[bucket] = hot
	}
	return true
}
