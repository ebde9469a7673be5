package sqlite

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// modelFact is an event of the model.
type modelFact struct {
	id, original                string
	quantity, effect, corrected *big.Rat
	count                       int64
	seq                         int64
	generation                  int // of its bucket
}

// modelBuild is a build of a projection in the model.
type modelBuild struct {
	generation, watermark, cursor int64
	seed                          map[string]*modelTotal // what is left of it, by total
	drained                       map[string]*modelTotal
}

type modelSeal struct {
	before time.Time
	// rows are the sealed buckets as they were: they never change.
	rows map[string]string
}

type modelTotal struct {
	quantity      *big.Rat
	events, count int64
}

func (m *modelTotal) add(quantity *big.Rat, events, count int64) {
	m.quantity.Add(m.quantity, quantity)
	m.events += events
	m.count += count
}

func (m *modelTotal) String() string {
	return fmt.Sprintf("%s/%d/%d", m.quantity.FloatString(12), m.events, m.count)
}

func ratOf(s string) *big.Rat {
	r, _ := new(big.Rat).SetString(s)
	return r
}

// number is the digits of an id: what an event is follows from them.
func number(id string) int {
	n, _ := strconv.Atoi(id[1:3])
	return n
}

func modelUsage(id, quantity string) storage.Event {
	ev := event("acme", id, quantity)
	n := number(id)
	ev.Feature = []string{"tokens", "chars"}[n%2]
	ev.PeriodStart = period.AddDate(0, -(n / 2 % 2), 0)
	ev.PeriodEnd = ev.PeriodStart.AddDate(0, 1, 0)
	ev.OccurredAt = ev.PeriodStart.Add(time.Duration(n) * time.Minute)
	ev.Dimensions = map[string]string{"model": strconv.Itoa(n % 3), "other": id}
	return ev
}

func modelBucket(ev *storage.Event) *storage.BucketKey {
	return &storage.BucketKey{
		Start: ev.OccurredAt.Truncate(storage.BucketLength), Dimensions: map[string]string{"model": ev.Dimensions["model"]},
	}
}

// of answers the usage that a fact is about.
func (f *modelFact) of() storage.Event { return modelUsage(cmp.Or(f.original, f.id), "0") }

func (f *modelFact) total() string {
	ev := f.of()
	return ev.Feature + ev.PeriodStart.Format(" 01")
}

func (m *model) fact(f *modelFact) {
	m.seqs++
	f.seq, f.generation = m.seqs, 1
	ev := f.of()
	for _, s := range m.seals {
		if s.before.After(modelBucket(&ev).Start) && ev.Feature == "tokens" {
			f.generation++
		}
	}
	m.events[f.id] = f
}

// sums adds up the facts with a seq up to last.
func (m *model) sums(last int64) map[string]*modelTotal {
	all := map[string]*modelTotal{}
	for _, f := range m.events {
		if f.seq <= last {
			sumOf(all, f.total()).add(f.effect, 1, f.count)
		}
	}
	return all
}

func sumOf(all map[string]*modelTotal, key string) *modelTotal {
	if all[key] == nil {
		all[key] = &modelTotal{quantity: new(big.Rat)}
	}
	return all[key]
}

