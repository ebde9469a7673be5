package conformance

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var _ storage.CorrectionLister = (*Reference)(nil)

// ListCorrections returns a page of the corrections of one event.
func (s *Reference) ListCorrections(ctx context.Context, original storage.EventKey, after int64, limit int) (storage.EventPage, error) {
	page := storage.EventPage{Events: []storage.Event{}, Next: after}
	if err := s.begin(ctx); err != nil {
		return page, err
	}
	defer s.mu.Unlock()
	for _, ev := range s.events {
		switch {
		case ev.Tenant != original.Tenant || ev.OriginalEventID != original.EventID || ev.OriginalEventID == "" || ev.Seq <= after:
		case len(page.Events) == limit:
			page.More = true
			return page, nil
		default:
			page.Events = append(page.Events, ev)
			page.Next = ev.Seq
		}
	}
	return page, nil
}

// correctionsListed looks at nothing where an adapter lists none: it may.
func correctionsListed(r *run) {
	lister, ok := storage.As[storage.CorrectionLister](r.store)
	if !ok {
		return
	}
	t := r.tenant("a")
	e, other, elsewhere := usage(t, "1", "10"), usage(t, "2", "10"), usage(r.tenant("b"), "1", "10")
	r.put(e, other)
	r.put(elsewhere)
	r.corrects(correction(&e, "c1", "1"), "9")
	r.corrects(correction(&other, "d1", "1"), "9")
	r.corrects(correction(&elsewhere, "c9", "1"), "9")
	r.corrects(correction(&e, "c2", "2"), "7")
	r.corrects(correction(&e, "c3", "3"), "4")
	list := func(id string, after int64, limit int) (ids []string, page storage.EventPage) {
		page, err := lister.ListCorrections(r.ctx, storage.EventKey{Tenant: t, EventID: id}, after, limit)
		r.must("list corrections", err)
		for _, c := range page.Events {
			ids = append(ids, c.EventID+" "+c.Quantity.String()+" "+c.Effect.String()+" "+c.OriginalEventID)
		}
		return ids, page
	}
	ids, page := list("1", 0, 2)
	r.same("the first page", []any{ids, page.More}, []any{[]string{"c1 1 -1 1", "c2 2 -2 1"}, true})
	ids, page = list("1", page.Next, 2)
	r.same("the second page", []any{ids, page.More}, []any{[]string{"c3 3 -3 1"}, false})
	ids, page = list("c1", 0, 1000)
	r.same("of a correction", []any{len(ids), page.More}, []any{0, false})
	ids, _ = list("none", 0, 2)
	r.same("of nothing", len(ids), 0)
}
