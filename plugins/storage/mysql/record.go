package mysql

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// RecordEvents implements [storage.EventStore]: what there is is read with the
// lock, and what is new is written with the commit.
func (a *Adapter) RecordEvents(ctx context.Context, req storage.RecordRequest) (res storage.RecordResult, err error) {
	if err := checkRecord(&req); err != nil {
		return res, err
	}
	keys := keysOf(&req)
	err = a.writeAfter(ctx, "record events", keys.statements(), func(t *tx, r []result) error {
		rec := newRecorder(t, &req)
		if err := rec.known.read(keys, r); err != nil {
			return err
		}
		var err error
		res, err = rec.run()
		return err
	})
	if err != nil {
		return storage.RecordResult{}, err
	}
	return res, nil
}

func checkRecord(req *storage.RecordRequest) error {
	if req.Mode != storage.Atomic && req.Mode != storage.Each {
		return sdk.Invalid("mode", "atomic or each")
	}
	for i := range req.Units {
		u := &req.Units[i]
		switch {
		case u.Receipt == nil && len(u.Entries) != 1:
			return sdk.Invalid("units", "a unit without a receipt has one entry").At(i)
		case u.Receipt != nil && len(u.Receipt.Features) != len(u.Entries):
			return sdk.Invalid("units", "a receipt names the feature of each entry").At(i)
		}
		for j := range u.Entries {
			e := &u.Entries[j]
			if e.Event.Kind != storage.Usage {
				return sdk.Invalid("kind", "usage").At(i)
			}
			if err := checkBucket(e.Bucket); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkBucket refuses what belongs to a capability that is not declared.
func checkBucket(bucket *storage.BucketKey) error {
	if bucket != nil {
		return &sdk.Error{Tag: sdk.TagUnsupported, Code: "not_declared", Field: "bucket", Rule: "a feature without buckets: this adapter has none"}
	}
	return nil
}

// keys are the identities of a request, to be looked up with the lock.
type keys struct {
	tenants           []string
	events, receipts  []storage.Hash
	digests, subjects []storage.Hash
	depends           []any
	parts             []part
}

// part is one list of a statement: what it reads, and how.
type part struct {
	text string
	args []any
	read func(*known, *row)
}

func keysOf(req *storage.RecordRequest) *keys {
	k := &keys{}
	for _, s := range req.Subscriptions {
		k.tenants = append(k.tenants, s.Tenant)
	}
	for i := range req.Units {
		u := &req.Units[i]
		if u.Receipt != nil {
			k.receipts = append(k.receipts, key(u.Receipt.Tenant, u.Receipt.ReceiptID))
		}
		for j := range u.Entries {
			k.entry(&u.Entries[j].Event, u.Entries[j].Items)
		}
	}
	k.split()
	return k
}

func (k *keys) entry(ev *storage.Event, items []storage.NewItem) {
	k.events = append(k.events, key(ev.Tenant, ev.EventID))
	for i := range items {
		k.item(&items[i])
	}
}

func (k *keys) item(n *storage.NewItem) {
	k.digests, k.subjects = append(k.digests, n.Digest), append(k.subjects, n.SubjectKey)
	if n.DependsOn != nil {
		k.depends = append(k.depends, n.DependsOn.ItemID)
	}
}

const (
	selectRevisions = "SELECT tenant, revision FROM fencepost_subscriptions WHERE tenant IN "
	selectKnown     = "SELECT event_key, seq, event_id, feature, dedupe_hash FROM fencepost_events WHERE event_key IN "
	selectDigests   = "SELECT digest FROM fencepost_items WHERE digest IN "
	selectSubjects  = "SELECT subject FROM fencepost_items WHERE subject IN "
	selectDepends   = "SELECT item, state, settled_at IS NOT NULL, superseded_by FROM fencepost_items WHERE item IN "
)

// split makes statements of the lists.
func (k *keys) split() {
	add := func(text string, args []any, f func(*known, *row)) {
		for list := range slices.Chunk(args, maxPage/2) {
			k.parts = append(k.parts, part{text + places(len(list)), list, f})
		}
	}
	add(selectRevisions, anys(k.tenants), func(n *known, r *row) { n.revisions[r.text()] = r.int() })
	add(selectReceipts, anys(k.receipts), func(n *known, r *row) { n.receipts[r.hash()] = r.receipt() })
	add(selectKnown, anys(k.events), func(n *known, r *row) {
		n.events[r.hash()] = knownEvent{storage.EntryResult{Seq: r.int(), EventID: r.text(), Feature: r.text()}, r.hash()}
	})
	add(selectDigests, anys(k.digests), func(n *known, r *row) { n.digests[r.hash()] = true })
	add(selectSubjects, anys(k.subjects), func(n *known, r *row) { n.subjects[r.hash()] = true })
	add(selectDepends, k.depends, func(n *known, r *row) {
		n.depends[r.int()] = storage.Dependency{State: storage.ItemState(r.text()), Settled: r.bool(), Superseded: r.int() != 0}
	})
}

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

func (k *keys) statements() []capability.Statement {
	list := make([]capability.Statement, len(k.parts))
	for i, p := range k.parts {
		list[i] = read(p.text, p.args...)
	}
	return list
}

// known is what the store has of the identities of a request, and what the
// request has added.
type known struct {
	revisions map[string]int64
	events    map[storage.Hash]knownEvent
	receipts  map[storage.Hash]storedReceipt
	digests   map[storage.Hash]bool
	subjects  map[storage.Hash]bool // of items that are not superseded
	depends   map[int64]storage.Dependency
}

type knownEvent struct {
	storage.EntryResult
	hash storage.Hash
}

func newKnown() known {
	return known{
		map[string]int64{},
		map[storage.Hash]knownEvent{},
		map[storage.Hash]storedReceipt{},
		map[storage.Hash]bool{},
		map[storage.Hash]bool{},
		map[int64]storage.Dependency{},
	}
}

func (n *known) read(k *keys, results []result) error {
	for i, p := range k.parts {
		if err := results[i].each(func(r *row) { p.read(n, r) }); err != nil {
			return err
		}
	}
	return nil
}

// recorder is the state of one call between the lock and the commit.
type recorder struct {
	*tx
	req     *storage.RecordRequest
	known   known
	events  []storage.Event
	totals  map[totalKey]*totalDelta
	counted map[totalKey]storage.Counter
	items   []newItem
	res     storage.RecordResult
}

type totalKey struct {
	tenant, feature string
	start           int64 // µs
}

func (k totalKey) compare(o totalKey) int {
	return cmp.Or(cmp.Compare(k.tenant, o.tenant), cmp.Compare(k.feature, o.feature), cmp.Compare(k.start, o.start))
}

type totalDelta struct {
	end         time.Time
	quantity    decimal.Decimal
	events, net int64
	signed      bool
}

func newRecorder(t *tx, req *storage.RecordRequest) *recorder {
	return &recorder{
		tx: t, req: req, known: newKnown(), totals: map[totalKey]*totalDelta{}, counted: map[totalKey]storage.Counter{},
		res: storage.RecordResult{Units: make([]storage.UnitResult, len(req.Units))},
	}
}

func (r *recorder) run() (storage.RecordResult, error) {
	if s := r.stale(); s != nil {
		return storage.RecordResult{Stale: s}, errUndo
	}
	if r.judge() && r.req.Mode == storage.Atomic {
		for i := range r.res.Units {
			if r.res.Units[i].Outcome != storage.Conflict {
				r.res.Units[i] = storage.UnitResult{}
			}
		}
		return r.res, errUndo
	}
	for _, i := range sortedUnits(r.req.Units) {
		if r.res.Units[i].Outcome == "" {
			if err := r.insert(i); err != nil {
				return r.res, err
			}
		}
	}
	err := r.finish()
	if errors.Is(err, errItemsMoved) {
		return storage.RecordResult{Stale: &storage.Stale{Items: true}}, errUndo
	}
	return r.res, err
}

func sortedUnits(units []storage.Unit) []int {
	order := make([]int, len(units))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := unitKey(&units[i]), unitKey(&units[j])
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.EventID, b.EventID))
	})
	return order
}

