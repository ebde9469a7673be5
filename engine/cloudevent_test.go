package engine_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var (
	inMeter    = meter.Meter{Feature: "tokens_in", EventType: "llm.completion", Aggregation: meter.Sum, Value: "$.in", Dimensions: map[string]string{"model": "$.model"}}
	outMeter   = meter.Meter{Feature: "tokens_out", EventType: "llm.completion", Aggregation: meter.Sum, Value: "$.out"}
	countMeter = meter.Meter{Feature: "requests", EventType: "llm.completion", Aggregation: meter.Count}
	otherMeter = meter.Meter{Feature: "gone", EventType: "llm.completion", Aggregation: meter.Sum, Value: "$.not_there"}
)

// observer counts what it is told.
type observer struct {
	mu     sync.Mutex
	counts map[string]int
	calls  int
}

func (o *observer) Recorded(outcome string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[outcome] += n
}

func (o *observer) FlushTook(time.Duration) {}

func (o *observer) RecordTook(time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
}

// One event feeds every meter of its type; each entry has an identity of its
// own. Q7: a count meter records 1. Q3: each leads to its own item.
func TestOneEventFeedsSeveralMeters(t *testing.T) {
	t.Parallel()
	f := open(t, withMeters(t, inMeter, outMeter, countMeter))
	f.routes(plan(map[string]string{"tokens_in": "in", "tokens_out": "out", "requests": "req"}))
	f.subscribe("acme", "cus_1")
	res := f.each(completion(t, "1", 30, 0), completion(t, "2", 5, 7), completion(t, "1", 30, 0))
	f.want(res, "inserted inserted duplicate")
	var features []string
	for i, en := range res[0].Entries {
		features = append(features, en.Feature)
		if en.Seq == 0 || en.Seq != res[2].Entries[i].Seq || en.EventID != res[2].Entries[i].EventID {
			t.Errorf("entry %+v, its repeat %+v", en, res[2].Entries[i])
		}
	}
	if want := []string{"requests", "tokens_in", "tokens_out"}; !cmp.Equal(features, want) {
		t.Errorf("features %v, want %v", features, want)
	}
	for feature, want := range map[string]string{"tokens_in": "35/2", "tokens_out": "7/2", "requests": "2/2"} {
		if got := f.total(feature); got != want {
			t.Errorf("%s %s, want %s", feature, got, want)
		}
	}
	if n := len(f.items()); n != 5 { // six entries, one of them zero
		t.Errorf("%d items, want 5", n)
	}
	ev := f.events()[0]
	if ev.Dimensions["model"] != "m1" && ev.Feature == "tokens_in" {
		t.Errorf("dimensions %v", ev.Dimensions)
	}
}

// An event without a meter is stored once and counted, and part of no total.
func TestUnmatchedIsKept(t *testing.T) {
	t.Parallel()
	o := &observer{counts: map[string]int{}}
	f := open(t, withMeters(t, inMeter))
	f.Engine = over(t, f.store, withMeters(t, inMeter), func(c *engine.Config) { c.Observer = o })
	e := cloud(t, `{"specversion":"1.0","id":"1","source":"/gw","type":"other","subject":"acme","data":{"x":[1,"é"]}}`)
	f.want(f.each(e), "unmatched")
	f.want(f.each(e, e), "duplicate duplicate")
	changed := e
	changed.Data = []byte(`{"x":[2]}`)
	f.want(f.each(changed), "conflict")
	rc, err := f.Receipt(t.Context(), storage.ReceiptKey{Tenant: "acme", ReceiptID: e.ReceiptID()})
	if err != nil || len(rc.Features) != 0 || rc.Type != "other" || !strings.Contains(string(rc.Body), `"x":[1,"é"]`) {
		t.Errorf("receipt %+v, %v", rc, err)
	}
	if n := len(f.events()); n != 0 {
		t.Errorf("%d events, want none", n)
	}
	if o.counts["unmatched"] != 1 {
		t.Errorf("counted %v, want one unmatched", o.counts)
	}
}

