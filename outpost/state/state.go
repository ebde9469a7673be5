package state

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Aggregate is what a reducer keeps of a set of events. The zero value is that
// of no events.
type Aggregate struct {
	Count int64
	Sum   decimal.Decimal
	// Min and Max count only if Extremes is set.
	Min, Max decimal.Decimal
	Extremes bool
}

// Merge is the aggregate of both sets.
func (a Aggregate) Merge(b Aggregate) Aggregate {
	out := Aggregate{Count: a.Count + b.Count, Sum: a.Sum.Add(b.Sum), Min: a.Min, Max: a.Max, Extremes: a.Extremes || b.Extremes}
	if !a.Extremes {
		out.Min, out.Max = b.Min, b.Max
		return out
	}
	if b.Extremes && b.Min.Cmp(out.Min) < 0 {
		out.Min = b.Min
	}
	if b.Extremes && b.Max.Cmp(out.Max) > 0 {
		out.Max = b.Max
	}
	return out
}

// Function is how a reducer makes one number of an aggregate.
type Function string

// The functions. What has none of these cannot be reduced into buckets.
const (
	Count Function = "count"
	Sum   Function = "sum"
	Avg   Function = "avg"
	Min   Function = "min"
	Max   Function = "max"
)

// Consumption is the number; 0 for no events. A mean is rounded half to even at
// 12 decimals. Ok is false for any other function.
func (f Function) Consumption(a Aggregate) (d decimal.Decimal, ok bool) {
	switch f {
	case Count:
		return decimal.FromScaled(a.Count, 0), true
	case Sum:
		return a.Sum, true
	case Avg:
		if a.Count <= 0 {
			return decimal.Decimal{}, true
		}
		return a.Sum.Mean(a.Count), true
	case Min, Max:
		switch {
		case !a.Extremes:
			return decimal.Decimal{}, true
		case f == Min:
			return a.Min, true
		}
		return a.Max, true
	}
	return decimal.Decimal{}, false
}

// Pending is an event that the engine's totals may lack.
type Pending struct {
	Bucket  int64
	Value   decimal.Decimal
	Tracked time.Time
	// Delivered: the engine has it. It counts until a snapshot accounts for it;
	// otherwise it counts for an hour after it was tracked.
	Delivered bool
}

func (p Pending) expires() time.Time { return p.Tracked.Add(PendingLife) }

// spill is an aggregate of events without ids.
type spill struct {
	Aggregate
	last time.Time
}

// State is a copy of one identity's state. [State.Apply] changes it: it has one
// owner, and is not safe for concurrent use. The zero value is the state of an
// identity that Redis knows nothing of.
type State struct {
	// Epoch names this life of the state; empty when there is none.
	Epoch, Tip string
	Revision   int64
	Definition string
	// Snapshot tells whether the engine's totals are there. Without them a
	// balance is not known (C-T31).
	Snapshot bool
	// ColdUntil is where the engine's totals end; Version, AppliedAt and
	// WindowStart are the snapshot's. WindowStart may be zero.
	ColdUntil, WindowStart int64
	Version                int64
	AppliedAt              time.Time
	// Totals are the engine's.
	Totals  Aggregate
	Credits map[string]decimal.Decimal
	// LoadedAt is the time of Redis at which the state was read.
	LoadedAt time.Time

	hot        map[int64]Aggregate
	spilled    map[int64]spill
	cold, warm map[string]Pending // pending before ColdUntil, and from it on
}

// Aggregate is all that counts at an instant of Redis's clock: the engine's
// totals, the hot buckets whole, and what is pending in cold ones. Until, if not
// zero, is when that changes without a message, because something gets too old.
func (st *State) Aggregate(now time.Time) (a Aggregate, until time.Time) {
	a = st.Totals
	for _, h := range st.hot {
		a = a.Merge(h)
	}
	for b, o := range st.spilled {
		if st.Snapshot && b < st.ColdUntil {
			a = a.Merge(o.Aggregate)
		}
	}
	for _, p := range st.cold {
		if !p.Delivered {
			if now.After(p.expires()) {
				continue
			}
			if at := p.expires(); until.IsZero() || at.Before(until) {
				until = at
			}
		}
		a = a.Merge(Aggregate{1, p.Value, p.Value, p.Value, true})
	}
	return a, until
}

// Balance is a meter's credits less a consumption. Ok is false when there is no
// snapshot or it has no such meter.
func (st *State) Balance(meter string, consumption decimal.Decimal) (d decimal.Decimal, ok bool) {
	credited, ok := st.Credits[meter]
	if !st.Snapshot || !ok {
		return decimal.Decimal{}, false
	}
	return credited.Sub(consumption), true
}

// PendingCount is how many events are pending by id.
func (st *State) PendingCount() int { return len(st.cold) + len(st.warm) }

// Pending returns the pending event of that name.
func (st *State) Pending(id string) (p Pending, ok bool) {
	if p, ok = st.cold[id]; !ok {
		p, ok = st.warm[id]
	}
	return p, ok
}

