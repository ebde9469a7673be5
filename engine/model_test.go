package engine_test

import (
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// delivery is one thing that somebody sends. Few ids and contents, so that they
// meet.
type delivery struct {
	kind    string // plain, cloud, unmatched or invalid
	id      int
	content int
}

func (d delivery) key() string {
	return map[bool]string{true: "plain", false: "cloud"}[d.kind == "plain"] + strconv.Itoa(d.id)
}

func (d delivery) input(tenant string) engine.Input {
	id := strconv.Itoa(d.id)
	switch d.kind {
	case "plain", "invalid":
		e := plain(id, strconv.Itoa(d.content))
		e.Tenant = tenant
		if d.kind == "invalid" {
			e.Quantity = decimal.MustParse("-1")
		}
		return engine.Input{Plain: &e}
	}
	e := meter.CloudEvent{ID: id, Source: "/m", Type: "llm.completion", Subject: tenant, Time: noon, Data: fmt.Appendf(nil, `{"in":%d}`, d.content)}
	if d.kind == "unmatched" {
		e.Type = "other"
	}
	return engine.Input{Cloud: &e}
}

// model is what recording means, one delivery after the other.
type model struct {
	stored map[string]delivery
	total  int // of plain and matched events
	count  int
}

func (m *model) record(d delivery) engine.Outcome {
	if d.kind == "invalid" {
		return engine.Invalid
	}
	old, seen := m.stored[d.key()]
	switch {
	case seen && old == d:
		return engine.Duplicate
	case seen:
		return engine.Conflict
	}
	m.stored[d.key()] = d
	if d.kind == "unmatched" {
		return engine.Unmatched
	}
	m.total += d.content
	m.count++
	return engine.Inserted
}

func deliveries(most int) *rapid.Generator[[]delivery] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) delivery {
		return delivery{
			kind:    rapid.SampledFrom([]string{"plain", "plain", "cloud", "cloud", "unmatched", "invalid"}).Draw(t, "kind"),
			id:      rapid.IntRange(0, 3).Draw(t, "id"),
			content: rapid.IntRange(1, 3).Draw(t, "content"),
		}
	}), 1, most)
}

// However deliveries are cut into calls, in mode each every one is answered as
// if it had come alone; an atomic call is recorded as a whole or not at all.
func TestCallsMeanWhatTheirDeliveriesMean(t *testing.T) {
	t.Parallel()
	everything := inMeter
	everything.Feature, everything.Dimensions = "tokens", nil
	f := open(t, withMeters(t, everything))
	var tenants atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		tenant := fmt.Sprint("t", tenants.Add(1))
		m := &model{stored: map[string]delivery{}}
		for range rapid.IntRange(1, 4).Draw(rt, "calls") {
			call := deliveries(8).Draw(rt, "call")
			b := engine.Batch{Mode: storage.Each}
			if rapid.Bool().Draw(rt, "atomic") {
				b.Mode = storage.Atomic
			}
			for _, d := range call {
				b.Inputs = append(b.Inputs, d.input(tenant))
			}
			next := &model{stored: map[string]delivery{}, total: m.total, count: m.count}
			maps.Copy(next.stored, m.stored)
			var want []engine.Result
			refused := false
			for _, d := range call {
				o := next.record(d)
				want = append(want, engine.Result{Outcome: o})
				refused = refused || o == engine.Invalid || o == engine.Conflict
			}
			res, err := f.RecordBatch(t.Context(), b)
			switch {
			case b.Mode == storage.Atomic && refused:
				if tag := sdk.TagOf(err); tag != sdk.TagInvalid && tag != sdk.TagConflict {
					rt.Fatalf("%v: %v, want a refusal", call, err)
				}
				continue // as if nothing had come
			case err != nil:
				rt.Fatalf("%v: %v", call, err)
			case outcomes(res) != outcomes(want):
				rt.Fatalf("%v\ngot  %s\nwant %s", call, outcomes(res), outcomes(want))
			}
			m = next
		}
		if got, want := f.totalOf(tenant, "tokens"), fmt.Sprintf("%d/%d", m.total, m.count); got != want {
			rt.Fatalf("total %s, want %s", got, want)
		}
	})
}
