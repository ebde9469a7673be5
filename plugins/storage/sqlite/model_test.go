package sqlite

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// model is the documented contract in a few maps: one tenant, one route, one
// mapping. It shares no code and no SQL with the adapter.
type model struct {
	now    time.Time
	events map[string]*modelFact // usage and corrections
	items  map[int64]*modelItem
	lastID int64
	seqs   int64
	build  *modelBuild
	seals  []modelSeal
}

type modelItem struct {
	id, token       int64
	event, serial   string
	state           storage.ItemState
	attempts        int
	unresolved      bool
	next, claimed   time.Time
	expires, firstU time.Time
	log             int
}

const (
	modelBudget  = 3
	modelHorizon = 10 * time.Minute
	modelLease   = time.Minute
)

func (m *model) insert(id, quantity, serial string) {
	m.fact(&modelFact{id: id, quantity: ratOf(quantity), effect: ratOf(quantity), corrected: new(big.Rat), count: 1})
	m.lastID++
	m.items[m.lastID] = &modelItem{id: m.lastID, event: id, serial: serial, state: storage.Pending, next: m.now}
}

// record answers the outcome of each unit. Units are unique and sorted, as the
// adapter sorts them.
func (m *model) record(batch []modelEvent, mode storage.RecordMode) []storage.Outcome {
	out := make([]storage.Outcome, len(batch))
	conflict := false
	for i, e := range batch {
		switch f := m.events[e.id]; {
		case f == nil:
			out[i] = storage.Inserted
		case f.quantity.Cmp(ratOf(e.quantity)) == 0:
			out[i] = storage.Duplicate
		default:
			out[i], conflict = storage.Conflict, true
		}
	}
	for i, e := range batch {
		switch {
		case conflict && mode == storage.Atomic:
			if out[i] != storage.Conflict {
				out[i] = ""
			}
		case out[i] == storage.Inserted:
			m.insert(e.id, e.quantity, e.serial)
		}
	}
	return out
}

type modelEvent struct{ id, quantity, serial string }

// held reports whether a live lease has the key.
func (m *model) held(serial string) bool {
	for _, it := range m.items {
		if it.serial == serial && it.state == storage.Leased && !it.expires.Before(m.now) {
			return serial != ""
		}
	}
	return false
}

// claim answers what is handed out and what is exhausted, in order.
func (m *model) claim(limit int) (items, exhausted []int64) {
	all := slices.SortedFunc(maps.Values(m.items), func(a, b *modelItem) int {
		return cmp.Or(a.next.Compare(b.next), cmp.Compare(a.id, b.id))
	})
	held := map[string]bool{}
	for _, it := range all {
		held[it.serial] = m.held(it.serial)
	}
	expired := slices.DeleteFunc(slices.Clone(all), func(it *modelItem) bool {
		return it.state != storage.Leased || !it.expires.Before(m.now)
	})
	slices.SortStableFunc(expired, func(a, b *modelItem) int {
		return cmp.Or(a.expires.Compare(b.expires), cmp.Compare(a.id, b.id))
	})
	for _, it := range expired {
		if len(exhausted) == limit {
			return nil, exhausted
		}
		if held[it.serial] {
			continue
		}
		it.unresolved = true
		if it.firstU.IsZero() {
			it.firstU = it.claimed
		}
		if !m.take(it) {
			exhausted = append(exhausted, it.id)
			continue
		}
		return []int64{it.id}, exhausted
	}
	for _, it := range all {
		if len(items)+len(exhausted) == limit {
			break
		}
		if it.state != storage.Pending || it.next.After(m.now) || held[it.serial] {
			continue
		}
		if m.take(it) {
			items = append(items, it.id)
		} else {
			exhausted = append(exhausted, it.id)
		}
	}
	return items, exhausted
}

// take leases an item or makes it uncertain.
func (m *model) take(it *modelItem) bool {
	it.token++
	if it.attempts >= modelBudget || it.unresolved && m.now.Sub(it.firstU) > modelHorizon {
		it.state = storage.Uncertain
		return false
	}
	it.state, it.claimed, it.expires = storage.Leased, m.now, m.now.Add(modelLease)
	it.attempts++
	return true
}

