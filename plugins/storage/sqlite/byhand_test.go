package sqlite

import (
	"testing"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// byHand drives the statements of a record on a bare connection: no binder, no
// checks, no gauge, no contract. What is left of the adapter beside it is the
// price of the adapter.
type byHand struct {
	c                                                                             *sqlite.Conn
	begin, commit, event, state, item, total, seq, id, gen, rev, n, seqSet, idSet *sqlite.Stmt
}

func newByHand(b *testing.B, path string) *byHand {
	b.Helper()
	a := openAt(b, path, newClock())
	addRoute(b, a)
	w := <-a.writer
	b.Cleanup(func() { a.writer <- w })
	h := &byHand{c: w.Conn}
	for q, s := range map[query]**sqlite.Stmt{
		qBegin: &h.begin, qCommit: &h.commit, qEventInsert: &h.event, qStateInsert: &h.state,
		qItemInsert: &h.item, qTotalAdd: &h.total, qLastEvent: &h.seq, qLastItem: &h.id, qLastEventSet: &h.seqSet, qLastItemSet: &h.idSet, qGeneration: &h.gen,
		qRoutesRevision: &h.rev, qCountAdd: &h.n,
	} {
		text, err := q.text()
		if err != nil {
			b.Fatal(err)
		}
		*s = w.Prep(text)
	}
	return h
}

func (h *byHand) step(b *testing.B, s *sqlite.Stmt) {
	if _, err := s.Step(); err != nil {
		b.Fatal(err)
	}
	if err := s.Reset(); err != nil {
		b.Fatal(err)
	}
}

func (h *byHand) last(b *testing.B, s *sqlite.Stmt) int64 {
	if _, err := s.Step(); err != nil {
		b.Fatal(err)
	}
	n := s.ColumnInt64(0)
	if err := s.Reset(); err != nil {
		b.Fatal(err)
	}
	return n
}

func (h *byHand) batch(b *testing.B, units []storage.Unit) {
	now := time.Now().UnixMicro()
	h.step(b, h.begin)
	h.step(b, h.rev)
	seq, id := h.last(b, h.seq), h.last(b, h.id)
	totals := map[string]int64{}
	for i := range units {
		h.insertEvent(b, &units[i].Entries[0].Event, seq+int64(i)+1, now)
		totals[units[i].Entries[0].Event.Tenant] += 1234
	}
	h.step(b, h.gen)
	for tenant, n := range totals {
		e := &units[0].Entries[0].Event
		s := h.total
		s.BindInt64(1, 1)
		s.BindText(2, tenant)
		s.BindText(3, e.Feature)
		s.BindInt64(4, e.PeriodStart.UnixMicro())
		s.BindInt64(5, e.PeriodEnd.UnixMicro())
		s.BindText(6, "12340")
		s.BindInt64(7, n/1234)
		s.BindInt64(8, n/1234)
		s.BindInt64(9, 0)
		h.step(b, s)
	}
	h.seqSet.BindInt64(1, seq+int64(len(units)))
	h.step(b, h.seqSet)
	h.idSet.BindInt64(1, id+int64(len(units)))
	h.step(b, h.idSet)
	for i := range units {
		h.insertItem(b, &units[i].Entries[0].Items[0], id+int64(i)+1, seq+int64(i)+1, now)
	}
	h.n.BindInt64(1, 1)
	h.n.BindText(2, "pending")
	h.n.BindInt64(3, int64(len(units)))
	h.n.BindInt64(4, int64(len(units)))
	h.step(b, h.n)
	h.step(b, h.commit)
}

func (h *byHand) insertEvent(b *testing.B, e *storage.Event, seq, now int64) {
	s := h.event
	s.BindInt64(1, seq)
	s.BindText(2, e.Tenant)
	s.BindText(3, e.EventID)
	s.BindText(4, e.Feature)
	s.BindText(5, "1234")
	s.BindText(6, "usage")
	s.BindNull(7)
	s.BindInt64(8, e.OccurredAt.UnixMicro())
	s.BindInt64(9, e.PeriodStart.UnixMicro())
	s.BindInt64(10, e.PeriodEnd.UnixMicro())
	s.BindText(11, string(e.PeriodSource))
	s.BindNull(12)
	s.BindNull(13)
	s.BindText(14, `{"model":"m1"}`)
	s.BindNull(15)
	s.BindBytes(16, e.PayloadHash[:])
	s.BindBytes(17, e.DedupeHash[:])
	s.BindInt64(18, now)
	s.BindNull(19)
	h.step(b, s)
}

func (h *byHand) insertItem(b *testing.B, n *storage.NewItem, id, seq, now int64) {
	s := h.state
	s.BindInt64(1, id)
	s.BindInt64(2, n.RouteID)
	s.BindBytes(3, n.SubjectKey[:])
	s.BindText(4, n.SerialKey)
	s.BindText(5, "pending")
	s.BindInt64(6, int64(n.AttemptBudget))
	s.BindInt64(7, now)
	s.BindNull(8)
	s.BindNull(9)
	h.step(b, s)
	s = h.item
	s.BindInt64(1, id)
	s.BindText(2, n.Identity.Tenant)
	s.BindText(3, string(n.Identity.SubjectKind))
	s.BindText(4, n.Identity.SubjectRef)
	s.BindText(5, n.Identity.Exporter)
	s.BindText(6, n.Identity.Account)
	s.BindText(7, n.Identity.Mode)
	s.BindText(8, n.Identity.MappingVersion)
	s.BindBytes(9, n.Digest[:])
	s.BindInt64(10, n.RouteID)
	s.BindInt64(11, seq)
	s.BindText(12, "tokens")
	s.BindText(13, n.Customer)
	s.BindNull(14)
	s.BindInt64(15, now)
	s.BindNull(16)
	s.BindInt64(17, now)
	h.step(b, s)
}
