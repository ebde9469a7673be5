//go:build unix

package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// A world is one customer, several reducers, an engine that stores events, an
// application that tracks, delivers, loses and repeats, and a copy that follows
// the channel. After each step the state in Redis is compared with what the
// world knows about each event.
type world struct {
	ctx    context.Context
	rng    *rand.Rand
	client redis.UniversalClient
	store  *Store
	sub    *redis.PubSub
	marks  int
	org    string

	customer string
	reducers []*reducer
	now      int64 // the engine's clock, ms
	skew     int64 // Redis's clock less that

	events  []*event
	queue   []*event // tracked, and not known to be delivered
	acks    []*event // delivered, and not acknowledged
	lost    []*event // the reply of track was lost
	open    []*question
	answers []*answer
	version int64

	flushes, negative, big, steps bool
	loss                          float64 // of messages to the copy
	// deaf: nobody follows the channel. Nodes of a cluster pass messages on
	// without a common order, so nothing tells when all have arrived.
	deaf bool
}

// reducer is one state and what the world expects of it.
type reducer struct {
	id       Identity
	function Function
	// tracked are the events of this epoch that its script ran for.
	tracked map[*event]*track
	given   map[int64]*answer // by version
	epoch   string
	cu, sv  int64
	lives   int
	copy    *State
}

type track struct {
	at       int64
	spilled  bool
	exempt   bool // nobody has to count it: too old, or its aggregate was given up
	returned bool
}

type event struct {
	id      string
	bucket  int64
	values  map[*reducer]*big.Int
	stored  bool
	dropped bool
}

type question struct {
	r     *reducer
	q     Question
	ids   []string
	asked int64
}

type answer struct {
	of      *question
	version int64
	cu      int64
	set     map[*event]bool
	ids     []string
}

