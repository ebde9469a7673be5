package buffer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// batchCounters is how many counters one batch holds.
const batchCounters = 1000

// Flush writes what was counted before the call. When it fails, what could not be
// written stays in memory; a batch whose fate is unknown keeps its id and is
// written again by the next call. One call flushes at a time; another waits.
func (c *Counters) Flush(ctx context.Context) error {
	if err := c.takeTurn(ctx); err != nil {
		return err
	}
	defer func() { c.flushing <- struct{}{} }()
	begun := c.cfg.Now()
	// While the store does not answer, new usage stays in its cells: batches
	// do not pile up.
	err := c.send(ctx)
	if err == nil || errors.Is(err, errRefused) || c.isStopped() {
		c.collect()
	}
	if err != nil && !errors.Is(err, errRefused) {
		return err
	}
	if err := c.send(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 && begun.After(c.flushed) {
		c.flushed = begun
	}
	return nil
}

// takeTurn waits until no other call flushes. A turn that is free is taken even
// if ctx is done: there may be nothing to write.
func (c *Counters) takeTurn(ctx context.Context) error {
	select {
	case <-c.flushing:
		return nil
	default:
	}
	select {
	case <-c.flushing:
		return nil
	case <-ctx.Done():
		return sdk.Unavailable("canceled", ctx.Err())
	}
}

// send writes the pending batches. It ends at one whose outcome is unknown. One
// that the store refuses is taken apart until what is refused is of one name,
// unless an earlier attempt may have been applied. What is refused stays, and
// nothing more of its names is collected until it is taken.
func (c *Counters) send(ctx context.Context) error {
	var refused error
	queue := slices.Clone(c.pending) // only the holder of the token changes it
	for len(queue) > 0 {
		b := queue[0]
		queue = queue[1:]
		if c.outdated(b.ID) {
			c.cfg.Logger.ErrorContext(ctx, "a batch may be written or not, and is not tried again", "batch", b.ID)
			c.name(ctx, b, 0)
			c.replace(b.ID)
			c.mu.Lock()
			c.unknown = append(c.unknown, b)
			c.mu.Unlock()
			continue
		}
		start := c.cfg.Now()
		err := c.write(ctx, b)
		switch {
		case err == nil:
			c.replace(b.ID)
			c.refresh(ctx, b)
		case errors.Is(err, sdk.ErrUnavailable):
			c.doubt(b.ID, start)
			return errors.Join(err, refused)
		default:
			// A refusal means that this attempt wrote nothing, so the parts
			// may have ids of their own, unless an earlier attempt may have
			// been applied: only the batch's own id can tell then.
			if parts := c.split(b); len(parts) > 1 && !c.doubted(b.ID) {
				c.replace(b.ID, parts...)
				queue = append(parts, queue...)
				continue
			}
			c.refuse(b)
			k := b.Counters[0]
			c.cfg.Logger.ErrorContext(ctx, "the store refused counted usage; it stays in memory", "batch", b.ID,
				"counters", len(b.Counters), "tenant", k.Tenant, "feature", k.Feature, "error", err)
			refused = fmt.Errorf("%w: %w", errRefused, err)
		}
	}
	return refused
}

// split halves a batch between two names.
func (c *Counters) split(b storage.FlushBatch) []storage.FlushBatch {
	nameOf := func(k storage.Counter) name { return name{k.Tenant, k.Feature} }
	at := len(b.Counters) / 2
	for at < len(b.Counters) && at > 0 && nameOf(b.Counters[at]) == nameOf(b.Counters[at-1]) {
		at++
	}
	if at == len(b.Counters) {
		for at = len(b.Counters) - 1; at > 0 && nameOf(b.Counters[at]) == nameOf(b.Counters[at-1]); {
			at--
		}
	}
	if at == 0 {
		return []storage.FlushBatch{b}
	}
	first := map[name]bool{}
	for _, k := range b.Counters[:at] {
		first[nameOf(k)] = true
	}
	parts := []storage.FlushBatch{
		{ID: c.cfg.NewID(), Owner: b.Owner, Counters: b.Counters[:at:at]},
		{ID: c.cfg.NewID(), Owner: b.Owner, Counters: b.Counters[at:]},
	}
	for _, h := range b.History {
		part := &parts[1]
		if first[name{h.Tenant, h.Feature}] {
			part = &parts[0]
		}
		part.History = append(part.History, h)
	}
	return parts
}

// write writes one batch. Its error is tagged; a panic of a store that is linked
// into this program leaves the outcome unknown like any other silence.
func (c *Counters) write(ctx context.Context, b storage.FlushBatch) (err error) {
	start := c.cfg.Now()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	defer func() {
		if recover() != nil {
			c.cfg.Logger.ErrorContext(ctx, "writing counters panicked", "stack", string(debug.Stack()))
			err = sdk.Unavailable("panic", errors.New("writing counters panicked"))
		}
	}()
	if err := fault.Point(ctx, "f1"); err != nil {
		return sdk.Unavailable("fault", err)
	}
	if _, err = c.cfg.Store.FlushBatch(ctx, b); err == nil {
		err = fault.Point(ctx, "f2")
	}
	if c.cfg.Took != nil {
		c.cfg.Took(c.cfg.Now().Sub(start))
	}
	if err != nil && sdk.TagOf(err) == sdk.TagUnavailable {
		err = sdk.Unavailable("storage", err) // also where nobody classified it
	}
	if err != nil {
		return fmt.Errorf("flush counters: %w", err)
	}
	return nil
}

// refuse counts what a batch holds that the store refused: it is kept until it is
// taken, and takes the room of counters.
func (c *Counters) refuse(b storage.FlushBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.refusals[b.ID]; !ok {
		c.refusals[b.ID] = int64(len(b.Counters))
		c.refused.Add(int64(len(b.Counters)))
	}
}

// doubt notes the first attempt to write a batch that may have been applied.
func (c *Counters) doubt(id string, start time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.doubts[id]; !ok {
		c.doubts[id] = start
	}
}

func (c *Counters) doubted(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.doubts[id]
	return ok
}

// outdated reports whether a batch may have been applied so long ago that a store
// no longer knows. Now and the monotonic clock may disagree after a sleep or a
// step of the clock; the longer time counts.
func (c *Counters) outdated(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	first, ok := c.doubts[id]
	return ok && max(now.Sub(first), now.Round(0).Sub(first.Round(0))) >= believable
}

// replace puts parts, or nothing, in the place of a pending batch.
func (c *Counters) replace(id string, parts ...storage.FlushBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.doubts, id)
	c.refused.Add(-c.refusals[id])
	delete(c.refusals, id)
	kept := make([]storage.FlushBatch, 0, len(c.pending)+len(parts))
	for _, b := range c.pending {
		if b.ID == id {
			kept = append(kept, parts...)
		} else {
			kept = append(kept, b)
		}
	}
	c.pending = kept
}

