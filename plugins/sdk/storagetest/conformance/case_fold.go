package conformance

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// foldCases prove what an adapter may lack: with one that cannot fold they have
// nothing to look at.
func foldCases() []Case {
	return []Case{
		fresh("projection/fold-is-scan-and-write", "B41 B44 Q27", projecting(storage.Buckets, storage.Corrections), foldIsScan),
		fresh("projection/fold-is-refused-as-a-write", "B41", projecting(), foldRefused),
	}
}

// folder is the store if it can fold. Not to be able to is no failure.
func (r *run) folder() (storage.ProjectionFolder, bool) {
	return storage.As[storage.ProjectionFolder](r.store)
}

// fold takes the next events of the build and answers whether there are more.
func (r *run) fold(f storage.ProjectionFolder, limit int, buckets map[string][]string) bool {
	s := r.projectionState()
	if s.Cursor >= s.Watermark {
		return false
	}
	done, err := f.FoldProjection(r.ctx, storage.ProjectionFold{Generation: s.Building, After: s.Cursor, Limit: limit, Buckets: buckets})
	r.must("fold", err)
	now := r.projectionState()
	r.same("the cursor", now.Cursor, done.Cursor)
	if done.Events > int64(limit) || done.Cursor <= s.Cursor || done.Cursor > s.Watermark || done.Events < int64(limit) && done.Cursor != s.Watermark {
		r.errorf("folded %s of at most %d from %d, watermark %d", text(done), limit, s.Cursor, s.Watermark)
	}
	return done.Cursor < s.Watermark
}

// inBucket is an event whose bucket keeps all its dimensions but "id".
func inBucket(t, id, quantity string, bucket int, dims map[string]string) storage.Unit {
	e := usage(t, id, quantity)
	e.OccurredAt = period.Add(time.Duration(bucket)*storage.BucketLength + time.Duration(len(id))*time.Second)
	key := storage.BucketKey{Start: period.Add(time.Duration(bucket) * storage.BucketLength), Dimensions: dims}
	e.Dimensions = map[string]string{"id": id}
	maps.Copy(e.Dimensions, dims)
	return storage.Unit{Entries: []storage.Entry{{Event: e, Bucket: &key}}}
}

// What is folded leaves the same totals and buckets as what is recorded, in
// slices of any size, across seals, corrections and what is recorded meanwhile.
func foldIsScan(r *run) {
	f, ok := r.folder()
	if !ok {
		return
	}
	kept := map[string][]string{"tokens": {"region", "model"}}
	t := r.tenant("a")
	odd := map[string]string{"model": "\"<&\u2028é\\", "region": ""}
	first := inBucket(t, "1", "2.000000000001", 0, map[string]string{"model": "m1", "region": "r1"})
	r.putUnits(first, inBucket(t, "2", "3", 0, map[string]string{"model": "m1"}), inBucket(t, "3", "4", 1, nil),
		inBucket(t, "4", "5", 0, odd), inBucket(r.tenant("b"), "1", "6", 0, odd))
	_, err := r.bucketStore().SealBuckets(r.ctx, storage.Seal{Tenant: t, Feature: "tokens", Before: period.Add(storage.BucketLength)})
	r.must("seal", err)
	r.putUnits(inBucket(t, "5", "7", 0, odd), inBucket(t, "6", "11", 1, nil))
	c := r.correctRequest(correction(&first.Entries[0].Event, "c1", "0.5"))
	c.Bucket = first.Entries[0].Bucket
	r.same("corrected", r.correct(c).Outcome, storage.Inserted)
	other := usage(t, "7", "100")
	other.Feature = "unbucketed"
	r.put(other)

	for _, limit := range []int{1, 2, 3, 1000} {
		s := r.beginBuild()
		n := "during" + decimalInt(limit)
		r.putUnits(inBucket(t, n, "1", 1, odd))
		for more := true; more; {
			more = r.fold(f, limit, kept)
		}
		r.putUnits(inBucket(t, n+"after", "1", 0, odd))
		want := bucketTexts(r.buckets(storage.BucketQuery{Tenant: t}))
		r.drain(s.Building, 1000)
		diff, err := r.keeper().CompareProjections(r.ctx, s.Active, s.Building, 10)
		r.must("compare", err)
		r.same("differing totals, in slices of "+decimalInt(limit), diff.Differences, []storage.TotalDifference{})
		r.activate(s.Building)
		r.same("buckets, in slices of "+decimalInt(limit), bucketTexts(r.buckets(storage.BucketQuery{Tenant: t})), want)
	}
}

// bucketTexts are buckets with all that a build decides.
func bucketTexts(all []storage.Bucket) []string {
	lines := make([]string, len(all))
	for i, b := range all {
		var dims []string
		for _, name := range slices.Sorted(maps.Keys(b.Dimensions)) {
			dims = append(dims, name+"="+b.Dimensions[name])
		}
		lines[i] = bucketLine(b) + " {" + strings.Join(dims, ",") + "}"
	}
	return lines
}

// A fold that does not meet the build where it says writes nothing.
func foldRefused(r *run) {
	f, ok := r.folder()
	if !ok {
		return
	}
	t := r.tenant("a")
	r.put(usage(t, "1", "10"), usage(t, "2", "10"))
	s := r.beginBuild()
	right := storage.ProjectionFold{Generation: s.Building, After: s.Cursor, Limit: 1000}
	try := func(what string, tag sdk.Tag, code string, edit func(*storage.ProjectionFold)) {
		fold := right
		edit(&fold)
		_, err := f.FoldProjection(r.ctx, fold)
		r.tagIs(what, err, tag, code)
	}
	same := func(*storage.ProjectionFold) {}
	try("a cursor that is not there yet", sdk.TagConflict, "", func(p *storage.ProjectionFold) { p.After++ })
	try("the active generation", sdk.TagConflict, "", func(p *storage.ProjectionFold) { p.Generation = s.Active })
	try("no events", sdk.TagInvalid, "", func(p *storage.ProjectionFold) { p.Limit = 0 })
	try("too many events", sdk.TagInvalid, "", func(p *storage.ProjectionFold) { p.Limit = 100_001 })
	_, err := r.keeper().PauseProjection(r.ctx, s.Building, true)
	r.must("pause", err)
	try("a paused build", sdk.TagConflict, "paused", same)
	_, err = r.keeper().PauseProjection(r.ctx, s.Building, false)
	r.must("go on", err)
	r.same("nothing was written", r.built(t), (*sum)(nil))
	for r.fold(f, 1000, nil) {
		continue
	}
	r.same("written once", r.built(t), &sum{dec("40"), 4, 4})
	try("the same one again", sdk.TagConflict, "", same)
	try("from the watermark", sdk.TagInvalid, "", func(p *storage.ProjectionFold) { p.After = s.Watermark })
	r.same("written once", r.built(t), &sum{dec("40"), 4, 4})
	r.build(s.Building)
	r.totalIs("built", t, "20", 2, 2)
}