func (s *modelRun) correct(rt *rapid.T) {
	usage := slices.DeleteFunc(slices.Sorted(maps.Keys(s.m.events)), func(id string) bool { return id[0] != 'e' })
	if len(usage) == 0 {
		rt.Skip("nothing recorded")
	}
	f := s.m.events[rapid.SampledFrom(usage).Draw(rt, "original")]
	left := new(big.Rat).Sub(f.quantity, f.corrected)
	quantity := rapid.SampledFrom([]string{"0.5", "1", decimal.MustParse(left.FloatString(12)).String()}).Draw(rt, "take")
	id := fmt.Sprintf("c%02d%d", number(f.id), rapid.IntRange(0, 3).Draw(rt, "id"))
	req := correction(id, f.id, quantity)
	req.RoutesRevision = s.revision
	usageEvent := f.of()
	req.Bucket = modelBucket(&usageEvent)
	q := ratOf(quantity)
	after := new(big.Rat).Sub(left, q)
	var want string
	switch known := s.m.events[id]; {
	case known != nil && known.quantity.Cmp(q) == 0:
		want = "duplicate"
	case known != nil:
		want = "conflict"
	case q.Sign() == 0:
		want = storage.RefusedNothingRemaining
	case after.Sign() < 0:
		want = storage.RefusedExceedsOriginal
	default:
		want = "inserted"
		count := int64(0)
		if after.Sign() == 0 {
			count = -1
		}
		f.corrected.Add(f.corrected, q)
		s.m.fact(&modelFact{id: id, original: f.id, quantity: q, effect: new(big.Rat).Neg(q), count: count})
	}
	res, err := s.a.RecordCorrection(s.t.Context(), req)
	if got := string(res.Outcome) + res.Refused; err != nil || got != want {
		rt.Fatalf("correction %s of %s by %s: %s, %v; want %s", id, f.id, quantity, got, err, want)
	}
}

func (s *modelRun) begin(rt *rapid.T) {
	state, err := s.a.BeginProjection(s.t.Context(), "")
	if err != nil {
		rt.Fatal(err)
	}
	if state.Resumed != (s.m.build != nil) {
		rt.Fatalf("state %+v, a build exists: %v", state, s.m.build != nil)
	}
	if s.m.build == nil {
		s.m.build = &modelBuild{
			generation: state.Building, watermark: s.m.seqs, seed: s.m.sums(s.m.seqs), drained: map[string]*modelTotal{},
		}
	}
	if b := s.m.build; state.Building != b.generation || state.Watermark != b.watermark || state.Cursor != b.cursor {
		rt.Fatalf("state %+v, want %+v", state, b)
	}
}

// scan replays a few events as the engine does.
func (s *modelRun) scan(rt *rapid.T) {
	b := s.m.build
	if b == nil {
		rt.Skip("no build")
	}
	page, err := s.a.StreamEvents(s.t.Context(), storage.StreamQuery{After: b.cursor, Limit: rapid.IntRange(1, 5).Draw(rt, "page")})
	if err != nil {
		rt.Fatal(err)
	}
	batch := storage.ProjectionBatch{Generation: b.generation, After: b.cursor, Cursor: b.watermark}
	for i := range page.Events {
		ev := &page.Events[i]
		if ev.Seq > b.watermark {
			break
		}
		batch.Cursor = ev.Seq
		t := storage.TotalDelta{
			Tenant: ev.Tenant, Feature: ev.Feature, PeriodStart: ev.PeriodStart, PeriodEnd: ev.PeriodEnd,
			Quantity: ev.Effect, Events: 1,
		}
		k := storage.BucketDelta{
			Tenant: ev.Tenant, Feature: ev.Feature, Key: *modelBucket(ev), Seq: ev.Seq, Sum: ev.Effect,
			Reversed: ev.Kind == storage.Correction,
		}
		switch {
		case ev.Kind == storage.Usage:
			t.Count, k.Min, k.Max = 1, &ev.Quantity, &ev.Quantity
		case ev.Reverses:
			t.Count = -1
		}
		k.Count = t.Count
		batch.Totals, batch.Buckets = append(batch.Totals, t), append(batch.Buckets, k)
	}
	if err := s.a.WriteProjection(s.t.Context(), batch); err != nil {
		rt.Fatal(err)
	}
	b.cursor = batch.Cursor
	err = s.a.WriteProjection(s.t.Context(), storage.ProjectionBatch{Generation: b.generation, After: b.cursor + 1, Cursor: b.cursor + 1})
	if e := tagged(err); e.Tag != sdk.TagConflict || e.Code != "cursor" {
		rt.Fatalf("a batch from elsewhere: %v", err)
	}
}