// stuck are the names of which a refused batch is kept. It is asked when nothing
// but refused batches is pending.
func (c *Counters) stuck() map[name]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[name]bool{}
	for _, b := range c.pending {
		for _, k := range b.Counters {
			out[name{k.Tenant, k.Feature}] = true
		}
	}
	return out
}

// refresh looks whether the subscriptions of a batch's tenants have changed.
// Another host may have changed them; nothing else tells.
func (c *Counters) refresh(ctx context.Context, b storage.FlushBatch) {
	if c.isStopped() {
		return
	}
	var tenants []string
	seen := map[string]bool{}
	for _, k := range b.Counters {
		if !seen[k.Tenant] {
			seen[k.Tenant] = true
			tenants = append(tenants, k.Tenant)
		}
	}
	revisions, err := c.cfg.Revisions(ctx, tenants)
	if err != nil {
		c.cfg.Logger.WarnContext(ctx, "subscriptions of counters were not read", "error", err)
		return
	}
	for _, k := range b.Counters {
		if v, ok := c.entries.Load(name{k.Tenant, k.Feature}); ok {
			v.(*entry).expire(revisions[k.Tenant]) //nolint:errcheck // the only type that is stored
		}
	}
}

func (c *Counters) isStopped() bool {
	c.gate.RLock()
	defer c.gate.RUnlock()
	return c.stopped
}

// collect moves what the cells hold into batches. Cells whose step has passed
// end here, and entries that hold nothing and count nothing now.
func (c *Counters) collect() {
	now, stopped, stuck := c.cfg.Now().UnixNano(), c.isStopped(), c.stuck()
	var batch storage.FlushBatch
	var batches []storage.FlushBatch
	c.entries.Range(func(k, v any) bool {
		n, e := k.(name), v.(*entry) //nolint:errcheck // the only types that are stored
		if stuck[n] && !stopped {
			return true
		}
		counters, history, ended, empty := e.collect(now, stopped)
		c.cells.Add(-int64(ended))
		if empty {
			c.entries.CompareAndDelete(n, e)
		}
		batch.Counters = append(batch.Counters, counters...)
		batch.History = append(batch.History, history...)
		if len(batch.Counters) >= batchCounters {
			batches, batch = append(batches, batch), storage.FlushBatch{}
		}
		return true
	})
	if len(batch.Counters) > 0 {
		batches = append(batches, batch)
	}
	for i := range batches {
		batches[i].ID, batches[i].Owner = c.cfg.NewID(), c.cfg.Owner
	}
	c.mu.Lock()
	c.pending = append(c.pending, batches...)
	c.mu.Unlock()
}

// all are the cells of an entry. The caller holds the lock.
func (e *entry) all() []*cell {
	if c := e.current.Load(); c != nil {
		return append(slices.Clip(e.earlier), c)
	}
	return e.earlier
}

// collect empties the cells of an entry and says how many of them ended, and
// whether the entry is removed.
func (e *entry) collect(now int64, stopped bool) (counters []storage.Counter, history []storage.HistoryPoint, ended int, empty bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	current := e.current.Load()
	for _, c := range e.all() {
		kill := c != current || stopped || now >= c.until
		sum := c.take(kill)
		if kill {
			ended++
		}
		if sum.IsZero() {
			continue
		}
		counters = addCounter(counters, storage.Counter{CounterKey: c.key, PeriodEnd: c.end, Value: sum})
		history = addHistory(history, storage.HistoryPoint{
			HistoryKey: storage.HistoryKey{Tenant: c.key.Tenant, Feature: c.key.Feature, Start: c.step}, Value: sum,
		})
	}
	e.earlier = nil
	if current != nil && (stopped || now >= current.until) {
		e.current.Store(nil)
		current = nil
	}
	e.removed = current == nil
	return counters, history, ended, e.removed
}

// addCounter adds a counter to those of one name, of which there are few.
func addCounter(list []storage.Counter, k storage.Counter) []storage.Counter {
	for i := range list {
		if list[i].PeriodStart.Equal(k.PeriodStart) {
			list[i].Value = list[i].Value.Add(k.Value)
			return list
		}
	}
	return append(list, k)
}

func addHistory(list []storage.HistoryPoint, p storage.HistoryPoint) []storage.HistoryPoint {
	for i := range list {
		if list[i].Start.Equal(p.Start) {
			list[i].Value = list[i].Value.Add(p.Value)
			return list
		}
	}
	return append(list, p)
}
