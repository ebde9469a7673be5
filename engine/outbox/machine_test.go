package outbox

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	machineLease   = 120 * time.Second
	machineHorizon = 23 * time.Hour
	// longestFlight bounds how long after its sending a request can still
	// take effect. The provider's promise (24 h) exceeds horizon, lease and
	// flight together.
	longestFlight = 30 * time.Minute
	machineBudget = 6
	// machineQuiet is longer than a send and its flight. // R3.
	machineQuiet = machineLease + longestFlight
)

// world is one store, one provider and a few workers that die, stall and lie,
// under a clock that only the test moves. Steps of the workers interleave in
// any order.
type world struct {
	now      time.Time
	store    *modelStore
	provider *provider
	workers  [3]*hand
	flying   []flight
	ids      []int64
	previous map[int64]storage.Item
	faults   bool
}

// hand is a worker's hold on items between its claim and its write.
type hand struct {
	items   []storage.ClaimedItem
	results []Observation
	until   time.Time
	sent    bool
}

// flight is a request that will take effect later.
type flight struct {
	identifier string
	lands      time.Time
}

func newWorld(items int) *world {
	w := &world{now: noon, previous: make(map[int64]storage.Item), faults: true}
	clock := func() time.Time { return w.now }
	w.store, w.provider = newModelStore(clock), newProvider(clock)
	for i := range items {
		w.ids = append(w.ids, w.store.add(storage.ClaimedItem{
			Identity: storage.Identity{Tenant: "t", SubjectRef: strconv.Itoa(i)}, RouteID: 7, AttemptBudget: machineBudget,
			Event:   storage.Event{Quantity: decimal.One, OccurredAt: noon},
			Mapping: storage.Mapping{Content: json.RawMessage(`{}`)},
		}))
	}
	return w
}