// Q1: the first receipt decides. Whatever becomes of the meters, a redelivery
// is a duplicate with the entries of the first, and other content a conflict;
// neither ever adds usage.
func TestEditedMetersNeverChangeARedelivery(t *testing.T) {
	t.Parallel()
	f := open(t, withMeters(t, inMeter))
	first := f.each(completion(t, "1", 30, 4))
	f.want(first, "inserted")
	unmatched := completion(t, "2", 1, 1)
	f.Engine = over(t, f.store)
	f.want(f.each(unmatched), "unmatched")

	valueElsewhere := inMeter
	valueElsewhere.Value = "$.out"
	negated := inMeter
	negated.Value = "$.model" // not a number
	for name, meters := range map[string][]meter.Meter{
		"removed":           nil,
		"renamed":           {countMeter},
		"added":             {inMeter, outMeter, countMeter},
		"reads another":     {valueElsewhere},
		"reads text":        {negated},
		"cannot be applied": {inMeter, otherMeter},
	} {
		f.Engine = over(t, f.store, withMeters(t, meters...))
		res := f.each(completion(t, "1", 30, 4), completion(t, "1", 31, 4), unmatched)
		if got := outcomes(res); got != "duplicate conflict duplicate" {
			t.Errorf("%s: outcomes %s", name, got)
			continue
		}
		if !cmp.Equal(res[0].Entries[0].EventID, first[0].Entries[0].EventID) || len(res[0].Entries) != 1 ||
			res[0].Entries[0].Seq != first[0].Entries[0].Seq || len(res[2].Entries) != 0 {
			t.Errorf("%s: entries %+v and %+v, first were %+v", name, res[0].Entries, res[2].Entries, first[0].Entries)
		}
		_, err := f.RecordBatch(t.Context(), batchOf(completion(t, "1", 30, 5), completion(t, "3", 1, 1)))
		if err == nil {
			t.Errorf("%s: an atomic call with a conflict was recorded", name)
		}
	}
	if got := f.total("tokens_in"); got != "30/1" {
		t.Errorf("total %s, want 30/1", got)
	}
	if n := len(f.events()); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// An event that no meter can measure is refused while it is new, naming the
// place in its data.
func TestUnmeasurableIsInvalid(t *testing.T) {
	t.Parallel()
	f := open(t, withMeters(t, otherMeter))
	res := f.each(completion(t, "1", 1, 1), completion(t, "1", 1, 1))
	f.want(res, "invalid invalid")
	if e := meter.AsErrors(res[0].Err)[0]; e.Field != "data.not_there" {
		t.Errorf("field %q, want data.not_there", e.Field)
	}
	_, err := f.RecordBatch(t.Context(), batchOf(completion(t, "1", 1, 1)))
	tagIs(t, err, sdk.TagInvalid, "")
	f.Engine = over(t, f.store, withMeters(t, inMeter))
	f.want(f.each(completion(t, "1", 1, 1)), "inserted") // nothing was kept of it
}

// The identity of a CloudEvent is the pair of source and id within a tenant,
// and meets no plain id.
func TestIdentityOfACloudEvent(t *testing.T) {
	t.Parallel()
	f := open(t, withMeters(t, inMeter))
	a := completion(t, "1", 1, 1)
	b, c := a, a
	b.Source, c.Subject = "/gw2", "other"
	tokens := plain("1", "1")
	tokens.Feature = "tokens_in"
	f.want(f.each(a, b, c, tokens), "inserted inserted inserted inserted")
	left, right := a, a // a join without lengths would make these one
	left.Source, left.ID = "/g", "w1"
	right.Source, right.ID = "/gw", "1x"
	f.want(f.each(left, right), "inserted inserted")
	reserved := plain("ce:1", "1")
	f.want(f.each(reserved), "invalid")
}