func unitKey(u *storage.Unit) storage.EventKey {
	if u.Receipt != nil {
		return storage.EventKey{Tenant: u.Receipt.Tenant, EventID: u.Receipt.ReceiptID}
	}
	return storage.EventKey{Tenant: u.Entries[0].Event.Tenant, EventID: u.Entries[0].Event.EventID}
}

// stale says which assumptions no longer hold.
func (r *recorder) stale() *storage.Stale {
	s := storage.Stale{Routes: r.state.routes != r.req.RoutesRevision}
	for _, sub := range r.req.Subscriptions {
		if r.known.revisions[sub.Tenant] != sub.Revision {
			s.Tenants = append(s.Tenants, sub.Tenant)
		}
	}
	if s.Routes || len(s.Tenants) > 0 {
		return &s
	}
	return nil
}

// judge answers what is there already, and reports whether there is a conflict.
func (r *recorder) judge() (conflict bool) {
	for i := range r.req.Units {
		r.res.Units[i] = r.judgeUnit(&r.req.Units[i])
		conflict = conflict || r.res.Units[i].Outcome == storage.Conflict
	}
	return conflict
}

func (r *recorder) judgeUnit(u *storage.Unit) storage.UnitResult {
	if u.Receipt != nil {
		if stored, ok := r.known.receipts[key(u.Receipt.Tenant, u.Receipt.ReceiptID)]; ok {
			if stored.DedupeHash != u.Receipt.DedupeHash {
				return storage.UnitResult{Outcome: storage.Conflict}
			}
			return storage.UnitResult{Outcome: storage.Duplicate, Entries: stored.entries}
		}
	}
	for i := range u.Entries {
		ev := &u.Entries[i].Event
		stored, ok := r.known.events[key(ev.Tenant, ev.EventID)]
		switch {
		case !ok:
		case stored.hash != ev.DedupeHash:
			return storage.UnitResult{Outcome: storage.Conflict}
		case u.Receipt == nil:
			return storage.UnitResult{Outcome: storage.Duplicate, Entries: []storage.EntryResult{stored.EntryResult}}
		}
	}
	return storage.UnitResult{}
}