func newWorld(ctx context.Context, client redis.UniversalClient, seed uint64, sc scripts) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 6))
	w := &world{
		ctx: ctx, rng: rng, client: client, org: "s" + strconv.FormatUint(seed, 10), now: 1_760_000_000_000 + rng.Int64N(600_000),
		flushes: rng.IntN(4) == 0, negative: rng.IntN(3) == 0, big: rng.IntN(2) == 0, steps: rng.IntN(3) == 0,
		loss: []float64{0, 0.2, 0.35}[rng.IntN(3)],
	}
	store, err := New(client, Config{Org: w.org, Clock: func() time.Time { return time.UnixMilli(w.now + w.skew) }})
	if err != nil {
		return nil, err
	}
	store.scripts = sc
	store.caps = [3]int{[]int{PendingCap, PendingCap, 5}[rng.IntN(3)], []int{BucketCap, BucketCap, 3}[rng.IntN(3)], SpillCap}
	w.store = store
	w.customer = []string{"acme", "a}b:{c", "\x00\n|,:"}[rng.IntN(3)]
	for i, f := range []Function{Count, Sum, Min, Max, Avg}[:1+rng.IntN(5)] {
		w.reducers = append(w.reducers, &reducer{
			id: Identity{w.customer, fmt.Sprintf("r_%032x", i)}, function: f,
			tracked: map[*event]*track{}, given: map[int64]*answer{}, copy: &State{},
		})
	}
	if err := w.flushAll(); err != nil {
		return nil, err
	}
	if _, w.deaf = client.(*redis.ClusterClient); w.deaf {
		return w, nil
	}
	w.sub = store.Subscribe(ctx)
	for range Channels {
		if _, err := w.sub.Receive(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// run takes steps and then lets everything end. An error tells the rule.
func (w *world) run(steps int) error {
	if w.sub != nil {
		defer func() { _ = w.sub.Close() }()
	}
	for i := range steps {
		name, err := w.step()
		if err == nil {
			err = w.check()
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i, name, err)
		}
	}
	if err := w.finish(); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	return nil
}

func (w *world) step() (string, error) {
	n := w.rng.IntN(100)
	switch {
	case n < 28:
		return "track", w.trackNew()
	case n < 34:
		return "track again", w.trackAgain()
	case n < 48:
		return "deliver", w.deliver()
	case n < 60:
		return "acknowledge", w.acknowledge()
	case n < 70:
		return "ask", w.ask()
	case n < 79:
		return "answer", w.answer()
	case n < 88:
		return "apply", w.apply()
	case n < 95:
		return "clock", w.tick()
	case n < 97:
		return "sweep", w.sweep()
	case n < 98:
		return "crash", w.crash()
	case w.flushes && n < 99:
		return "flush", w.flush()
	}
	return "conflict", w.conflict()
}

func (w *world) value() *big.Int {
	v := big.NewInt(w.rng.Int64N(2_000_000_000_000))
	if w.big && w.rng.IntN(2) == 0 {
		digits := 1 + w.rng.IntN(38)
		text := make([]byte, digits)
		for i := range text {
			text[i] = byte('0' + w.rng.IntN(10))
		}
		v.SetString(string(text), 10)
	}
	if w.negative && w.rng.IntN(3) == 0 {
		v.Neg(v)
	}
	return v
}

func (w *world) trackNew() error {
	at := w.now - w.rng.Int64N(400_000)
	switch w.rng.IntN(10) {
	case 0, 1:
		at = w.now - w.rng.Int64N(90*60_000) // late
	case 2:
		at = w.now + w.rng.Int64N(300_000) // a clock ahead
	}
	e := &event{id: EventID(Plain, fmt.Sprintf("|%d:%s", len(w.events), w.org)), bucket: BucketOf(time.UnixMilli(at)), values: map[*reducer]*big.Int{}}
	for e.values[w.reducers[0]] == nil && len(e.values) == 0 {
		for _, r := range w.reducers {
			if w.rng.IntN(3) > 0 {
				e.values[r] = w.value()
			}
		}
	}
	w.events = append(w.events, e)
	returned := w.rng.IntN(8) > 0
	if err := w.track(e, returned); err != nil {
		return err
	}
	if returned {
		w.queue = append(w.queue, e)
	} else {
		w.lost = append(w.lost, e)
	}
	return nil
}

// track runs the script. Returned is whether the application hears of it.
func (w *world) track(e *event, returned bool) error {
	request := Event{Customer: w.customer, ID: e.id, Bucket: e.bucket}
	var fed []*reducer
	for _, r := range w.reducers {
		if v := e.values[r]; v != nil {
			fed = append(fed, r)
			request.Values = append(request.Values, Value{r.id.Reducer, "d1", dec(v.String())})
		}
	}
	changes, err := w.store.Track(w.ctx, request)
	if err != nil {
		return err
	}
	for i, r := range fed {
		switch t := r.tracked[e]; {
		case t == nil:
			r.tracked[e] = &track{at: w.now + w.skew, spilled: changes[i].Outcome == Spilled, returned: returned}
		case returned:
			t.returned = true
		}
		if returned && changes[i].Outcome != Duplicate && r.copy.Apply(changes[i].Message) == Reload { // the writer's own copy
			if r.copy, err = w.store.Load(w.ctx, r.id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) trackAgain() error {
	if len(w.lost) > 0 && w.rng.IntN(3) > 0 {
		i := w.rng.IntN(len(w.lost))
		e := w.lost[i]
		w.lost = slices.Delete(w.lost, i, i+1)
		if !w.remembered(e, false) {
			return nil
		}
		if err := w.track(e, true); err != nil {
			return err
		}
		w.queue = append(w.queue, e)
		return nil
	}
	if len(w.events) == 0 {
		return nil
	}
	e := w.events[len(w.events)-1-w.rng.IntN(min(len(w.events), 12))]
	if e.dropped || slices.Contains(w.lost, e) || !w.remembered(e, true) {
		return nil
	}
	return w.track(e, true)
}

// remembered: an id that nothing remembers any more is a new event and counts
// until the next snapshot. That is allowed, but then no number is exact.
func (w *world) remembered(e *event, hot bool) bool {
	for _, r := range w.reducers {
		t := r.tracked[e]
		if e.values[r] != nil && ((t != nil && t.exempt) || (hot && (t == nil || e.bucket < r.cu))) {
			return false
		}
	}
	return true
}

// conflict tries another value under an id that is pending.
func (w *world) conflict() error {
	if len(w.queue) == 0 {
		return nil
	}
	e := w.queue[w.rng.IntN(len(w.queue))]
	r := w.reducers[0]
	if e.values[r] == nil {
		return nil
	}
	st, err := w.store.Load(w.ctx, r.id)
	if err != nil {
		return err
	}
	if _, ok := st.Pending(e.id); !ok {
		return nil
	}
	other := new(big.Int).Add(e.values[r], big.NewInt(1))
	if len(other.String()) > 38 {
		return nil
	}
	_, err = w.store.Track(w.ctx, Event{w.customer, e.id, e.bucket, []Value{{r.id.Reducer, "d1", dec(other.String())}}})
	if !errors.Is(err, ErrConflict) {
		return fmt.Errorf("another value under a pending id: %w", errOr(err))
	}
	return nil
}

func (w *world) batch(from *[]*event) []*event {
	n := min(len(*from), 1+w.rng.IntN(5))
	if w.rng.IntN(3) == 0 {
		w.rng.Shuffle(len(*from), func(i, j int) { (*from)[i], (*from)[j] = (*from)[j], (*from)[i] })
	}
	out := slices.Clone((*from)[:n])
	*from = slices.Delete(*from, 0, n)
	return out
}

func (w *world) deliver() error {
	batch := w.batch(&w.queue)
	if len(batch) == 0 {
		return nil
	}
	store := func() {
		for _, e := range batch {
			e.stored = true
		}
	}
	switch n := w.rng.IntN(20); {
	case n < 12:
		store()
		w.acks = append(w.acks, batch...)
	case n < 15: // stored, and the answer is lost
		store()
		w.queue = append(w.queue, batch...)
	case n < 18: // nothing happened: no byte in Redis changes (I6), for nobody calls it
		w.queue = append(w.queue, batch...)
	default: // dropped, perhaps after it was stored (C-T9)
		if n == 19 {
			store()
		}
		for _, e := range batch {
			e.dropped = true
		}
		_, err := w.store.Confirm(w.ctx, w.delivered(batch))
		return err
	}
	return nil
}

func (w *world) delivered(batch []*event) Delivered {
	d := Delivered{Customer: w.customer}
	for _, r := range w.reducers {
		d.Reducers = append(d.Reducers, r.id.Reducer)
	}
	for _, e := range batch {
		d.IDs, d.Buckets = append(d.IDs, e.id), append(d.Buckets, e.bucket)
	}
	return d
}

func (w *world) acknowledge() error {
	batch := w.batch(&w.acks)
	if len(batch) == 0 {
		return nil
	}
	if w.rng.IntN(10) == 0 {
		w.acks = append(w.acks, batch...) // its reply is lost; it comes again
	}
	_, err := w.store.Acknowledge(w.ctx, w.delivered(batch))
	return err
}

func (w *world) ask() error {
	r := w.reducers[w.rng.IntN(len(w.reducers))]
	limit := MaxIDs
	if w.rng.IntN(4) == 0 {
		limit = 3
	}
	_, err := w.askFor(r, limit)
	return err
}

func (w *world) askFor(r *reducer, limit int) (*question, error) {
	asked := w.now + w.skew
	q, err := w.store.Ask(w.ctx, r.id, "d1")
	if err != nil {
		return nil, err
	}
	ids, _, err := w.store.PendingIDs(w.ctx, r.id, BucketOf(time.UnixMilli(w.now))+Width.Microseconds(), 1_000_000)
	if err != nil {
		return nil, err
	}
	slices.Sort(ids) // Redis has an order of its own in each process
	ids = ids[:min(limit, len(ids))]
	qu := &question{r, q, ids, asked}
	w.open = append(w.open, qu)
	return qu, nil
}

// answer computes one: from what is stored now, which may be long after the
// question (G1 to G5).
func (w *world) answer() error {
	if len(w.open) == 0 {
		return nil
	}
	i := w.rng.IntN(len(w.open))
	q := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	cu := BucketOf(time.UnixMilli(w.now))
	lost := q.r.lives > 1 && !q.q.Snapshot
	switch n := w.rng.IntN(10); {
	case lost || n < 3:
		cu += Width.Microseconds() // bootstrap (C-T6)
	case n < 5:
		cu -= Width.Microseconds() * int64(1+w.rng.IntN(3)) // lags
	}
	if w.rng.IntN(5) > 0 || lost {
		cu = max(cu, q.q.ColdUntil) // otherwise an engine that forgets the floor (G4)
	}
	a := w.compute(q, cu)
	for range 1 + w.rng.IntN(6)/5 { // sometimes it comes twice
		w.answers = append(w.answers, a)
	}
	return nil
}

func (w *world) compute(q *question, cu int64) *answer {
	w.version++
	a := &answer{of: q, version: w.version, cu: cu, set: map[*event]bool{}}
	for _, e := range w.events {
		if !e.stored || e.bucket >= cu {
			continue
		}
		if e.values[q.r] != nil {
			a.set[e] = true
		}
		if slices.Contains(q.ids, e.id) {
			a.ids = append(a.ids, e.id)
		}
	}
	q.r.given[a.version] = a
	return a
}

func (w *world) apply() error {
	if len(w.answers) == 0 {
		return nil
	}
	i := w.rng.IntN(len(w.answers))
	a := w.answers[i]
	w.answers = slices.Delete(w.answers, i, i+1)
	err := w.applyAnswer(a)
	if errors.Is(err, ErrStaleQuestion) || errors.Is(err, ErrOldVersion) || errors.Is(err, ErrColdRegressed) || errors.Is(err, ErrEarly) || errors.Is(err, ErrAbsent) {
		return nil
	}
	return err
}

func (w *world) applyAnswer(a *answer) error {
	r := a.of.r
	totals := w.totals(r, a.set)
	first, rest := a.ids, []string(nil)
	if len(first) > 2 && w.rng.IntN(3) == 0 {
		first, rest = a.ids[:2], a.ids[2:]
	}
	if len(rest) > 0 && w.rng.IntN(3) == 0 { // too early: refused unless another answer made it true
		if _, err := w.store.Settle(w.ctx, r.id, a.version, rest); err != nil && !errors.Is(err, ErrEarly) && !errors.Is(err, ErrAbsent) {
			return err
		}
	}
	replaced, err := w.store.Apply(w.ctx, r.id, Answer{
		Token: a.of.q.Token, Version: a.version, ColdUntil: a.cu, Totals: totals, Confirmed: first,
		Credits: map[string]decimal.Decimal{"m" + strconv.FormatInt(a.version%3, 10): decimal.FromScaled(a.version, 3)},
	})
	if err != nil {
		return err
	}
	if before := r.given[r.sv]; before != nil && replaced.Before.Count != int64(len(before.set)) { // C-T32
		return fmt.Errorf("the totals before were of %d events, not %d", len(before.set), replaced.Before.Count)
	}
	for e, t := range r.tracked {
		if t.spilled && e.bucket < a.cu && t.at+PendingLife.Milliseconds() <= a.of.asked {
			t.exempt = true
		}
	}
	if len(rest) > 0 {
		_, err = w.store.Settle(w.ctx, r.id, a.version, rest)
	}
	return err
}

func (w *world) totals(r *reducer, set map[*event]bool) Aggregate {
	var values []*big.Int
	for e := range set {
		values = append(values, e.values[r])
	}
	t := sumUp(values)
	a := Aggregate{Count: t.n, Sum: dec(t.s.String()), Extremes: t.n > 0}
	if a.Extremes {
		a.Min, a.Max = dec(t.l.String()), dec(t.h.String())
	}
	return a
}

func (w *world) tick() error {
	switch n := w.rng.IntN(40); {
	case n == 0:
		w.now += 61 * 60_000
	case n < 12:
		w.now += 5 * 60_000
	case w.steps && n < 16:
		w.skew += w.rng.Int64N(20*60_000) - 10*60_000
	default:
		w.now += w.rng.Int64N(90_000)
	}
	return nil
}

func (w *world) sweep() error {
	for _, r := range w.reducers {
		if err := w.sweepAll(r); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) sweepAll(r *reducer) error {
	for cursor := "0"; ; {
		next, _, err := w.store.Sweep(w.ctx, r.id, cursor)
		if errors.Is(err, ErrAbsent) {
			return nil
		}
		if err != nil || next == "0" {
			return err
		}
		cursor = next
	}
}

// crash loses what the application has in memory: events that are not delivered
// (F10) and acknowledgements (F11).
func (w *world) crash() error {
	w.queue, w.acks, w.lost = nil, nil, nil
	return nil
}

func (w *world) flush() error {
	r := w.reducers[w.rng.IntN(len(w.reducers))]
	switch n := w.rng.IntN(3); {
	case n == 0:
		return w.flushAll()
	case r.epoch == "":
		return nil
	case n == 1: // evicted, and the window and the questions are not
		return w.client.Del(w.ctx, w.store.Key(r.id)).Err()
	}
	return w.store.Reset(w.ctx, r.id, r.epoch)
}

// finish lets everything arrive and be answered. Nothing may then differ from
// the engine by a digit (I3), nor be counted twice (I4).
func (w *world) finish() error {
	for _, e := range w.queue {
		e.stored = true
	}
	w.acks = append(w.acks, w.queue...)
	w.queue = nil
	for len(w.acks) > 0 {
		if err := w.acknowledge(); err != nil {
			return err
		}
	}
	w.now += max(0, -w.skew) + 3*3_600_000
	if err := w.check(); err != nil {
		return err
	}
	for _, r := range w.reducers {
		if err := w.sweepAll(r); err != nil {
			return err
		}
		q, err := w.askFor(r, 1_000_000)
		if err != nil {
			return err
		}
		if err := w.applyAnswer(w.compute(q, BucketOf(time.UnixMilli(w.now)))); err != nil {
			return err
		}
	}
	if err := w.check(); err != nil {
		return err
	}
	for _, r := range w.reducers {
		st, err := w.store.Load(w.ctx, r.id)
		if err != nil {
			return err
		}
		var values []*big.Int
		for _, e := range w.events {
			if e.stored && e.values[r] != nil {
				values = append(values, e.values[r])
			}
		}
		got, _ := st.Aggregate(time.UnixMilli(w.now + w.skew))
		want := sumUp(values)
		if !want.is(got) {
			return fmt.Errorf("I3: %s counts %v, the engine %v", r.function, got, want)
		}
		if c, ok := r.function.Consumption(got); !ok || c.String() != want.by(r.function) {
			return fmt.Errorf("I3: %s is %s, the engine's %s", r.function, c, want.by(r.function))
		}
		if st.PendingCount() != 0 || len(st.hot) != 0 || len(st.spilled) != 0 {
			return fmt.Errorf("I4: left are %d pending, %d hot, %d spilled", st.PendingCount(), len(st.hot), len(st.spilled))
		}
	}
	return nil
}

func (w *world) flushAll() error {
	if cluster, ok := w.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(w.ctx, func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
	}
	return w.client.FlushAll(w.ctx).Err()
}

func errOr(err error) error {
	if err == nil {
		return errors.New("accepted")
	}
	return err
}

func dec(text string) decimal.Decimal {
	d, err := unscaled(text)
	if err != nil {
		panic(err)
	}
	return d
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
