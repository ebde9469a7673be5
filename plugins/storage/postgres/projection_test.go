package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// code asserts the tag and the code of a refusal.
func code(t testing.TB, err error, tag sdk.Tag, want string) {
	t.Helper()
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Tag != tag || e.Code != want {
		t.Errorf("got %v, want %s %q", err, tag, want)
	}
}

// A build is announced once, written to in order, drained, and activated; every
// step out of turn is a conflict that changes nothing (B38-B43).
func TestProjectionPhases(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	for i := range 5 {
		must(t, recordUsage(ctx, a, usageOf("t"+strconv.Itoa(i), "e1", "10", november, nil)))
	}
	if st := state(t, a); st.Active != 1 || st.Building != 0 || st.Seed != 0 || st.Watermark != 0 || !st.BegunAt.IsZero() {
		t.Errorf("before: %+v", st)
	}
	st, err := a.BeginProjection(ctx, "settings of the build")
	must(t, err)
	begun := st
	if st.Active != 1 || st.Building != 2 || st.Seed != -2 || st.Watermark != 5 || st.Cursor != 0 || st.Resumed ||
		st.BuildingSettings != "settings of the build" || st.ActiveSettings != "" || time.Since(st.BegunAt) > time.Hour {
		t.Errorf("begun: %+v", st)
	}
	must(t, checkEquations(ctx, a))

	// Again: the same build, and nothing is copied. // B39
	before := sqlOne[int64](t, a, `SELECT count(*) FROM {schema}.fencepost_totals`)
	must(t, recordUsage(ctx, a, usageOf("t1", "later", "1", november, nil)))
	st, err = a.BeginProjection(ctx, "other settings")
	must(t, err)
	begun.Resumed = true
	if diff := cmp.Diff(begun, st); diff != "" {
		t.Errorf("resumed: %s", diff)
	}
	if after := sqlOne[int64](t, a, `SELECT count(*) FROM {schema}.fencepost_totals`); after != before {
		t.Errorf("%d rows of totals became %d", before, after)
	}
	_, err = a.BeginProjection(ctx, strings.Repeat("s", maxSettings+1))
	code(t, err, sdk.TagInvalid, "")

	batch, _, err := scan(ctx, a, st, 3)
	must(t, err)
	wrong := func(change func(*storage.ProjectionBatch)) error {
		b := batch
		change(&b)
		return a.WriteProjection(ctx, b)
	}
	code(t, wrong(func(b *storage.ProjectionBatch) { b.Generation = 1 }), sdk.TagConflict, "not_building")
	code(t, wrong(func(b *storage.ProjectionBatch) { b.Generation = 3 }), sdk.TagConflict, "not_building")
	code(t, wrong(func(b *storage.ProjectionBatch) { b.After = 1 }), sdk.TagConflict, "cursor_moved")
	code(t, wrong(func(b *storage.ProjectionBatch) { b.Cursor = 6 }), sdk.TagInvalid, "")
	code(t, wrong(func(b *storage.ProjectionBatch) { b.Cursor = b.After }), sdk.TagInvalid, "")
	_, err = a.PauseProjection(ctx, 2, true)
	must(t, err)
	code(t, a.WriteProjection(ctx, batch), sdk.TagConflict, "paused")
	st, err = a.PauseProjection(ctx, 2, false)
	must(t, err)
	if st.Paused || st.Cursor != 0 {
		t.Errorf("resumed: %+v", st)
	}
	_, err = a.PauseProjection(ctx, 1, true)
	code(t, err, sdk.TagConflict, "not_building")
	must(t, checkEquations(ctx, a)) // nothing of what was refused is there

	must(t, a.WriteProjection(ctx, batch))
	code(t, a.WriteProjection(ctx, batch), sdk.TagConflict, "cursor_moved") // not counted twice
	must(t, checkEquations(ctx, a))
	_, err = a.DrainSeed(ctx, 2, 10)
	code(t, err, sdk.TagConflict, "not_scanned")
	_, err = a.ActivateProjection(ctx, 2)
	code(t, err, sdk.TagConflict, "not_scanned")
	batch, _, err = scan(ctx, a, state(t, a), 100)
	must(t, err)
	must(t, a.WriteProjection(ctx, batch))
	_, err = a.ActivateProjection(ctx, 2)
	code(t, err, sdk.TagConflict, "not_drained")

	// Five rows of seed in slices of two; the last says that it is used up. // B42
	for i, want := range []int{2, 2, 1, 0} {
		n, err := a.DrainSeed(ctx, 2, 2)
		must(t, err)
		if n != want {
			t.Errorf("slice %d: %d rows, want %d", i, n, want)
		}
		must(t, checkEquations(ctx, a))
	}
	_, err = a.DrainSeed(ctx, 1, 2)
	code(t, err, sdk.TagConflict, "not_building")
	diff, err := a.CompareProjections(ctx, 1, 2, 10)
	must(t, err)
	if diff.Total != 0 || diff.Differences == nil {
		t.Errorf("compared: %+v", diff)
	}
	_, err = a.PauseProjection(ctx, 2, true)
	must(t, err)
	_, err = a.ActivateProjection(ctx, 2)
	code(t, err, sdk.TagConflict, "paused")
	_, err = a.PauseProjection(ctx, 2, false)
	must(t, err)
	st, err = a.ActivateProjection(ctx, 2)
	must(t, err)
	if st.Active != 2 || st.Previous != 1 || st.Building != 0 || st.Seed != 0 ||
		st.ActiveSettings != "settings of the build" || st.BuildingSettings != "" || st.ActivatedAt.Before(st.BegunAt) {
		t.Errorf("activated: %+v", st)
	}
	again, err := a.ActivateProjection(ctx, 2)
	must(t, err)
	if diff := cmp.Diff(st, again); diff != "" {
		t.Errorf("activated again: %s", diff)
	}
	_, err = a.ActivateProjection(ctx, 1)
	code(t, err, sdk.TagConflict, "not_building")
	must(t, checkEquations(ctx, a))
}