// insert takes a unit that is new; its events may be there already if it has a
// receipt.
func (r *recorder) insert(i int) error {
	u, out := &r.req.Units[i], &r.res.Units[i]
	out.Outcome = storage.Inserted
	for j := range u.Entries {
		e := &u.Entries[j]
		ev := e.Event
		if stored, ok := r.known.events[key(ev.Tenant, ev.EventID)]; ok {
			out.Entries = append(out.Entries, stored.EntryResult)
			continue
		}
		ev.Effect = ev.Quantity
		out.Entries = append(out.Entries, r.event(ev, e.Signed, e.Items))
		r.count(e.Counted, &ev)
	}
	if u.Receipt == nil {
		return nil
	}
	rc := u.Receipt
	features, err := json.Marshal(rc.Features)
	if err != nil {
		return err
	}
	entries, err := json.Marshal(out.Entries)
	if err != nil {
		return err
	}
	r.exec(1, insertReceipt, key(rc.Tenant, rc.ReceiptID), rc.Tenant, rc.ReceiptID, rc.Source, rc.ID, rc.Type, rc.OccurredAt, rc.DedupeHash,
		json.RawMessage(features), json.RawMessage(entries), rc.Body, r.now)
	return r.room()
}

// event takes an event that is new, and what it moves.
func (r *recorder) event(ev storage.Event, signed bool, items []storage.NewItem) storage.EntryResult {
	r.state.lastEvent++
	r.moved = true
	ev.Seq, ev.RecordedAt = r.state.lastEvent, r.now
	r.events = append(r.events, ev)
	done := storage.EntryResult{EventID: ev.EventID, Feature: ev.Feature, Seq: ev.Seq}
	r.known.events[key(ev.Tenant, ev.EventID)] = knownEvent{done, ev.DedupeHash}
	k := totalKey{ev.Tenant, ev.Feature, ev.PeriodStart.UnixMicro()}
	d := r.totals[k]
	if d == nil {
		d = &totalDelta{}
		r.totals[k] = d
	}
	d.end, d.signed, d.quantity = ev.PeriodEnd, signed, d.quantity.Add(ev.Effect)
	d.events++
	switch {
	case ev.Kind == storage.Usage:
		d.net++
	case ev.Reverses:
		d.net--
	}
	for i := range items {
		r.items = append(r.items, newItem{NewItem: &items[i], event: ev.Seq, feature: ev.Feature, at: ev.OccurredAt, value: ev.Effect})
	}
	return done
}

