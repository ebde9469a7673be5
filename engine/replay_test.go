package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// fill records events of several tenants and features over two periods, and
// corrects some of them.
func (f *fixture) fill(prefix string, n int) {
	f.t.Helper()
	one := decimal.One
	for i := range n {
		e := plain(fmt.Sprint(prefix, i), strconv.Itoa(i+1))
		e.Tenant = []string{"acme", "globex"}[i%2]
		e.Feature = []string{"tokens", "calls", "tokens"}[i%3]
		e.Time = noon.Add(-time.Duration(i) * 37 * time.Hour)
		e.Dimensions = map[string]string{"model": fmt.Sprint("m", i%3), "region": "eu"}
		f.want(f.each(e), "inserted")
		if i%5 == 4 {
			c := engine.Correction{ID: fmt.Sprint(prefix, "c", i), Tenant: e.Tenant, EventID: e.ID, Quantity: &one}
			if i%2 == 0 {
				c.Quantity, c.Remaining = nil, true
			}
			if _, err := f.Correct(f.t.Context(), c); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// recomputed are the totals by key, added up from the events by this test.
func (f *fixture) recomputed() map[string]string {
	f.t.Helper()
	type sum struct {
		q        decimal.Decimal
		rows, ct int64
	}
	sums := map[string]sum{}
	for after := int64(0); ; {
		page, err := f.Events(f.t.Context(), storage.StreamQuery{After: after, Limit: 1000})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, e := range page.Events {
			k := fmt.Sprint(e.Tenant, " ", e.Feature, " ", e.PeriodStart.Unix())
			s := sums[k]
			s.rows++
			if e.Kind == storage.Usage {
				s.q, s.ct = s.q.Add(e.Quantity), s.ct+1
			} else {
				s.q = s.q.Sub(e.Quantity)
				if e.Reverses {
					s.ct--
				}
			}
			sums[k] = s
		}
		if after = page.Next; !page.More {
			break
		}
	}
	out := map[string]string{}
	for k, s := range sums {
		out[k] = fmt.Sprint(s.q, "/", s.rows, "/", s.ct)
	}
	return out
}

// totals are those that the store answers.
func (f *fixture) totals() map[string]string {
	f.t.Helper()
	var store storage.EventStore = f.store
	if f.postgres != nil {
		store = f.postgres
	}
	out := map[string]string{}
	for _, tenant := range []string{"acme", "globex"} {
		list, err := store.LoadTotals(f.t.Context(), storage.TotalsQuery{Tenant: tenant})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, v := range list {
			out[fmt.Sprint(v.Tenant, " ", v.Feature, " ", v.PeriodStart.Unix())] = fmt.Sprint(v.Quantity, "/", v.Events, "/", v.Count)
		}
	}
	return out
}

// exact fails unless the totals are the sum of the events. // I4.
func (f *fixture) exact(when string) {
	f.t.Helper()
	want, got := f.recomputed(), f.totals()
	for k, w := range want {
		if got[k] != w {
			f.t.Errorf("%s: %s is %s, its events sum to %s", when, k, got[k], w)
		}
	}
	if len(got) != len(want) {
		f.t.Errorf("%s: %d totals, want %d", when, len(got), len(want))
	}
}

// sql changes the store behind everybody's back.
func (f *fixture) sql(text string) {
	f.t.Helper()
	err := f.store.WithTx(f.t.Context(), func(tx *sqlite.Tx) error {
		return sqlitex.ExecuteTransient(tx.Conn(), text, nil)
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) replay(o engine.ReplayOptions) engine.ReplayProgress {
	f.t.Helper()
	p, err := f.Replay(f.t.Context(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// A replay of what is right changes nothing but the generation. // B37-B43.
func TestReplay(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.fill("a", 60)
	f.exact("before")
	var phases []engine.ReplayPhase
	p := f.replay(engine.ReplayOptions{BatchSize: 7, Progress: func(p engine.ReplayProgress) {
		if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
			phases = append(phases, p.Phase)
		}
	}})
	if got := fmt.Sprint(phases); got != "[announce scan drain compare activate prune done]" {
		t.Errorf("phases %s", got)
	}
	if p.Scanned != 72 || p.Batches != 11 || p.Diff.Total != 0 || !p.Activated || p.Resumed {
		t.Errorf("%+v", p)
	}
	f.exact("after")
	st, err := f.ReplayState(t.Context())
	if err != nil || st.Active != p.Generation || st.Building != 0 || st.Seed != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	f.fill("b", 20)
	f.exact("recorded after")
	f.replay(engine.ReplayOptions{})
	f.exact("replayed again")
}

// Totals that are wrong are found, refused, and put right when the operator says
// so. Every difference is named with both values.
func TestReplayCompares(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.fill("a", 30)
	f.sql("UPDATE fencepost_totals SET events = events + 1 WHERE tenant_key = 'acme' AND feature = 'tokens'")
	p, err := f.Replay(t.Context(), engine.ReplayOptions{})
	tagIs(t, err, sdk.TagConflict, "totals_differ")
	if n := len(p.Diff.Differences); n == 0 || int64(n) != p.Diff.Total {
		t.Fatalf("%d of %d differences", n, p.Diff.Total)
	}
	for _, d := range p.Diff.Differences {
		if d.Tenant != "acme" || d.Feature != "tokens" || d.Active.Events != d.Built.Events+1 || !d.Active.Quantity.Equal(d.Built.Quantity) {
			t.Errorf("%+v", d)
		}
	}
	_, err = f.Replay(t.Context(), engine.ReplayOptions{Compare: engine.Report})
	tagIs(t, err, sdk.TagConflict, "replay_exists")
	if p = f.replay(engine.ReplayOptions{Compare: engine.Report, Resume: true}); !p.Activated || p.Diff.Total == 0 {
		t.Errorf("%+v", p)
	}
	f.exact("after")
}

// B39, B44, F57: a build that was interrupted after every number of batches goes
// on; what is recorded and corrected meanwhile is neither lost nor doubled, and
// a correction of an event that is not yet scanned is taken like any other.
func TestReplayResumes(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.fill("a", 50)
	one := decimal.One
	var generation int64
	for i := 0; ; i++ {
		p := f.replay(engine.ReplayOptions{BatchSize: 9, MaxBatches: 1, Resume: true})
		if i > 0 && (!p.Resumed || p.Generation != generation) && !p.Activated {
			t.Fatalf("round %d: %+v", i, p)
		}
		generation = p.Generation
		f.fill(fmt.Sprint("b", i, "."), 6)
		// a49 is scanned last.
		c := engine.Correction{ID: fmt.Sprint("late", i), Tenant: "globex", EventID: "a47", Quantity: &one}
		if _, err := f.Correct(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		f.exact(fmt.Sprint("round ", i))
		if p.Activated {
			break
		}
		if i > 20 {
			t.Fatal("does not end")
		}
	}
	f.replay(engine.ReplayOptions{})
	f.exact("end")
}

// A pause ends a replay that runs, and is read before anything is written.
func TestReplayPause(t *testing.T) {
	t.Parallel()
	f := open(t)
	_, err := f.PauseReplay(t.Context(), true)
	tagIs(t, err, sdk.TagConflict, "no_replay")
	f.fill("a", 30)
	var once sync.Once
	_, err = f.Replay(t.Context(), engine.ReplayOptions{BatchSize: 5, Progress: func(p engine.ReplayProgress) {
		if p.Batches == 2 {
			once.Do(func() {
				if _, err := f.PauseReplay(t.Context(), true); err != nil {
					t.Error(err)
				}
			})
		}
	}})
	tagIs(t, err, sdk.TagConflict, "paused")
	before, err := f.ReplayState(t.Context())
	if err != nil || !before.Paused || before.Building == 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	_, err = f.Replay(t.Context(), engine.ReplayOptions{Resume: true})
	tagIs(t, err, sdk.TagConflict, "paused")
	if after, err := f.ReplayState(t.Context()); err != nil || after != before {
		t.Errorf("%+v, %v: was %+v", after, err, before)
	}
	if _, err := f.PauseReplay(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if p := f.replay(engine.ReplayOptions{Resume: true}); !p.Activated || !p.Resumed {
		t.Errorf("%+v", p)
	}
	f.exact("after")
}

// An abandoned build leaves nothing, and the totals as they were.
func TestReplayAbandon(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.fill("a", 30)
	f.replay(engine.ReplayOptions{BatchSize: 5, MaxBatches: 2})
	st, err := f.AbandonReplay(t.Context())
	if err != nil || st.Building != 0 || st.Seed != 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	f.fill("b", 5)
	f.exact("abandoned")
	f.replay(engine.ReplayOptions{})
	f.exact("replayed")
}

// A replay that ended between its activation and the removal of what was in use
// before leaves that to the next one.
func TestReplayRemovesWhatAnotherLeft(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.fill("a", 30)
	e := over(t, &keeping{f.store})
	p, err := e.Replay(t.Context(), engine.ReplayOptions{})
	tagIs(t, err, sdk.TagUnavailable, "kept")
	if !p.Activated || p.Phase != engine.ReplayPrune {
		t.Errorf("%+v", p)
	}
	f.exact("activated")
	if got := f.generations(); got != "[1 2]" {
		t.Fatalf("generations %s", got)
	}
	f.replay(engine.ReplayOptions{})
	if got := f.generations(); got != "[3]" {
		t.Errorf("generations %s", got)
	}
	f.exact("again")
}

// An abandoned build whose removal was killed after its first slice is removed by
// the next replay, as what was in use is; or by a removal that is asked for.
func TestReplayRemovesWhatAKilledRemovalLeft(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.fill("a", 30)
	for _, next := range []func(){
		func() { f.replay(engine.ReplayOptions{}) },
		func() {
			if _, err := f.PruneReplay(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		p := f.replay(engine.ReplayOptions{BatchSize: 5, MaxBatches: 2})
		if _, err := f.store.PruneProjection(t.Context(), p.Generation, 1); err != nil { // and then the process dies
			t.Fatal(err)
		}
		if got := f.generations(); got == fmt.Sprint([]int64{p.Generation}) {
			t.Fatalf("nothing is left over: %s", got)
		}
		next()
		st, err := f.ReplayState(t.Context())
		if err != nil || st.Previous != 0 || f.generations() != fmt.Sprint([]int64{st.Active}) {
			t.Errorf("%+v, generations %s, %v", st, f.generations(), err)
		}
		f.exact("removed")
	}
}

// keeping is a store that removes no generation.
type keeping struct{ *sqlite.Adapter }

func (k *keeping) PruneProjection(context.Context, int64, int) (int, error) {
	return 0, sdk.Unavailable("kept", errors.New("not now"))
}

// generations are those that have totals.
func (f *fixture) generations() string {
	f.t.Helper()
	var all []int64
	err := f.store.WithTx(f.t.Context(), func(tx *sqlite.Tx) error {
		return sqlitex.ExecuteTransient(tx.Conn(), "SELECT DISTINCT generation FROM fencepost_totals ORDER BY 1", &sqlitex.ExecOptions{
			ResultFunc: func(s *zombie.Stmt) error { all = append(all, s.ColumnInt64(0)); return nil },
		})
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return fmt.Sprint(all)
}

// Several replays at once are safe: the totals are right whoever wins.
func TestConcurrentReplays(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.fill("a", 60)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			_, err := f.Replay(t.Context(), engine.ReplayOptions{BatchSize: 3, Resume: true})
			if err != nil && !errors.Is(err, sdk.ErrConflict) {
				t.Error(err)
			}
		})
	}
	wg.Go(func() { f.fill("b", 30) })
	wg.Wait()
	f.replay(engine.ReplayOptions{Resume: true})
	f.exact("after")
}

func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	f := open(t)
	for field, o := range map[string]engine.ReplayOptions{
		"batch_size":  {BatchSize: 5001},
		"compare":     {Compare: "maybe"},
		"max_batches": {MaxBatches: -1},
		"timeout":     {Timeout: time.Microsecond},
	} {
		_, err := f.Replay(t.Context(), o)
		var e *sdk.Error
		if !errors.As(err, &e) || e.Tag != sdk.TagInvalid || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Replay(ctx, engine.ReplayOptions{})
	tagIs(t, err, sdk.TagUnavailable, "")
	p := f.replay(engine.ReplayOptions{}) // of nothing
	if p.Scanned != 0 || !p.Activated {
		t.Errorf("%+v", p)
	}
}

// Buckets that were switched on after events were recorded, or keep other
// dimensions than before, are not believed until a replay has rebuilt them, and
// say the same as the events then. // Q27.
func TestBucketsAreBelievedWhenRebuilt(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.fill("a", 40)
	if !f.store.Describe().Has(storage.Buckets) {
		t.Skip("the store keeps no buckets")
	}
	settings := func(dims ...string) func(*engine.Config) {
		return func(c *engine.Config) {
			c.Features = map[string]engine.Feature{"tokens": {Buckets: true, BucketDimensions: dims}}
		}
	}
	q := engine.UsageQuery{
		Tenant: "acme", Feature: "tokens", Window: "hour", From: noon.Add(-2000 * time.Hour), To: noon,
		GroupBy: []string{"model"}, Filter: map[string]string{"model": "m0"}, Aggregation: meter.Sum,
	}
	truth, err := f.Usage(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, dims := range [][]string{{"model"}, {"region"}, {"model"}, {"model", "region"}} {
		counting := &bucketReads{Adapter: f.store}
		e := over(t, counting, settings(dims...))
		if _, err := e.ApplyRoutes(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		compare := func(wantBuckets bool) {
			t.Helper()
			before := counting.n
			got, err := e.Usage(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(rowTexts(got)) != fmt.Sprint(rowTexts(truth)) {
				t.Errorf("%v: %v, want %v", dims, rowTexts(got), rowTexts(truth))
			}
			if used := counting.n > before; used != wantBuckets {
				t.Errorf("%v: answered from buckets %t, want %t", dims, used, wantBuckets)
			}
		}
		compare(false)
		if stale, err := e.StaleBuckets(t.Context()); err != nil || fmt.Sprint(stale) != "[tokens]" {
			t.Errorf("%v: stale %v, %v", dims, stale, err)
		}
		if _, err := e.Replay(t.Context(), engine.ReplayOptions{BatchSize: 11}); err != nil {
			t.Fatal(err)
		}
		if stale, err := e.StaleBuckets(t.Context()); err != nil || len(stale) != 0 {
			t.Errorf("%v: stale %v, %v", dims, stale, err)
		}
		compare(dims[0] == "model")
	}
	f.exact("after")
}

// bucketReads counts what is answered from buckets.
type bucketReads struct {
	*sqlite.Adapter
	n int
}

func (b *bucketReads) AggregateBuckets(ctx context.Context, q storage.AggregateQuery) (storage.Aggregates, error) {
	b.n++
	return any(b.Adapter).(storage.BucketStore).AggregateBuckets(ctx, q)
}

func (b *bucketReads) LoadBuckets(ctx context.Context, q storage.BucketQuery) (storage.BucketPage, error) {
	return any(b.Adapter).(storage.BucketStore).LoadBuckets(ctx, q)
}

func (b *bucketReads) SealBuckets(ctx context.Context, s storage.Seal) (storage.Seal, error) {
	return any(b.Adapter).(storage.BucketStore).SealBuckets(ctx, s)
}

// rowTexts are the rows of an answer that say something.
func rowTexts(u engine.UsageAnswer) []string {
	var out []string
	for _, r := range u.Rows {
		if r.Count == nil || *r.Count == 0 {
			continue
		}
		group := ""
		if m := r.Group["model"]; m != nil {
			group = *m
		}
		out = append(out, r.From.Format("0102T15:04")+" "+r.Value.String()+" "+group)
	}
	return out
}