// A rebuild mends what is wrong in the totals, adds what retention removed, and
// keeps what is recorded and corrected during all of it (B38, B44, B-T4).
func TestProjectionMends(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	for _, tenant := range []string{"t1", "t2", "t3"} {
		must(t, recordUsage(ctx, a, usageOf(tenant, "e1", "10", november, nil)))
	}
	// t1 counts too much, t2 nothing, t4 what nobody recorded; t3 and t5 had
	// events that are gone.
	sqlExec(t, a, `UPDATE {schema}.fencepost_totals SET quantity = 17, count = 3 WHERE tenant_key = 't1'`)
	sqlExec(t, a, `DELETE FROM {schema}.fencepost_totals WHERE tenant_key = 't2'`)
	sqlExec(t, a, `INSERT INTO {schema}.fencepost_totals SELECT x.tenant, feature, period_start, x.generation, period_end, x.quantity, 2, 2, signed
FROM {schema}.fencepost_totals, (VALUES ('t4', 1, 5), ('t3', 0, 7), ('t5', 0, 1)) AS x (tenant, generation, quantity) WHERE tenant_key = 't1'`)
	st := begin(t, a)
	must(t, recordUsage(ctx, a, usageOf("t2", "e2", "1", november, nil)))
	must(t, replay(ctx, a, 2, func() error { return nil }))
	diff, err := a.CompareProjections(ctx, 1, st.Building, 4)
	must(t, err)
	var got []string
	for _, d := range diff.Differences {
		got = append(got, fmt.Sprintf("%s %s/%d/%d %s/%d/%d", d.Tenant, d.Active.Quantity, d.Active.Events, d.Active.Count,
			d.Built.Quantity, d.Built.Events, d.Built.Count))
	}
	want := []string{"t1 17/1/3 10/1/1", "t2 1/1/1 11/2/2", "t3 10/1/1 17/3/3", "t4 5/2/2 0/0/0"}
	if !slices.Equal(got, want) || diff.Total != 5 {
		t.Errorf("%d differences: %q, want 5: %q", diff.Total, got, want)
	}
	must(t, checkEquations(ctx, a))
}