// count adds what an event of a counted period adds to its counter (Q21).
func (r *recorder) count(counted bool, ev *storage.Event) {
	if !counted {
		return
	}
	k := totalKey{ev.Tenant, ev.Feature, ev.PeriodStart.UnixMicro()}
	c := r.counted[k]
	c.CounterKey = storage.CounterKey{Tenant: ev.Tenant, Feature: ev.Feature, PeriodStart: ev.PeriodStart}
	c.PeriodEnd, c.Value = ev.PeriodEnd, c.Value.Add(ev.Effect)
	r.counted[k] = c
}

const (
	// A total is there before it is moved: the check of a row that an upsert
	// proposes would see a negative step alone. Text is cast: MySQL adds it as
	// a binary fraction otherwise.
	insertTotal = "INSERT INTO fencepost_totals (tenant, feature, period_start, period_end, quantity, events, net, signed_usage) " +
		"VALUES (?, ?, ?, ?, 0, 0, 0, ?) ON DUPLICATE KEY UPDATE signed_usage = VALUES(signed_usage)"
	moveTotal = "UPDATE fencepost_totals SET quantity = quantity + CAST(? AS DECIMAL(50, 12)), events = events + ?, net = net + ? " +
		"WHERE tenant = ? AND feature = ? AND period_start = ?"
)

// finish keeps what the events are and move: rows in the order of their keys.
func (r *recorder) finish() error {
	if err := r.insertAll(r.events); err != nil {
		return err
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.totals), totalKey.compare) {
		d, start := r.totals[k], time.UnixMicro(k.start)
		r.exec(anyRows, insertTotal, k.tenant, k.feature, start, d.end, d.signed)
		r.exec(1, moveTotal, d.quantity, d.events, d.net, k.tenant, k.feature, start)
		if err := r.room(); err != nil {
			return err
		}
	}
	if err := r.putCounters(slices.Collect(maps.Values(r.counted)), toAdd); err != nil {
		return err
	}
	return r.insertItems()
}

var errItemsMoved = errors.New("an item that another depends on moved")

// newItem is an item to insert, and what it reports.
type newItem struct {
	*storage.NewItem
	event   int64 // seq; zero: none
	feature string
	at      time.Time
	value   decimal.Decimal
}

// insertItems inserts the items of what is new.
func (r *recorder) insertItems() error {
	slices.SortStableFunc(r.items, func(a, b newItem) int {
		return cmp.Or(cmp.Compare(a.event, b.event), bytes.Compare(a.Digest[:], b.Digest[:]))
	})
	if r.known.moved(r.items) {
		return errItemsMoved
	}
	for i := range r.items {
		id, superseded := r.insertItem(&r.known, &r.items[i])
		if id == 0 && superseded {
			r.res.Superseded++
		}
		if err := r.room(); err != nil {
			return err
		}
	}
	return nil
}

// moved reports whether an item that one of these depends on is not as they say.
func (n *known) moved(items []newItem) bool {
	for i := range items {
		d := items[i].DependsOn
		if d == nil {
			continue
		}
		of, ok := n.depends[d.ItemID]
		if !ok || of.State != d.State || of.Settled != d.Settled || of.Superseded != d.Superseded {
			return true
		}
	}
	return false
}