func (st *State) remember(id string, p Pending) {
	if st.Snapshot && p.Bucket < st.ColdUntil {
		st.cold[id] = p
	} else {
		st.warm[id] = p
	}
}

func (st *State) forget(id string) {
	delete(st.cold, id)
	delete(st.warm, id)
}

func (st *State) deliver(id string) {
	if p, ok := st.cold[id]; ok {
		p.Delivered = true
		st.cold[id] = p
	}
}

var errState = errors.New("not a state of layout v1")

// decode reads the hash, as a flat list of fields and values.
func decode(now time.Time, flat []string) (*State, error) {
	st := &State{
		LoadedAt: now, hot: map[int64]Aggregate{}, spilled: map[int64]spill{},
		cold: map[string]Pending{}, warm: map[string]Pending{}, Credits: map[string]decimal.Decimal{},
	}
	if len(flat)%2 != 0 {
		return nil, errState
	}
	f := make(map[string]string, len(flat)/2)
	for pair := range slices.Chunk(flat, 2) {
		f[pair[0]] = pair[1]
	}
	if len(f) == 0 {
		return st, nil
	}
	if f["ep"] == "" || f["tp"] == "" {
		return nil, errState
	}
	if err := st.head(f); err != nil {
		return nil, err
	}
	for name, value := range f {
		if err := st.field(name, value); err != nil {
			return nil, err
		}
	}
	for _, b := range strings.FieldsFunc(f["bi"], func(r rune) bool { return r == ',' }) {
		bucket, err := strconv.ParseInt(b, 10, 64)
		if err != nil {
			return nil, errState
		}
		if st.hot[bucket], err = aggregate([]string{f["n:"+b], f["s:"+b], f["l:"+b], f["h:"+b]}); err != nil {
			return nil, errState
		}
	}
	return st, nil
}

func (st *State) head(f map[string]string) error {
	var err error
	number := func(name string) int64 {
		if f[name] == "" {
			return 0
		}
		n, e := strconv.ParseInt(f[name], 10, 64)
		err = errors.Join(err, e)
		return n
	}
	st.Epoch, st.Tip, st.Definition = f["ep"], f["tp"], f["df"]
	st.Revision = number("rv")
	if f["cu"] != "" {
		st.Snapshot, st.ColdUntil, st.Version, st.WindowStart = true, number("cu"), number("sv"), number("ws")
		st.AppliedAt = time.UnixMilli(number("sa"))
		totals, e := aggregate([]string{f["sn"], f["ss"], f["sl"], f["sh"]})
		st.Totals, err = totals, errors.Join(err, e)
	}
	if err != nil {
		return errState
	}
	return nil
}

// field reads what there are many of. Unknown fields are none of this release's
// business: a later one of the same layout may add some.
func (st *State) field(name, value string) error {
	kind, rest, ok := strings.Cut(name, ":")
	if !ok {
		return nil
	}
	switch kind {
	case "p":
		p, err := parsePending(value)
		if err != nil {
			return errState
		}
		st.remember(rest, p)
	case "o":
		bucket, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return errState
		}
		if st.spilled[bucket], err = parseSpill(value); err != nil {
			return errState
		}
	case "cr":
		d, err := unscaled(value)
		if err != nil {
			return errState
		}
		st.Credits[rest] = d
	}
	return nil
}

// aggregate reads count, sum, min and max; the last two may be empty.
func aggregate(f []string) (a Aggregate, err error) {
	if a.Count, err = strconv.ParseInt(f[0], 10, 64); err != nil {
		return a, errField
	}
	if a.Sum, err = unscaled(f[1]); err != nil {
		return a, err
	}
	if f[2] == "" || f[3] == "" {
		return a, nil
	}
	a.Extremes = true
	if a.Min, err = unscaled(f[2]); err != nil {
		return a, err
	}
	a.Max, err = unscaled(f[3])
	return a, err
}

func parsePending(s string) (p Pending, err error) {
	f := strings.Split(s, "|")
	if len(f) != 4 || (f[3] != "p" && f[3] != "a") {
		return p, errField
	}
	if p.Bucket, err = strconv.ParseInt(f[0], 10, 64); err != nil {
		return p, errField
	}
	if p.Value, err = unscaled(f[1]); err != nil {
		return p, err
	}
	ms, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return p, errField
	}
	p.Tracked, p.Delivered = time.UnixMilli(ms), f[3] == "a"
	return p, nil
}

func parseSpill(s string) (o spill, err error) {
	f := strings.Split(s, "|")
	if len(f) != 5 {
		return o, errField
	}
	if o.Aggregate, err = aggregate(f[:4]); err != nil {
		return o, err
	}
	ms, err := strconv.ParseInt(f[4], 10, 64)
	if err != nil {
		return o, errField
	}
	o.last = time.UnixMilli(ms)
	return o, nil
}
