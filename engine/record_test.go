package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// B11, B14-B16, S5: repeats with equal content are duplicates, in one call and
// across calls, and results follow the order of the input.
func TestRepeatsAreDuplicatesInInputOrder(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.routes(plan(map[string]string{"tokens": "llm_tokens"}))
	f.subscribe("acme", "cus_1")
	f.want(f.each(plain("z", "3")), "inserted")
	res := f.each(plain("m", "1"), plain("z", "3.000"), plain("a", "2"), plain("m", "1.0"), plain("b", "4"))
	f.want(res, "inserted duplicate inserted duplicate inserted")
	if res[0].Seq == 0 || res[3].Seq != res[0].Seq {
		t.Errorf("the repeat in the call names seq %d, the first %d", res[3].Seq, res[0].Seq)
	}
	for i, id := range []string{"m", "z", "a", "m", "b"} {
		if res[i].ID != id {
			t.Errorf("result %d is of %q, want %q", i, res[i].ID, id)
		}
	}
	if got := f.total("tokens"); got != "10/4" {
		t.Errorf("total %s, want 10/4", got)
	}
	if n := len(f.items()); n != 4 {
		t.Errorf("%d items, want one for each event: 4", n)
	}
}

// B17, S6: in mode each a conflict is reported and the rest recorded.
func TestEachReportsConflictsAndRecordsTheRest(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.want(f.each(plain("a", "1")), "inserted")
	res := f.each(plain("b", "1"), plain("a", "2"), plain("c", "1"), plain("c", "5"), plain("", "1"), plain("d", "1"))
	f.want(res, "inserted conflict inserted conflict invalid inserted")
	tagIs(t, res[1].Err, sdk.TagConflict, "payload_differs")
	tagIs(t, res[3].Err, sdk.TagConflict, "payload_differs")
	tagIs(t, res[4].Err, sdk.TagInvalid, "")
	if got := f.total("tokens"); got != "4/4" {
		t.Errorf("total %s, want 4/4", got)
	}
}

// B17, S6, B-T2: in atomic mode one conflict rolls everything back and names
// the position in the caller's order.
func TestAtomicConflictWritesNothing(t *testing.T) { //nolint:tparallel // the cases share a store
	t.Parallel()
	f := open(t)
	f.want(f.each(plain("z", "1")), "inserted")
	for name, tc := range map[string]struct {
		events []engine.Event
		index  int
	}{
		"with the store":       {[]engine.Event{plain("n1", "1"), plain("a", "1"), plain("z", "9"), plain("b", "1")}, 2},
		"within the call":      {[]engine.Event{plain("n1", "1"), plain("n2", "1"), plain("n1", "2")}, 2},
		"a call of one":        {[]engine.Event{plain("z", "9")}, 0},
		"first of the two":     {[]engine.Event{plain("z", "9"), plain("z", "8"), plain("a", "1")}, 1},
		"repeated and at odds": {[]engine.Event{plain("z", "9"), plain("z", "9")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := f.Record(t.Context(), tc.events...)
			tagIs(t, err, sdk.TagConflict, "payload_differs")
			var e *sdk.Error
			_ = errors.As(err, &e)
			i, ok := e.ItemIndex()
			if res != nil || !ok || i != tc.index {
				t.Errorf("results %v, item %d %v; want none and item %d", res, i, ok, tc.index)
			}
			if want := fmt.Sprintf("events[%d].id", tc.index); e.Field != want {
				t.Errorf("field %q, want %q", e.Field, want)
			}
		})
	}
	if got := f.total("tokens"); got != "1/1" {
		t.Errorf("total %s after refused calls, want 1/1", got)
	}
}