// move is a fenced outcome: pending after a delay, or a terminal state.
func (m *model) move(id, token int64, set storage.Change) int {
	it := m.items[id]
	it.log++
	if it.state != storage.Leased || it.token != token {
		return 0
	}
	it.state = set.State
	if set.NextAttemptAfter != nil {
		it.next = m.now.Add(*set.NextAttemptAfter)
	}
	if set.ReturnAttempt {
		it.attempts--
	}
	if set.MarkUnresolved {
		it.unresolved = true
		if it.firstU.IsZero() {
			it.firstU = it.claimed
		}
	}
	return 1
}

// I4, I5: TestModel drives random sequences of records, corrections, claims,
// outcomes, builds of a projection, seals, restarts and passing time through the
// store and the model, and compares everything at every step.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := newClock()
		s := &modelRun{
			rt: rt, t: t, c: c, path: filepath.Join(t.TempDir(), "f.db"),
			m: &model{now: c.t, events: map[string]*modelFact{}, items: map[int64]*modelItem{}},
		}
		s.reopen()
		s.route, s.revision = addRoute(t, s.a)
		defer func() {
			if err := s.a.Close(); err != nil {
				rt.Error(err)
			}
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"record":   s.record,
			"correct":  s.correct,
			"claim":    s.claim,
			"outcome":  s.outcome,
			"wait":     s.wait,
			"restart":  func(*rapid.T) { s.restart() },
			"begin":    s.begin,
			"scan":     s.scan,
			"drain":    s.drain,
			"activate": s.activate,
			"abandon":  s.abandon,
			"seal":     s.seal,
			"":         s.check,
		})
	})
}

type modelRun struct {
	rt              *rapid.T
	t               *testing.T
	a               *Adapter
	m               *model
	c               *clock
	path            string
	route, revision int64
}

func (s *modelRun) reopen() {
	a, err := Open(s.t.Context(), Config{Path: s.path, Now: s.c.now, Migrate: true, LockWait: -1})
	if err != nil {
		s.rt.Fatal(err)
	}
	s.a = a
}

// restart closes and opens: live leases end.
func (s *modelRun) restart() {
	if err := s.a.Close(); err != nil {
		s.rt.Fatal(err)
	}
	s.reopen()
	for _, it := range s.m.items {
		if just := s.m.now.Add(-time.Microsecond); it.state == storage.Leased && it.expires.After(just) {
			it.expires = just
		}
	}
}

func (s *modelRun) record(rt *rapid.T) {
	mode := rapid.SampledFrom([]storage.RecordMode{storage.Atomic, storage.Each}).Draw(rt, "mode")
	names := rapid.SliceOfNDistinct(rapid.IntRange(0, 12), 1, 4, rapid.ID).Draw(rt, "ids")
	slices.Sort(names)
	var batch []modelEvent
	req := storage.RecordRequest{Mode: mode, RoutesRevision: s.revision}
	for _, n := range names {
		e := modelEvent{
			id:       fmt.Sprintf("e%02d", n),
			quantity: rapid.SampledFrom([]string{"1", "1", "1", "0.000000000001", "99999999999999999999999999"}).Draw(rt, "quantity"),
			serial:   []string{"", "k1", "k2"}[n%3],
		}
		batch = append(batch, e)
		ev := modelUsage(e.id, e.quantity)
		it := item(ev, s.route, "m1")
		it.SerialKey, it.AttemptBudget = e.serial, modelBudget
		u := plain(ev, it)
		u.Entries[0].Bucket = modelBucket(&ev)
		req.Units = append(req.Units, u)
	}
	res, err := s.a.RecordEvents(s.t.Context(), req)
	if err != nil {
		rt.Fatal(err)
	}
	var got []storage.Outcome
	for _, u := range res.Units {
		got = append(got, u.Outcome)
	}
	if want := s.m.record(batch, mode); !slices.Equal(got, want) {
		rt.Fatalf("outcomes %q, want %q", got, want)
	}
}

