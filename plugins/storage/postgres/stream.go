package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qEventsAfter query = "events_after"
	qLastSeq     query = "last_seq"
	qRecording   query = "recording"
)

// horizon is the highest seq below which nothing can appear any more.
//
// A seq is drawn before its transaction commits, so a lower one may show later
// than a higher one. Whoever draws one holds the shared side of the route lock
// until the commit is visible. So: read the last seq that is committed, then
// who holds the lock; once none of those holds it, everything up to that seq is
// settled.
//
// It is the last one committed and not the last one drawn: of what was drawn and
// given up nothing need be in the log, and a server that comes back after a
// crash may draw it again. A seq that was seen committed is in the log, with the
// sequence behind it.
type horizon struct {
	mu      sync.Mutex
	settled int64
	// moment counts the beginnings and the ends of samples.
	moment int64
	// pending is a sample that waits for its holders to end.
	pending *sample
}

// sample is a last seq, and the transactions that may still owe one below it.
type sample struct {
	seq     int64
	holders []string
	// begun and known are the moments before it was asked for and after it was
	// answered.
	begun, known int64
	// settled is the horizon before it was asked for.
	settled int64
}

// begin answers a sample that is about to be taken.
func (h *horizon) begin() sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moment++
	return sample{begun: h.moment, settled: h.settled}
}

// observe takes a sample and answers up to where the events that were read
// after it are complete. Samples of calls at once arrive in any order:
//
//   - Only a sample that began after the pending one was known says who is left
//     of its holders. An earlier one does not name those who came between.
//   - What others have found settled since this one began may have been in
//     flight when its events were read.
func (h *horizon) observe(now sample) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	limit := now.settled
	if len(now.holders) == 0 {
		limit = max(limit, now.seq)
	}
	overtaken, waiting := false, false
	if p := h.pending; p != nil {
		overtaken = now.begun < p.known
		waiting = slices.ContainsFunc(p.holders, func(x string) bool { return slices.Contains(now.holders, x) })
		if !overtaken && !waiting {
			limit, h.pending = max(limit, p.seq), nil
		}
	}
	if !overtaken && !waiting && len(now.holders) > 0 {
		h.moment++
		now.known = h.moment
		h.pending = &now
	}
	h.settled = max(h.settled, limit)
	return limit
}

// streamPatience is how long a call waits for transactions in flight when they
// stand before the first event that it could answer. They are short; behind a
// long one of an embedder the stream ends until it commits.
const streamPatience = 100 * time.Millisecond

// StreamEvents returns events in insertion order after a cursor. It ends below
// the oldest record in flight, so that no event is passed over which commits
// later with a lower seq: nothing is left out, and what was recorded is at most
// as late as the transactions beside it (I13).
func (a *Adapter) StreamEvents(ctx context.Context, q storage.StreamQuery) (page storage.EventPage, err error) {
	const op = "stream events"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	patience := time.NewTimer(streamPatience)
	defer patience.Stop()
	for wait := time.Millisecond; ; wait *= 2 {
		behind := false
		err := a.run.read(ctx, op, func(ctx context.Context, t *tx) (err error) {
			page, behind, err = a.streamPage(ctx, t, q)
			return err
		})
		if err != nil {
			return storage.EventPage{}, err
		}
		if !behind || len(page.Events) > 0 {
			return page, nil
		}
		select {
		case <-patience.C:
			return page, nil
		case <-ctx.Done():
			return storage.EventPage{}, storeError(ctx, op, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// streamPage reads a page up to the horizon; behind says that there were events
// beyond it.
func (a *Adapter) streamPage(ctx context.Context, t *tx, q storage.StreamQuery) (page storage.EventPage, behind bool, err error) {
	b := &pgx.Batch{}
	now := a.settled.begin()
	page = storage.EventPage{Events: []storage.Event{}, Next: q.After}
	for _, s := range []struct {
		q    query
		args []any
		read func(pgx.Rows) error
	}{
		{qStatementTimeout, []any{statementTimeout(ctx)}, nil},
		{qLastSeq, nil, func(rows pgx.Rows) error { return rows.Scan(&now.seq) }},
		{qRecording, []any{int64(lockClassRoutes), int64(uint32(a.target.scope()))}, func(rows pgx.Rows) error {
			var holder string
			err := rows.Scan(&holder)
			now.holders = append(now.holders, holder)
			return err
		}},
		{qEventsAfter, []any{q.After, q.Limit + 1, q.Tenant, q.Feature}, func(rows pgx.Rows) error {
			ev, err := scanEvent(rows)
			page.Events = append(page.Events, ev)
			return err
		}},
	} {
		text, err := t.a.texts.text(s.q)
		if err != nil {
			return page, false, err
		}
		queued := b.Queue(text, s.args...)
		if s.read != nil {
			queued.Query(func(rows pgx.Rows) error {
				for rows.Next() {
					if err := s.read(rows); err != nil {
						return err
					}
				}
				return rows.Err()
			})
		}
	}
	// Each statement has a snapshot of its own, in this order: what is settled
	// by the time the holders were read is visible to the last one.
	if err := t.q.SendBatch(ctx, b).Close(); err != nil {
		return page, false, err
	}
	limit := a.settled.observe(now)
	if n := slices.IndexFunc(page.Events, func(e storage.Event) bool { return e.Seq > limit }); n >= 0 {
		behind = true
		page.Events = page.Events[:n]
	}
	if page.More = len(page.Events) > q.Limit; page.More {
		page.Events = page.Events[:q.Limit]
	}
	if n := len(page.Events); n > 0 {
		page.Next = page.Events[n-1].Seq
	}
	if !page.More && (q.Tenant != "" || q.Feature != "") {
		// What was scanned and did not match is not scanned again.
		page.Next = max(page.Next, limit)
	}
	return page, behind, nil
}