// An atomic call with broken events lists everything that is broken, and
// writes nothing.
func TestAtomicListsEveryBrokenRule(t *testing.T) {
	t.Parallel()
	f := open(t)
	late := plain("late", "1")
	late.Time = noon.Add(301 * time.Second)
	_, err := f.Record(t.Context(), plain("ok", "1"), plain("neg", "-1"), late, engine.Event{Quantity: decimal.One})
	all := meter.AsErrors(err)
	got := map[string]bool{}
	for _, e := range all {
		got[e.Field] = true
	}
	for _, field := range []string{"events[1].quantity", "events[2].time", "events[3].id", "events[3].tenant", "events[3].feature"} {
		if !got[field] {
			t.Errorf("no error for %s in %v", field, err)
		}
	}
	if n := len(f.events()); n != 0 {
		t.Errorf("%d events were written", n)
	}
}

// B-T1: what else is in a call decides nothing about an input: a redelivery
// behind wrong content of the same id is still a duplicate.
func TestRedeliveryBehindAConflictIsADuplicate(t *testing.T) {
	t.Parallel()
	f := open(t)
	stored := f.each(plain("a", "1"))
	res := f.each(plain("a", "2"), plain("a", "3"), plain("a", "1"), plain("a", "3"), plain("a", "1"))
	f.want(res, "conflict conflict duplicate conflict duplicate")
	if res[2].Seq != stored[0].Seq || res[4].Seq != stored[0].Seq {
		t.Errorf("duplicates name seq %d and %d, stored is %d", res[2].Seq, res[4].Seq, stored[0].Seq)
	}
	// The first of a new id wins over the others of its call.
	f.want(f.each(plain("n", "2"), plain("n", "1"), plain("n", "2")), "inserted conflict duplicate")
	if got := f.total("tokens"); got != "3/2" {
		t.Errorf("total %s, want 3/2", got)
	}
}

// Q1: an absent time is part of the content. The first stored time stands; the
// same event without a time is a duplicate, with any time a conflict.
func TestAbsentTimeIsPartOfTheContent(t *testing.T) {
	t.Parallel()
	now := noon
	f := open(t, func(c *engine.Config) { c.Now = func() time.Time { return now } })
	e := plain("a", "1")
	e.Time = time.Time{}
	f.want(f.each(e), "inserted")
	now = noon.Add(40 * 24 * time.Hour) // another billing period
	f.want(f.each(e), "duplicate")
	withTime := plain("a", "1")
	withTime.Time = noon
	f.want(f.each(withTime), "conflict")
	f.want(f.each(plain("b", "1")), "inserted")
	e.ID = "b"
	f.want(f.each(e), "conflict")
	ev, err := f.Event(t.Context(), storage.EventKey{Tenant: "acme", EventID: "a"})
	if err != nil || !ev.OccurredAt.Equal(noon) {
		t.Errorf("stored time %v, %v; want the first receipt's, %v", ev.OccurredAt, err, noon)
	}
	// The stored event is hashed as it is stored, the delivery as it came.
	if payload, err := canon.EventHash(ev); err != nil || ev.PayloadHash != payload || ev.DedupeHash == payload {
		t.Errorf("payload hash %x, of the stored event %x, dedupe hash %x, %v", ev.PayloadHash, payload, ev.DedupeHash, err)
	}
	if ev.PeriodSource != storage.FromCalendar || !ev.PeriodStart.Equal(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("period %v from %s, want November from the calendar", ev.PeriodStart, ev.PeriodSource)
	}
}

// S3: what is equal by the canonical form is one event, and what is not is two.
func TestContentIsComparedCanonically(t *testing.T) {
	t.Parallel()
	f := open(t)
	base := plain("a", "1.5")
	base.Dimensions = map[string]string{"model": "m1", "zone": "eu"}
	base.Metadata = []byte(`{"b":[1.0,2],"a":{"y":1e2,"x":null}}`)
	f.want(f.each(base), "inserted")
	same := plain("a", "1.500000000000")
	same.Time = base.Time.In(time.FixedZone("x", 3600)).Add(999 * time.Nanosecond) // below a microsecond
	same.Dimensions = map[string]string{"zone": "eu", "model": "m1"}
	same.Metadata = []byte(` {"a":{"x":null,"y":100},"b":[1,2.00]}`)
	f.want(f.each(same), "duplicate")
	for name, change := range map[string]func(*engine.Event){
		"quantity":  func(e *engine.Event) { e.Quantity = decimal.MustParse("1.500000000001") },
		"time":      func(e *engine.Event) { e.Time = e.Time.Add(time.Microsecond) },
		"feature":   func(e *engine.Event) { e.Feature = "token" },
		"dimension": func(e *engine.Event) { e.Dimensions = map[string]string{"model": "m1", "zone": "eu "} },
		"metadata":  func(e *engine.Event) { e.Metadata = []byte(`{"b":[2,1],"a":{"y":100,"x":null}}`) },
		"nothing":   func(e *engine.Event) { e.Metadata = nil },
	} {
		other := base
		change(&other)
		if got := outcomes(f.each(other)); got != "conflict" {
			t.Errorf("%s differs: %s, want conflict", name, got)
		}
	}
	elsewhere := base
	elsewhere.Tenant = "other" // S2: the identity has the tenant in it
	f.want(f.each(elsewhere), "inserted")
}

