package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/engine/report"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// buffered is the feature that is counted and reported in windows.
const buffered = "calls"

var periodStart, periodEnd = time.Unix(0, 0).UTC(), time.Unix(1<<31, 0).UTC()

// counts moves the counters, mostly up.
func (w *world) counts() {
	for n := 40 + w.draw(40); n > 0; n-- {
		w.sleep(context.Background(), laneCounters, w.drawn(0, 2*(w.heals*3/4)/80))
		if w.ended() {
			return
		}
		w.mu.Lock()
		by := int64(1 + w.draw(9))
		if w.draw(5) == 0 {
			by = -by
		}
		tenant := fmt.Sprint("acme-", w.draw(3))
		w.store.counters[tenant] = w.store.counters[tenant].Add(decimal.FromScaled(by, 0))
		w.note("counter of %s %+d", tenant, by)
		w.mu.Unlock()
	}
}

// reporter is the reporter of one host, started again whenever it died. Two work
// at once, as they do while a role changes hands.
func (w *world) reporter(lane int) {
	for !w.ended() {
		w.sleep(context.Background(), lane, w.drawn(time.Minute, 30*time.Minute))
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.reports(lane)
		}()
		<-done
	}
}

func (w *world) reports(lane int) {
	s := session{w: w, s: w.store, lane: lane, host: true}
	r := report.New(report.Config{
		Store: s, Counters: s, Features: []string{buffered}, AttemptBudget: 2 + int(w.seed%5), Now: time.Now,
		Routes: func(context.Context) (storage.RouteSet, error) {
			build := w.enqueue(storage.Event{}, "m1")
			return storage.RouteSet{Routes: build.Routes, Mappings: []storage.Mapping{mapping("m1")}}, nil
		},
		Customers: func(_ context.Context, tenants []string) (map[string]map[string]string, error) {
			out := map[string]map[string]string{}
			for _, t := range tenants {
				out[t] = customers(t)
			}
			return out, nil
		},
		Manifests: map[string]exporter.Manifest{"stripe": w.manifest()},
	})
	for !w.ended() {
		_, _ = r.Once(context.Background())
		w.sleep(context.Background(), lane, w.drawn(5*time.Minute, 2*time.Hour))
	}
}

func (s *store) boundKeys() []storage.BoundKey {
	keys := make([]storage.BoundKey, 0, len(s.bounds))
	for k := range s.bounds {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b storage.BoundKey) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return keys
}

// bound is how far a counter has been reported, with the item of now.
func (s *store) bound(k storage.BoundKey) storage.Bound {
	b := s.bounds[k]
	if b.ItemID != 0 {
		b.ItemState, b.ItemSettled = s.row(b.ItemID).State, !s.row(b.ItemID).SettledAt.IsZero()
	}
	return b
}

func (c session) ReportBounds(ctx context.Context, q storage.BoundQuery) (page storage.BoundPage, err error) {
	err = c.call(ctx, func() {
		page = storage.BoundPage{}
		for _, k := range c.s.boundKeys() {
			b := c.s.bound(k)
			if (q.Keys != nil && !slices.Contains(q.Keys, k)) || (q.Staged && b.StagedTo == nil) {
				continue
			}
			page.Bounds = append(page.Bounds, b)
		}
	})
	return page, err
}

func (c session) StreamCounters(ctx context.Context, _ storage.CounterQuery) (page storage.CounterPage, err error) {
	err = c.call(ctx, func() {
		page = storage.CounterPage{}
		for i := range 3 {
			tenant := fmt.Sprint("acme-", i)
			if v, ok := c.s.counters[tenant]; ok {
				key := storage.CounterKey{Tenant: tenant, Feature: buffered, PeriodStart: periodStart}
				page.Counters = append(page.Counters, storage.Counter{CounterKey: key, PeriodEnd: periodEnd, Value: v})
			}
		}
	})
	return page, err
}

// StageWindow follows [storage.ReportStore].
func (c session) StageWindow(ctx context.Context, w storage.WindowStage) (res storage.WindowResult, err error) {
	var exists bool
	err = c.call(ctx, func() {
		res, exists = storage.WindowResult{}, false
		b := c.s.bounds[w.Key]
		if (b.StagedTo != nil || !b.Acked.Equal(w.From)) && !c.w.hooks.noBound {
			c.w.count("window staged by another")
			return
		}
		id, _ := c.s.insert(w.Item, storage.Event{Feature: w.Key.Feature})
		if exists = id == 0; exists {
			c.w.count("window exists")
			return
		}
		c.w.lives++
		c.w.count("window staged")
		b.BoundKey, b.PeriodEnd, b.StagedTo, b.ItemID = w.Key, w.PeriodEnd, &w.To, id
		c.s.bounds[w.Key] = b
		res.Changed, res.ItemID = true, id
	})
	if err == nil && exists {
		err = &sdk.Error{Tag: sdk.TagConflict, Code: "window_exists"}
	}
	return res, err
}