// What is recorded between the copy and the announcement is in the build and in
// its seed; a copy of which nothing came is removed by the next (B38, B44).
func TestProjectionCopy(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	must(t, recordUsage(ctx, a, usageOf("t1", "e1", "1", november, nil), usageOf("t2", "e1", "1", november, nil)))
	lost, err := a.copyTotals(ctx, "test") // its host is killed
	must(t, err)
	c, err := a.copyTotals(ctx, "test")
	must(t, err)
	if n := sqlOne[int](t, a, `SELECT count(*) FROM {schema}.fencepost_totals WHERE abs(generation) = $1`, lost.number); n != 0 || c.number == lost.number {
		t.Errorf("%d rows of a lost copy", n)
	}
	must(t, recordUsage(ctx, a, usageOf("t1", "e2", "2", november, nil), usageOf("t3", "e1", "1", november, nil)))
	// Another host takes the copy for one that was lost.
	sqlExec(t, a, `DELETE FROM {schema}.fencepost_totals WHERE generation = $1 AND tenant_key = 't2'`, -c.number)
	st, err := a.announce(ctx, "test", c, "")
	must(t, err)
	if st.Building != c.number || st.Watermark != 4 {
		t.Errorf("announced: %+v", st)
	}
	must(t, checkEquations(ctx, a))
	if n := sqlOne[int](t, a, `SELECT count(*) FROM {schema}.fencepost_totals AS s JOIN {schema}.fencepost_totals AS t
  ON t.generation = 1 AND s.generation = $1 AND s.tenant_key = t.tenant_key AND s.quantity = t.quantity AND s.events = t.events`, -c.number); n != 3 {
		t.Errorf("%d rows of the seed are those of the active generation, want 3", n)
	}
	must(t, a.removeCopy(ctx, "test", c.number))
	if n := sqlOne[int](t, a, `SELECT count(*) FROM {schema}.fencepost_totals WHERE abs(generation) = $1`, c.number); n != 6 {
		t.Errorf("%d rows of the build and its seed after it was taken for a copy, want 6", n)
	}
	must(t, replay(ctx, a, 10, func() error { return checkEquations(ctx, a) }))
	c.number++
	if st, err = a.announce(ctx, "test", c, ""); err != nil || st.Building != 0 {
		t.Errorf("a copy of a generation that is not active any more was published: %+v, %v", st, err)
	}
}

// Announcements at once lead to one build, and leave nothing else behind (B39).
func TestProjectionBegunAtOnce(t *testing.T) {
	t.Parallel()
	a := open(t)
	must(t, recordUsage(t.Context(), a, usageOf("t1", "e1", "1", november, nil)))
	states := make([]storage.ProjectionState, 4)
	together(t, len(states), func(i int) (err error) {
		states[i], err = a.BeginProjection(t.Context(), strconv.Itoa(i))
		return err
	})
	begun := 0
	for _, st := range states {
		if !st.Resumed {
			begun++
		}
		if st.Building != states[0].Building || st.BuildingSettings != states[0].BuildingSettings {
			t.Errorf("two builds: %+v and %+v", states[0], st)
		}
	}
	rows := sqlOne[int](t, a, `SELECT count(*) FROM {schema}.fencepost_totals`)
	if begun != 1 || rows != 3 {
		t.Errorf("%d begun, %d rows of totals; want one, and three", begun, rows)
	}
}

// A delta that is negative by itself moves a row that stays above zero, and is
// refused where it does not; then nothing of the batch is there (B45, B34, B-T6).
func TestProjectionNegativeDelta(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	must(t, recordUsage(ctx, a, usageOf("t1", "e1", "10", november, nil), usageOf("t1", "e2", "10", november, nil)))
	st := begin(t, a)
	delta := func(tenant, quantity string) storage.TotalDelta {
		d := totalOf(usageOf(tenant, "x", "1", november, nil))
		d.Quantity = decimal.MustParse(quantity)
		return d
	}
	b := storage.ProjectionBatch{Generation: st.Building, Cursor: 1, Totals: []storage.TotalDelta{delta("t1", "-12.5")}}
	must(t, a.WriteProjection(ctx, b))
	total := sqlOne[string](t, a, `SELECT quantity::text FROM {schema}.fencepost_totals WHERE generation = 2`)
	if total != "7.500000000000" {
		t.Errorf("total %s", total)
	}
	b.After, b.Cursor = 1, 2
	b.Totals = []storage.TotalDelta{delta("t0", "4"), delta("t1", "-7.6")}
	code(t, a.WriteProjection(ctx, b), sdk.TagInvalid, "constraint")
	if n := sqlOne[int](t, a, `SELECT count(*) FROM {schema}.fencepost_totals WHERE tenant_key = 't0'`); n != 0 || state(t, a).Cursor != 1 {
		t.Errorf("%d rows of a refused batch, cursor %d", n, state(t, a).Cursor)
	}
	b.Totals = []storage.TotalDelta{delta("t0", "-4"), delta("t1", "1"), delta("t0", "4.5")}
	must(t, a.WriteProjection(ctx, b)) // the sum of a key decides
	signed := delta("t7", "-3")
	signed.Signed = true
	st = state(t, a)
	must(t, recordUsage(ctx, a, usageOf("t1", "e3", "1", november, nil)))
	must(t, a.run.write(ctx, "test", writing{}, func(ctx context.Context, tx *tx) error {
		return totalColumnsOf([]storage.TotalDelta{signed}).write(ctx, tx, st.Building)
	}))
}

