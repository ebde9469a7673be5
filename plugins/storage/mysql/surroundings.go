package mysql

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// surroundings are what items point to.
type surroundings struct {
	events     map[int64]storage.Event
	mappings   map[string]storage.Mapping
	originals  map[int64]*item
	dependents map[int64]int
}

// around reads what items point to.
func (t *tx) around(items []*item) (*surroundings, error) {
	s := &surroundings{map[int64]storage.Event{}, map[string]storage.Mapping{}, map[int64]*item{}, map[int64]int{}}
	var seqs, versions, originals []any
	for _, it := range items {
		if it.event != 0 {
			seqs = append(seqs, it.event)
		}
		if it.DependsOn != 0 {
			originals = append(originals, it.DependsOn)
		}
		if v := it.Identity.MappingVersion; v != "" {
			versions = append(versions, v)
		}
	}
	var list []capability.Statement
	var into []func(*row)
	add := func(text, rest string, args []any, f func(*row)) {
		if len(args) > 0 {
			list, into = append(list, read(text+places(len(args))+rest, args...)), append(into, f)
		}
	}
	add(selectEvents+"seq IN ", "", seqs, func(r *row) {
		ev := r.event()
		s.events[ev.Seq] = ev
	})
	add("SELECT version, label, content FROM fencepost_mappings WHERE version IN ", "", versions, func(r *row) {
		m := r.mapping()
		s.mappings[m.Version] = m
	})
	add(selectItems+"item IN ", "", originals, func(r *row) {
		it := r.item()
		s.originals[it.ItemID] = it
	})
	add("SELECT depends_on, COUNT(*) FROM fencepost_items WHERE superseded_by = 0 AND depends_on IN ", " GROUP BY depends_on", originals,
		func(r *row) { s.dependents[r.int()] = int(r.int()) })
	if len(list) == 0 {
		return s, nil
	}
	results, err := t.queries(list...)
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		if err := r.each(into[i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// original is what a correction's item is told of the item it depends on.
func (s *surroundings) original(it *item, now time.Time) *storage.OriginalItem {
	of := s.originals[it.DependsOn]
	if of == nil {
		return nil
	}
	o := &storage.OriginalItem{
		ItemID: of.ItemID, Digest: of.Digest, State: of.State, Unresolved: of.Unresolved, Disputed: of.Disputed, Dependents: s.dependents[of.ItemID],
	}
	if !of.FirstAttemptAt.IsZero() {
		o.SinceFirstAttempt = now.Sub(of.FirstAttemptAt)
	}
	return o
}
