package conformance

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var _ storage.ProjectionFolder = (*Reference)(nil)

// FoldProjection adds the next events to a build.
func (s *Reference) FoldProjection(ctx context.Context, f storage.ProjectionFold) (storage.ProjectionFolded, error) {
	var done storage.ProjectionFolded
	if f.Limit < 1 || f.Limit > 100_000 {
		return done, sdk.Invalid("limit", "1 to 100000")
	}
	if err := s.begin(ctx); err != nil {
		return done, err
	}
	defer s.mu.Unlock()
	p := &s.projection
	switch {
	case f.Generation == 0 || f.Generation != p.Building:
		return done, clash("not_building")
	case p.Paused:
		return done, clash("paused")
	case f.After != p.Cursor:
		return done, clash("cursor")
	case p.Cursor >= p.Watermark:
		return done, sdk.Invalid("after", "below the watermark")
	}
	done.Cursor = p.Watermark
	for i := range s.events {
		ev := &s.events[i]
		if ev.Seq <= f.After {
			continue
		}
		if ev.Seq > p.Watermark && !s.flaws.has(flawFoldsBeyond) {
			break
		}
		if done.Events == int64(f.Limit) {
			done.Cursor = s.events[i-1].Seq
			break
		}
		done.Events++
		s.addTotal(f.Generation, totalDelta(ev))
		kept, ok := f.Buckets[ev.Feature]
		if !ok {
			continue
		}
		s.addBucket(f.Generation, bucketDelta(ev, keptBy(ev, kept)))
	}
	p.Cursor = done.Cursor
	return done, nil
}

// keptBy is the bucket of an event where buckets keep the named dimensions.
func keptBy(ev *storage.Event, names []string) storage.BucketKey {
	k := storage.BucketKey{Start: ev.OccurredAt.UTC().Truncate(storage.BucketLength)}
	for _, name := range names {
		if value, ok := ev.Dimensions[name]; ok {
			if k.Dimensions == nil {
				k.Dimensions = map[string]string{}
			}
			k.Dimensions[name] = value
		}
	}
	return k
}