// SettleWindow follows [storage.ReportStore].
func (c session) SettleWindow(ctx context.Context, s storage.WindowSettle) (res storage.WindowResult, err error) {
	err = c.call(ctx, func() {
		res = storage.WindowResult{}
		b := c.s.bounds[s.Key]
		if b.StagedTo == nil || b.ItemID != s.ItemID {
			return
		}
		r := c.s.row(b.ItemID)
		if !slices.Contains(s.States, r.State) || s.Settled && r.SettledAt.IsZero() {
			return
		}
		if s.Disposition == storage.WindowWrittenOff {
			c.w.provider.writtenOff[s.Key.Tenant] = c.w.provider.writtenOff[s.Key.Tenant].Add(b.StagedTo.Sub(b.Acked))
		}
		if s.Disposition != storage.WindowRestage {
			b.Acked = *b.StagedTo
		}
		b.StagedTo, b.ItemID = nil, 0
		c.s.bounds[s.Key] = b
		c.w.count("window settled: " + string(s.Disposition))
		c.w.note("window %d settled: %s", s.ItemID, s.Disposition)
		res.Changed = true
		c.w.judgeWindow(s.Key)
	})
	return res, err
}

// judgeWindow: what was charged of a counter is what was acknowledged, or that
// and the window on its way, less what people gave up. // O22, Q20.
func (w *world) judgeWindow(k storage.BoundKey) {
	b := w.store.bounds[k]
	want := b.Acked.Sub(w.provider.writtenOff[k.Tenant])
	if b.StagedTo != nil && w.provider.booked[b.ItemID] > 0 {
		want = want.Add(b.StagedTo.Sub(b.Acked))
	}
	if got := w.provider.counted[k.Tenant]; !got.Equal(want) {
		w.fail("of the counter of %s %s was charged, not %s", k.Tenant, got, want)
	}
}

// judgeCounters: when all is done everything that was counted was charged or
// given up by name.
func (w *world) judgeCounters() {
	for _, k := range w.store.boundKeys() {
		w.judgeWindow(k)
		b := w.store.bounds[k]
		if v := w.store.counters[k.Tenant]; b.StagedTo != nil || !b.Acked.Equal(v) {
			w.fail("the counter of %s says %s, reported is %s", k.Tenant, v, b.Acked)
		}
	}
}

// settleWindows lets the reporting of a counter go on after its window was given
// up: first what somebody began and did not end.
func (w *world) settleWindows(s session) {
	page, err := s.ReportBounds(context.Background(), storage.BoundQuery{Staged: true, Limit: 100})
	if err != nil {
		return
	}
	for _, b := range page.Bounds {
		if !b.ItemSettled || outbox.Charged(b.ItemState) {
			continue
		}
		w.mu.Lock()
		how := storage.WindowWrittenOff
		if d, ok := w.store.row(b.ItemID).disposition(); ok {
			how = d
		}
		w.mu.Unlock()
		_, _ = s.SettleWindow(context.Background(), storage.WindowSettle{
			Key: b.BoundKey, ItemID: b.ItemID, States: []storage.ItemState{b.ItemState}, Settled: true, Disposition: how,
		})
	}
}

// What a counter store can do beside is not asked for.

func (c session) UpsertCounters(context.Context, []storage.Counter) error { return sdk.ErrUnsupported }

func (c session) AddCounters(context.Context, []storage.Counter) error { return sdk.ErrUnsupported }

func (c session) LoadCounter(context.Context, storage.CounterKey) (storage.Counter, error) {
	return storage.Counter{}, sdk.ErrUnsupported
}

func (c session) FlushBatch(context.Context, storage.FlushBatch) (storage.FlushResult, error) {
	return storage.FlushResult{}, sdk.ErrUnsupported
}

func (c session) DecideCutovers(context.Context, []storage.Cutover) ([]storage.Cutover, error) {
	return nil, sdk.ErrUnsupported
}

func (c session) Cutovers(context.Context, storage.Cutover, int) ([]storage.Cutover, error) {
	return nil, sdk.ErrUnsupported
}

// windowValue is what a window says.
func windowValue(r *row) decimal.Decimal {
	var payload struct {
		Value decimal.Decimal `json:"value"`
	}
	if err := json.Unmarshal(r.frozen.Payload, &payload); err != nil {
		panic(err)
	}
	return payload.Value
}