// A correction of an event that the scan has not reached is accepted exactly
// when the active generation accepts it (B44, F57).
func TestCorrectionDuringBuild(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	e := usageOf("t1", "e1", "10", november, nil)
	must(t, recordUsage(ctx, a, e, usageOf("t1", "e2", "1", november, nil)))
	begin(t, a)
	ok, err := correctUsage(ctx, a, e, "c1", "9")
	must(t, err)
	if !ok {
		t.Error("a legal correction was refused")
	}
	must(t, checkEquations(ctx, a))
	must(t, replay(ctx, a, 1, func() error { return checkEquations(ctx, a) }))
	if ok, err = correctUsage(ctx, a, e, "c2", "1.5"); ok || err != nil {
		t.Errorf("a correction beyond its original: %t, %v", ok, err)
	}
	total, err := a.LoadTotals(ctx, storage.TotalsQuery{Tenant: "t1"})
	must(t, err)
	if len(total) != 1 || total[0].Quantity.String() != "2" || total[0].Events != 3 || total[0].Count != 2 {
		t.Errorf("%+v", total)
	}
}

// While four record and two correct, builds are announced, scanned by two,
// drained by two, and activated, over and over: after every commit of a build
// all totals are those of the events, and a build is never refused (I4, B44, F57).
func TestProjectionUnderLoad(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := &load{a: a, turns: make(chan struct{}), failed: make(chan error, 16)}
	for w := range 4 {
		l.loop(ctx, func(r *rand.Rand, n int) error { return l.record(ctx, r, fmt.Sprintf("%d.%d", w, n)) })
	}
	for w := range 2 {
		l.loop(ctx, func(r *rand.Rand, n int) error { return l.correct(ctx, r, fmt.Sprintf("c%d.%d", w, n)) })
	}
	after := func() error { // each commit of a build lets others have a few turns
		for range 6 {
			select {
			case l.turns <- struct{}{}:
			case err := <-l.failed:
				return err
			}
		}
		return checkEquations(ctx, a)
	}
	for range 10 {
		must(t, after())
	}
	for range 3 {
		st, err := a.BeginProjection(ctx, "")
		must(t, err)
		together(t, 2, func(int) error {
			for {
				err := replay(ctx, a, 9, after)
				if !errors.Is(err, sdk.ErrConflict) {
					return err
				}
				if now, err := a.ProjectionState(ctx); err != nil || now.Building != st.Building {
					return err // the other one was first to the end
				}
			}
		})
		must(t, checkEquations(ctx, a))
	}
	stop()
	l.wg.Wait()
	must(t, checkEquations(t.Context(), a))
	events := sqlOne[int](t, a, `SELECT count(*) FROM {schema}.fencepost_events WHERE kind = 'correction'`)
	if st := state(t, a); st.Active != 4 || events == 0 {
		t.Errorf("active generation %d, %d corrections", st.Active, events)
	}
}

// load is others at work.
type load struct {
	a      *Adapter
	turns  chan struct{}
	failed chan error
	wg     sync.WaitGroup
	usage  sync.Map // recorded events by id
}

// loop runs f once for each turn it gets.
func (l *load) loop(ctx context.Context, f func(r *rand.Rand, n int) error) {
	l.wg.Go(func() {
		r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-l.turns:
			}
			if err := f(r, n); err != nil && ctx.Err() == nil {
				l.failed <- err
				return
			}
		}
	})
}

func (l *load) record(ctx context.Context, r *rand.Rand, name string) error {
	var events []storage.Event
	for i := range 1 + r.IntN(3) {
		e := usageOf("t"+strconv.Itoa(r.IntN(4)), fmt.Sprintf("e%s.%d", name, i), strconv.Itoa(1+r.IntN(9)), november, nil)
		e.Feature = "f" + strconv.Itoa(r.IntN(3))
		if r.IntN(6) == 0 { // a key that no seed has
			e.PeriodStart = november.AddDate(0, 1+r.IntN(1000), 0)
		}
		events = append(events, e)
	}
	slices.SortFunc(events, func(a, b storage.Event) int { return strings.Compare(a.EventID, b.EventID) })
	if err := recordUsage(ctx, l.a, events...); err != nil {
		return err
	}
	for _, e := range events {
		l.usage.Store(e.EventID, e)
	}
	return nil
}

func (l *load) correct(ctx context.Context, r *rand.Rand, id string) (err error) {
	l.usage.Range(func(_, v any) bool {
		if r.IntN(3) > 0 {
			return true
		}
		_, err = correctUsage(ctx, l.a, v.(storage.Event), id, "1")
		return false
	})
	return err
}