func (w *world) claim(t *rapid.T, i int) {
	if w.workers[i] != nil {
		return
	}
	claim, err := w.store.Claim(t.Context(), storage.ClaimRequest{
		Owner: strconv.Itoa(i), Routes: []int64{7}, Limit: 2, Lease: machineLease, Horizon: machineHorizon,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(claim.Items) > 0 {
		w.workers[i] = &hand{items: claim.Items, until: w.now.Add(sendShare(machineLease))}
	}
}

// send does what a deliverer does with a page, its lease permitting (O14).
func (w *world) send(t *rapid.T, i int) {
	h := w.workers[i]
	if h == nil || h.sent {
		return
	}
	h.sent = true
	for _, c := range h.items {
		o := Observation{Grade: GradeHost, Called: true, Unresolved: c.Unresolved, Attempts: c.Attempts, Budget: c.AttemptBudget}
		if !w.now.Before(h.until) {
			o.Called = false
		} else {
			w.exchange(t, IdentifierOf(c.Digest), &o)
		}
		h.results = append(h.results, o)
	}
}

// exchange is one request: what the provider does, what the host sees of it and
// what the plugin says.
func (w *world) exchange(t *rapid.T, identifier string, o *Observation) {
	answers := []string{"whole"}
	if w.faults {
		answers = []string{"whole", "effect, no answer", "late effect, no answer", "no effect, no answer", "refused", "throttled", "not sent", "down"}
	}
	switch rapid.SampledFrom(answers).Draw(t, "answer") {
	case "whole":
		o.Said, o.Class = Said(exporter.Accepted), exporter.ClassSuccess
		if !w.provider.take(identifier) {
			o.Said, o.Class = Said(exporter.AcceptedEarlier), exporter.ClassDuplicateOwn
		}
	case "effect, no answer":
		w.provider.take(identifier)
		o.Said, o.Class = Said(exporter.Retry), exporter.ClassIndefinite
	case "late effect, no answer":
		after := rapid.Int64Range(0, int64(longestFlight)).Draw(t, "flight")
		w.flying = append(w.flying, flight{identifier, w.now.Add(time.Duration(after))})
		o.Said, o.Class = Said(exporter.Retry), exporter.ClassIndefinite
	case "no effect, no answer":
		o.Said, o.Class = Said(exporter.Retry), exporter.ClassIndefinite
	case "refused":
		if w.provider.knows(identifier) { // it names the duplicate instead
			o.Said, o.Class = Said(exporter.AcceptedEarlier), exporter.ClassDuplicateOwn
			break
		}
		o.Said, o.Class = Said(exporter.Rejected), exporter.ClassRefused
	case "throttled":
		o.Said, o.Class = Said(exporter.RateLimited), exporter.ClassThrottled
	case "not sent":
		o.Said, o.Class = Said(exporter.Retry), exporter.ClassNotSent
	case "down":
		o.Said, o.Class = Said(exporter.Retry), exporter.ClassIndefinite
		o.DestinationDown = rapid.Bool().Draw(t, "probe")
	}
	if w.faults && rapid.IntRange(0, 9).Draw(t, "lie") == 0 {
		o.Said = rapid.SampledFrom(AllSaid()).Draw(t, "said")
	}
}

// write decides and writes, whatever has become of the lease.
func (w *world) write(t *rapid.T, i int) {
	h := w.workers[i]
	if h == nil || !h.sent {
		return
	}
	w.workers[i] = nil
	var moves []storage.Transition
	for j, c := range h.items {
		d := Decide(h.results[j])
		move := d.Transition(c)
		delay := Retry{}.Backoff(c.Attempts, none)
		move.Set.NextAttemptAfter = &delay
		moves = append(moves, move)
	}
	before := make(map[int64]storage.Item)
	for _, c := range h.items {
		before[c.ItemID] = w.store.row(c.ItemID)
	}
	if _, err := w.store.Transition(t.Context(), moves); err != nil {
		t.Fatal(err)
	}
	for _, c := range h.items {
		if old := before[c.ItemID]; old.LeaseToken != c.LeaseToken && !cmp.Equal(old, w.store.row(c.ItemID)) {
			t.Fatalf("P3: item %d was changed by a worker that had lost it", c.ItemID)
		}
	}
}

// pass is a worker that meets no delay.
func (w *world) pass(t *rapid.T, i int) {
	w.claim(t, i)
	w.send(t, i)
	w.write(t, i)
}

// advance moves the clock, and lets what is in flight land at its own time.
func (w *world) advance(d time.Duration) {
	target := w.now.Add(d)
	var still []flight
	slices.SortFunc(w.flying, func(a, b flight) int { return a.lands.Compare(b.lands) })
	for _, f := range w.flying {
		if f.lands.After(target) {
			still = append(still, f)
			continue
		}
		w.now = f.lands
		w.provider.take(f.identifier)
	}
	w.flying, w.now = still, target
}

// check holds after every step.
func (w *world) check(t *rapid.T) {
	for _, id := range w.ids {
		item, before := w.store.row(id), w.previous[id]
		w.previous[id] = item
		charges, _ := w.provider.count(IdentifierOf(item.Digest))
		switch {
		case charges > 1:
			t.Fatalf("P1: item %d charged %d times", id, charges)
		case item.State == storage.Rejected && charges != 0:
			t.Fatalf("P4: item %d is rejected and charged", id)
		case item.State == storage.Accepted && charges != 1:
			t.Fatalf("P4: item %d is accepted and not charged", id)
		case item.Attempts > item.AttemptBudget || item.Attempts < 0:
			t.Fatalf("A27: item %d has %d attempts", id, item.Attempts)
		case before.State != item.State && ended(before.State) && !w.settled(id, before, item):
			t.Fatalf("A26: item %d went from %s to %s", id, before.State, item.State)
		case before.Unresolved && !item.Unresolved:
			t.Fatalf("O4: item %d is no longer unresolved", id)
		case item.Unresolved == item.FirstUnresolvedAt.IsZero():
			t.Fatalf("Q11: item %d is unresolved since %v", id, item.FirstUnresolvedAt)
		}
	}
}

// settled reports whether a person moved the item, as T8 allows.
func (w *world) settled(id int64, before, now storage.Item) bool {
	actions := w.store.rows[id].actions
	return before.State == storage.Uncertain && len(actions) > 0 && actions[len(actions)-1].To == now.State
}

// recover is a person who looks at the provider's books and resolves an item by
// what they say at that moment, or has it sent again. // R3.
func (w *world) recover(t *rapid.T) {
	item := w.store.row(w.ids[rapid.IntRange(0, len(w.ids)-1).Draw(t, "item")])
	charges, _ := w.provider.count(IdentifierOf(item.Digest))
	r := Resolution{To: storage.Pending, Attempts: 1}
	switch books := rapid.Bool().Draw(t, "by the books"); {
	case books && charges > 0:
		r = Resolution{To: storage.Accepted, Evidence: statement(FoundTaken)}
	case books:
		r = Resolution{To: storage.Rejected, Evidence: statement(FoundRefused)}
	}
	move, err := Resolve(item, r, Standing{QuietFor: machineQuiet, Horizon: machineHorizon}, anna)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Transition(t.Context(), []storage.Transition{move}); err != nil {
		t.Fatal(err)
	}
}

func ended(s storage.ItemState) bool {
	return s != "" && s != storage.Pending && s != storage.Leased
}

// P1, P3, P4, O9, O11, O26, R3, A26-A30, I8: any interleaving of claims, sends, writes,
// deaths, stalls, late effects, lost answers, refusals, lies, and resolutions by
// what the provider's books say.
func TestMachine(t *testing.T) {
	t.Parallel()
	for range 20 { // of a hundred runs each: the rarest interleavings need thousands
		rapid.Check(t, machine)
	}
}

func machine(t *rapid.T) {
	w := newWorld(rapid.IntRange(1, 3).Draw(t, "items"))
	worker := rapid.IntRange(0, len(w.workers)-1)
	step := func(do func(*rapid.T, int)) func(*rapid.T) {
		return func(t *rapid.T) { do(t, worker.Draw(t, "worker")) }
	}
	t.Repeat(map[string]func(*rapid.T){
		"":        w.check,
		"claim":   step(w.claim),
		"send":    step(w.send),
		"write":   step(w.write),
		"pass":    step(w.pass),
		"pass2":   step(w.pass),
		"recover": func(t *rapid.T) { w.recover(t) },
		"die":     step(func(_ *rapid.T, i int) { w.workers[i] = nil }),
		"wait": func(t *rapid.T) {
			w.advance(rapid.SampledFrom([]time.Duration{
				time.Second, 30 * time.Second, 121 * time.Second, 20 * time.Minute, 8 * time.Hour,
			}).Draw(t, "wait"))
		},
	})
	w.settle(t)
}

// settle is liveness: once nothing goes wrong any more, every item ends, within
// as many passes as it has attempts.
func (w *world) settle(t *rapid.T) {
	w.faults = false
	for range (machineBudget + 1) * len(w.ids) * 2 {
		w.advance(20 * time.Minute)
		w.check(t)
		for i := range w.workers {
			w.pass(t, i)
			w.check(t)
		}
	}
	for _, id := range w.ids {
		if item := w.store.row(id); !ended(item.State) {
			t.Fatalf("item %d never ends: %+v", id, item)
		}
	}
}
