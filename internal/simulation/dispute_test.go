package simulation

import (
	"fmt"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// maybeWithdrawn lets the provider refuse some time later what it took, as one
// does that answers first and validates then. // O12.
func (p *provider) maybeWithdrawn(id int64) {
	w := p.w
	if !w.has.disputes || w.store.row(id).Identity.SubjectKind != storage.SubjectEvent || w.draw(10) != 0 {
		return
	}
	w.after(w.between(time.Minute, 6*time.Hour), func() {
		for _, d := range w.store.dependents(id) {
			if p.booked[d.ItemID] > 0 {
				return // credited already
			}
		}
		r := w.store.row(id)
		if p.booked[id] == 0 || r.SupersededBy != 0 {
			return
		}
		p.booked[id]--
		p.facts[r.subject]--
		p.gone[id] = true
		w.count("withdrawn by the provider")
		w.note("item %d withdrawn by the provider", id)
		w.reported(id, 1)
		if w.draw(4) == 0 {
			w.reported(id, 2)
		}
	})
}

// reported is the message of the provider that says so, until it was stored.
func (w *world) reported(id int64, nth int) {
	w.after(w.between(time.Second, 30*time.Minute), func() {
		r := w.store.row(id)
		if r.lost || r.SupersededBy != 0 || w.over {
			return
		}
		says := outbox.Evidence{
			Kind: outbox.EvidenceProvider, Source: outbox.SourceErrorReport, Finding: outbox.FoundRefused, Text: fmt.Sprint("report ", nth),
		}
		t, err := outbox.Attest(r.Item, says, w.standing(), act())
		if err != nil {
			w.fail("evidence about item %d: %v", id, err)
			return
		}
		w.after(w.between(time.Millisecond, 10*time.Second), func() {
			if w.store.downUntil > w.since() || w.store.row(id) != r || w.store.apply([]storage.Transition{t})[0].Rows == 0 {
				w.count("evidence written again")
				w.reported(id, nth)
				return
			}
			w.told[id]++
			w.provider.toldAt[id] = w.since()
			w.count("evidence against an item: " + string(r.State))
			w.judge(r)
		})
	})
}

// judgeEvidence: what the provider said stays, and an acceptance that it withdrew
// is on the list that people see until one of them has settled it. // O12, Q25.
func (w *world) judgeEvidence(r *row) {
	stored, given := 0, false
	for _, a := range r.actions {
		if a.Kind == storage.ActionEvidence && a.EvidenceKind == outbox.EvidenceProvider && a.ItemID == r.ItemID {
			stored++
		}
		given = given || a.Kind == storage.ActionAbandon
	}
	switch {
	case r.SupersededBy != 0:
	case stored < w.told[r.ItemID]:
		w.fail("item %d has %d pieces of evidence of %d", r.ItemID, stored, w.told[r.ItemID])
	case w.told[r.ItemID] > 0 && r.State == storage.Accepted && (r.Disputed == "" || !r.SettledAt.IsZero() && !given):
		w.fail("item %d was withdrawn, and nobody sees it", r.ItemID)
	}
}