func (s *modelRun) claim(rt *rapid.T) {
	limit := rapid.IntRange(1, 5).Draw(rt, "limit")
	cl, err := s.a.Claim(s.t.Context(), storage.ClaimRequest{
		Owner: "w", Routes: []int64{s.route}, Limit: limit, Lease: modelLease, Horizon: modelHorizon,
	})
	if err != nil {
		rt.Fatal(err)
	}
	var exhausted []int64
	for _, e := range cl.Exhausted {
		exhausted = append(exhausted, e.ItemID)
	}
	items, gone := s.m.claim(limit)
	if !slices.Equal(ids(cl), items) || !slices.Equal(exhausted, gone) {
		rt.Fatalf("claimed %v exhausted %v, want %v and %v", ids(cl), exhausted, items, gone)
	}
	for _, it := range cl.Items {
		if want := s.m.items[it.ItemID]; it.LeaseToken != want.token || it.Attempts != want.attempts || it.Unresolved != want.unresolved || it.Event.EventID != want.event {
			rt.Fatalf("claimed %+v, want %+v", it, want)
		}
	}
}

func (s *modelRun) outcome(rt *rapid.T) {
	if len(s.m.items) == 0 {
		rt.Skip("nothing recorded")
	}
	id := rapid.Int64Range(1, s.m.lastID).Draw(rt, "item")
	token := s.m.items[id].token - int64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(rt, "stale"))
	set := storage.Change{State: rapid.SampledFrom([]storage.ItemState{storage.Pending, storage.Accepted, storage.Rejected}).Draw(rt, "state")}
	if set.State == storage.Pending {
		delay := time.Duration(rapid.IntRange(0, 120).Draw(rt, "delay")) * time.Second
		set.NextAttemptAfter = &delay
		set.ReturnAttempt = rapid.Bool().Draw(rt, "return")
		set.MarkUnresolved = rapid.Bool().Draw(rt, "unresolved")
	}
	res, err := s.a.Transition(s.t.Context(), []storage.Transition{{ItemID: id, Expect: fenced(token), Set: set, Attempt: &storage.Attempt{LeaseToken: token}}})
	if err != nil {
		rt.Fatal(err)
	}
	if want := s.m.move(id, token, set); res[0].Rows != want {
		rt.Fatalf("rows %d, want %d", res[0].Rows, want)
	}
}

func (s *modelRun) wait(rt *rapid.T) {
	s.c.advance(time.Duration(rapid.IntRange(1, 200).Draw(rt, "seconds")) * time.Second)
	s.m.now = s.c.t
}

// check compares everything that can be read.
func (s *modelRun) check(rt *rapid.T) {
	all := items(s.t, s.a)
	if len(all) != len(s.m.items) {
		rt.Fatalf("%d items, want %d", len(all), len(s.m.items))
	}
	counts := map[storage.ItemState]int64{}
	for _, it := range all {
		want := s.m.items[it.ItemID]
		counts[want.state]++
		if it.State != want.state || it.Attempts != want.attempts || it.LeaseToken != want.token || it.Unresolved != want.unresolved ||
			!it.FirstUnresolvedAt.Equal(want.firstU) || !it.ClaimedAt.Equal(want.claimed) || it.Identity.SubjectRef != want.event {
			rt.Fatalf("item %+v, want %+v", it, want)
		}
		if d := load(s.t, s.a, it.ItemID); len(d.Attempts) != want.log {
			rt.Fatalf("item %d has %d attempts in the log, want %d", it.ItemID, len(d.Attempts), want.log)
		}
	}
	stats, err := s.a.OutboxStats(s.t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	for _, n := range stats.Counts {
		if counts[n.State] != n.Items {
			rt.Fatalf("the gauge says %+v, want %d", n, counts[n.State])
		}
	}
	s.checkTotals(rt)
	s.checkBuild(rt)
	s.checkBuckets(rt)
}