// Q7: zero is usage: recorded, counted, and no item.
func TestZeroQuantity(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.routes(plan(map[string]string{"tokens": "llm_tokens"}))
	f.subscribe("acme", "cus_1")
	f.want(f.each(plain("z", "0"), plain("y", "0.000")), "inserted inserted")
	if got := f.total("tokens"); got != "0/2" {
		t.Errorf("total %s, want 0/2", got)
	}
	if n := len(f.items()); n != 0 {
		t.Errorf("%d items for zero usage, want none", n)
	}
}

// Q7, P5: signed features take negatives, others refuse them.
func TestSignedFeatures(t *testing.T) {
	t.Parallel()
	f := open(t, func(c *engine.Config) { c.Features = map[string]engine.Feature{"credits": {Signed: true}} })
	down := plain("a", "-2.5")
	down.Feature = "credits"
	up := plain("b", "1")
	up.Feature = "credits"
	f.want(f.each(down, up, plain("c", "-2.5")), "inserted inserted invalid")
	if got := f.total("credits"); got != "-1.5/2" {
		t.Errorf("total %s, want -1.5/2", got)
	}
}

// P5, Q8: the widest quantities pass unharmed and totals hold more than one of
// them.
func TestExactNumbers(t *testing.T) {
	t.Parallel()
	f := open(t)
	widest := strings.Repeat("9", 26) + "." + strings.Repeat("9", 12)
	f.want(f.each(plain("a", widest), plain("b", widest), plain("c", "0.000000000001")), "inserted inserted inserted")
	// 2(10^26 - 10^-12) + 10^-12 = 2*10^26 - 10^-12
	if got, want := f.total("tokens"), "1"+strings.Repeat("9", 26)+"."+strings.Repeat("9", 12)+"/3"; got != want {
		t.Errorf("total %s, want %s", got, want)
	}
	wide := plain("d", widest)
	wide.Quantity = wide.Quantity.Add(decimal.One) // 27 digits, computed in Go
	f.want(f.each(wide), "invalid")
}

func TestCallsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	f := open(t)
	e, c := plain("a", "1"), completion(t, "a", 1, 1)
	f.want(f.each(engine.Input{}, engine.Input{Plain: &e, Cloud: &c}, e), "invalid invalid inserted")
	_, err := f.Record(t.Context(), make([]engine.Event, 501)...)
	tagIs(t, err, sdk.TagInvalid, "")
	if res, err := f.Record(t.Context()); err != nil || len(res) != 0 {
		t.Errorf("an empty call answers %v, %v", res, err)
	}
}

// The outcomes of a batch reach the observer, also of calls that were gathered.
func TestObserver(t *testing.T) {
	t.Parallel()
	o := &observer{counts: map[string]int{}}
	f := open(t, func(c *engine.Config) { c.Observer = o })
	f.each(plain("a", "1"), plain("a", "1"), plain("", "1"))
	f.each(plain("b", "1"))
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts["inserted"] != 2 || o.counts["duplicate"] != 1 || o.counts["invalid"] != 1 || o.calls != 2 {
		t.Errorf("observed %v in %d calls", o.counts, o.calls)
	}
}
