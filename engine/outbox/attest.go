package outbox

import (
	"encoding/json"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Attested reports whether evidence of the provider is stored already.
func Attested(d storage.ItemDetail, e Evidence) bool {
	return e.Kind == EvidenceProvider && slices.ContainsFunc(d.Actions, func(a storage.Action) bool {
		return a.Kind == storage.ActionEvidence && a.EvidenceKind == e.Kind && a.Evidence == e.Text && found(a) == e.Finding
	})
}

// Attest stores evidence beside an item. It never changes the state. Evidence
// that contradicts the state opens the item again; evidence against what was, or
// may still be, accepted is shown as disputed, and evidence for it withdraws
// that. // O12, Q18.
func Attest(item storage.Item, e Evidence, s Standing, a Act) (storage.Transition, error) {
	if err := a.Check(); err != nil {
		return storage.Transition{}, err
	}
	if err := e.Check(s.Admissible); err != nil {
		return storage.Transition{}, err
	}
	t := storage.Transition{ItemID: item.ItemID, Expect: storage.Expect{State: item.State}, Set: storage.Change{State: item.State}}
	settled := true
	against := e.Finding == FoundRefused
	final := item.State == storage.Rejected || item.State == storage.Quarantined
	switch {
	case against && !final:
		text := disputeText(e)
		t.Set.Disputed = &text
		if Charged(item.State) {
			t.Set.Settled = new(bool)
		}
		if item.Identity.SubjectKind == storage.SubjectEvent {
			t.Waiting = &storage.Change{State: storage.Pending, Disputed: &text}
			t.Dependents = &storage.Change{Disputed: &text, Settled: new(bool)}
		}
	case !against && item.Disputed != "":
		t.Set.Disputed = new(string)
		if Charged(item.State) {
			t.Set.Settled = &settled
		}
	case !against && (final || item.State == storage.Uncertain) && !Reason(item.QuarantineReason).BornSettled():
		t.Set.Settled = new(bool)
	}
	action := e.with(a.action(storage.ActionEvidence, item, item.State, e.note(nil)))
	t.Action = &action
	return t, nil
}

// Lifted are the changes of what depends on an item against which nothing is held
// any more: one loses a dispute that it has from there, and keeps, or gets back,
// what was said of itself. None where all is as it should be.
func Lifted(original storage.ItemDetail, dependents []storage.ItemDetail) []storage.Transition {
	if original.Item.Disputed != "" {
		return nil
	}
	inherited := map[string]bool{"": true}
	for _, a := range original.Actions {
		inherited[disputeOf(a)] = true
	}
	var moves []storage.Transition
	for _, d := range dependents {
		i, own := d.Item, ownDispute(d)
		if i.SupersededBy != 0 || i.Disputed == own || !inherited[i.Disputed] {
			continue
		}
		token := i.LeaseToken
		t := storage.Transition{
			ItemID: i.ItemID, Expect: storage.Expect{State: i.State, LeaseToken: &token},
			Set: storage.Change{State: i.State, Disputed: &own},
		}
		if Charged(i.State) {
			settled := own == ""
			t.Set.Settled = &settled
		}
		moves = append(moves, t)
	}
	return moves
}

// Freed are those of what depends on an item that were quarantined because it was
// disputed, and may be requeued now: it is not any more, and nothing is held
// against them. // Q18.
func Freed(original storage.ItemDetail, dependents []storage.ItemDetail) []int64 {
	if original.Item.Disputed != "" {
		return nil
	}
	var ids []int64
	for _, d := range dependents {
		i := d.Item
		if i.State == storage.Quarantined && Reason(i.QuarantineReason) == ReasonOriginalDisputed && i.Disputed == "" && i.SupersededBy == 0 && i.SettledAt.IsZero() {
			ids = append(ids, i.ItemID)
		}
	}
	return ids
}

// ownDispute is what evidence about the item itself disputes, the latest counts;
// empty: nothing.
func ownDispute(d storage.ItemDetail) (text string) {
	for _, a := range d.Actions {
		switch dispute := disputeOf(a); {
		case dispute != "":
			text = dispute
		case a.Kind == storage.ActionEvidence && found(a) == FoundTaken:
			text = ""
		}
	}
	return text
}

// disputeOf is what an action disputes its item with; empty: nothing. Evidence
// that came while the item was refused or quarantined disputes nothing.
func disputeOf(a storage.Action) string {
	final := a.From == storage.Rejected || a.From == storage.Quarantined
	if a.Kind != storage.ActionEvidence || final || found(a) != FoundRefused {
		return ""
	}
	var detail struct {
		Source string `json:"source"`
	}
	if json.Unmarshal(a.Detail, &detail) != nil {
		return ""
	}
	return disputeText(Evidence{Source: detail.Source, Text: a.Evidence})
}
