package sqlite

import (
	"errors"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// oldEvent is an event as retention looks at it.
type oldEvent struct {
	seq        int64
	key        storage.EventKey
	feature    string
	original   string // of a correction
	recordedAt time.Time
	open       bool // it has an item that somebody still acts on
	corrected  bool
}

var errEnough = errors.New("enough")

// events removes events. An original goes only if all its corrections can, and
// before them: were a correction gone and its original not, more could be taken
// back than there was.
func (p *pruner) events() error {
	state, err := projectionState(p.c)
	if err != nil {
		return err
	}
	if state.Building != 0 {
		p.from, p.to = state.Cursor, state.Watermark
	}
	going, seqs := map[storage.EventKey]bool{}, []int64{}
	err = p.c.bind(qPruneCandidates).int(0).each(func(r *row) error {
		e := r.oldEvent()
		if !e.recordedAt.Before(p.before()) {
			return errEnough
		}
		stays, err := p.stays(&e, going)
		switch {
		case err != nil:
			return err
		case stays:
			p.res.Kept++
		case p.full():
			return errEnough
		default:
			going[e.key] = true
			seqs = append(seqs, e.seq)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) || p.req.DryRun {
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	}
	return p.remove(seqs)
}

func (r *row) oldEvent() (e oldEvent) {
	e.seq, e.key.Tenant, e.key.EventID, e.feature = r.int(), r.text(), r.text(), r.text()
	e.original, e.recordedAt = r.text(), r.time()
	e.open, e.corrected = r.bool(), r.bool()
	return e
}

func (p *pruner) stays(e *oldEvent, going map[storage.EventKey]bool) (bool, error) {
	switch {
	case e.open || e.seq > p.from && e.seq <= p.to:
		return true, nil
	case e.original != "":
		original := storage.EventKey{Tenant: e.key.Tenant, EventID: e.original}
		if going[original] {
			return false, nil
		}
		return p.c.bind(qEventDedupe).text(original.Tenant).text(original.EventID).one(func(*row) {})
	case e.corrected:
		return p.c.bind(qPruneCorrections).text(e.key.Tenant).text(e.key.EventID).time(p.before()).
			int(p.from).int(p.to).one(func(*row) {})
	}
	return false, nil
}

// remove takes events out, in their order, and keeps what they added up to.
func (p *pruner) remove(seqs []int64) error {
	features := map[string]storage.Feature{}
	receipts := map[storage.ReceiptKey]bool{}
	for _, seq := range seqs {
		var ev storage.Event
		if _, err := p.c.bind(qEventBySeq).int(seq).one(func(r *row) { ev = r.event() }); err != nil {
			return err
		}
		f, known := features[ev.Feature]
		if !known {
			var err error
			if f, err = loadFeature(p.c, ev.Feature); err != nil {
				return err
			}
			features[ev.Feature] = f
		}
		if err := p.keep(&ev, f); err != nil {
			return err
		}
		if _, err := p.c.bind(qPruneReceiptOf).int(seq).one(func(r *row) {
			receipts[storage.ReceiptKey{Tenant: ev.Tenant, ReceiptID: r.text()}] = true
		}); err != nil {
			return err
		}
		if err := p.items(seq); err != nil {
			return err
		}
		if _, err := p.c.bind(qPruneEvent).int(seq).run(); err != nil {
			return err
		}
	}
	if err := p.bodies(receipts); err != nil {
		return err
	}
	if err := p.deltas.write(p.c, prunedGeneration); err != nil {
		return err
	}
	return p.counts.write(p.c)
}

// keep notes what an event added to its total and bucket, when it occurred, and
// its identity.
func (p *pruner) keep(ev *storage.Event, f storage.Feature) error {
	entry := storage.Entry{Event: *ev, Bucket: bucketOf(f, ev)}
	if _, err := p.c.bind(qTotalSigned).text(ev.Tenant).text(ev.Feature).time(ev.PeriodStart).one(func(r *row) {
		entry.Signed = r.bool()
	}); err != nil {
		return err
	}
	if err := p.deltas.entry(p.c, &entry, ev.Seq); err != nil {
		return err
	}
	buckets := int64(withoutBuckets)
	if entry.Bucket != nil {
		buckets = f.Revision
	}
	if _, err := p.c.bind(qPruneNote).text(ev.Tenant).text(ev.Feature).time(ev.PeriodStart).time(ev.OccurredAt).int(buckets).run(); err != nil {
		return err
	}
	_, err := p.c.bind(qPruneTombstone).int(ev.Seq).time(p.now).run()
	return err
}

// withoutBuckets is noted in place of a revision when no bucket keeps a removed
// event.
const withoutBuckets = -1

// items removes the items of an event with their attempts.
func (p *pruner) items(seq int64) error {
	var items []int64
	err := p.c.bind(qPruneItems).int(seq).each(func(r *row) error {
		id, route, state, open := r.int(), r.int(), storage.ItemState(r.text()), r.bool()
		items = append(items, id)
		p.counts.add(route, state, -1, open)
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range items {
		for _, q := range []query{qPruneAttempts, qStateDelete, qPruneItem} {
			if _, err := p.c.bind(q).int(id).run(); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucketOf answers the bucket of an event as the feature's configuration has
// it now; nil for a feature without buckets.
func bucketOf(f storage.Feature, ev *storage.Event) *storage.BucketKey {
	if f.Buckets == nil {
		return nil
	}
	k := &storage.BucketKey{Start: ev.OccurredAt.Truncate(storage.BucketLength)}
	for _, name := range f.Buckets {
		if v, ok := ev.Dimensions[name]; ok {
			if k.Dimensions == nil {
				k.Dimensions = map[string]string{}
			}
			k.Dimensions[name] = v
		}
	}
	return k
}