// drain is refused before the scan is over.
func (s *modelRun) drain(rt *rapid.T) {
	b := s.m.build
	if b == nil {
		rt.Skip("no build")
	}
	limit := rapid.IntRange(1, 3).Draw(rt, "limit")
	n, err := s.a.DrainSeed(s.t.Context(), b.generation, limit)
	if b.cursor < b.watermark {
		if tagged(err).Code != "cursor" {
			rt.Fatalf("drained before the scan was over: %v", err)
		}
		return
	}
	keys := slices.Sorted(maps.Keys(b.seed))
	keys = keys[:min(limit, len(keys))]
	if err != nil || n != len(keys) {
		rt.Fatalf("drained %d, %v; want %d", n, err, len(keys))
	}
	// Which rows went first is the store's business: their names are read.
	left := s.totalsIn(rt, -b.generation)
	for key, t := range b.seed {
		if left[key] == nil {
			b.drained[key] = t
		}
	}
	maps.DeleteFunc(b.seed, func(key string, _ *modelTotal) bool { return left[key] == nil })
}

func (s *modelRun) activate(rt *rapid.T) {
	b := s.m.build
	if b == nil {
		rt.Skip("no build")
	}
	state, err := s.a.ActivateProjection(s.t.Context(), b.generation)
	if b.cursor < b.watermark || len(b.seed) > 0 {
		if tagged(err).Code != "not_drained" {
			rt.Fatalf("activated too early: %v", err)
		}
		return
	}
	if err != nil || state.Active != b.generation || state.Building != 0 || state.Previous == 0 {
		rt.Fatalf("state %+v, %v", state, err)
	}
	s.m.build = nil
	diff, err := s.a.CompareProjections(s.t.Context(), state.Previous, state.Active, 10)
	if err != nil || diff.Total != 0 {
		rt.Fatalf("the build differs: %+v, %v", diff, err)
	}
	s.prune(rt, state.Previous)
}

func (s *modelRun) abandon(rt *rapid.T) {
	if s.m.build == nil || rapid.IntRange(0, 2).Draw(rt, "really") > 0 {
		rt.Skip("no build, or it goes on")
	}
	s.prune(rt, s.m.build.generation)
	s.m.build = nil
}

func (s *modelRun) prune(rt *rapid.T, generation int64) {
	for {
		n, err := s.a.PruneProjection(s.t.Context(), generation, 4)
		if err != nil {
			rt.Fatal(err)
		}
		if n < 4 {
			break
		}
	}
	if left := s.totalsIn(rt, generation); len(left) > 0 {
		rt.Fatalf("left of generation %d: %v", generation, left)
	}
}

func (s *modelRun) seal(rt *rapid.T) {
	before := period.Add(time.Duration(rapid.IntRange(0, 3).Draw(rt, "bucket")) * storage.BucketLength)
	got, err := s.a.SealBuckets(s.t.Context(), storage.Seal{Tenant: "acme", Feature: "tokens", Before: before})
	if err != nil {
		rt.Fatal(err)
	}
	if n := len(s.m.seals); n > 0 && !before.After(s.m.seals[n-1].before) {
		return // sealed already
	}
	if got.Generation != len(s.m.seals)+1 {
		rt.Fatalf("sealed %+v, %d before", got, len(s.m.seals))
	}
	s.m.seals = append(s.m.seals, modelSeal{before: before})
	rows := map[string]string{}
	for _, b := range s.buckets(rt) {
		if b.Sealed {
			rows[bucketName(&b)] = bucketText(&b)
		}
	}
	s.m.seals[len(s.m.seals)-1].rows = rows
}

// tagged answers the tagged error in err, or the zero one.
func tagged(err error) sdk.Error {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return *e
	}
	return sdk.Error{}
}
