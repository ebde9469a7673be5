package mysql

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	selectActions = "SELECT action, at, item, kind, actor, reason, evidence_kind, evidence, from_state, to_state, detail FROM fencepost_actions WHERE "
	insertAction  = "INSERT INTO fencepost_actions (at, item, kind, actor, reason, evidence_kind, evidence, from_state, to_state, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

func checkAction(a *storage.Action) error {
	kinds := []storage.ActionKind{
		storage.ActionResolve, storage.ActionRequeue, storage.ActionSupersede, storage.ActionAbandon, storage.ActionEvidence,
		storage.ActionConfirm, storage.ActionRestore, storage.ActionAdopt, storage.ActionBackfill, storage.ActionRoute,
	}
	if n, m := utf8.RuneCountInString(a.Actor), utf8.RuneCountInString(a.Reason); n < 1 || n > 200 || m < 1 || m > 1000 || !slices.Contains(kinds, a.Kind) {
		return sdk.Invalid("action", "a kind, an actor of at most 200 characters and a reason of at most 1000")
	}
	return nil
}

func (r *row) action() storage.Action {
	return storage.Action{
		ID: r.int(), At: r.time(), ItemID: r.int(), Kind: storage.ActionKind(r.text()), Actor: r.text(), Reason: r.text(),
		EvidenceKind: r.text(), Evidence: r.text(), From: storage.ItemState(r.text()), To: storage.ItemState(r.text()), Detail: r.json(),
	}
}

// act appends an action; item, if not zero, is the one that it is about.
func (t *tx) act(a *storage.Action, item int64) {
	if item == 0 {
		item = a.ItemID
	}
	t.exec(1, insertAction, t.now, item, string(a.Kind), a.Actor, a.Reason, a.EvidenceKind, a.Evidence, string(a.From), string(a.To), a.Detail)
}

// ListActions implements [storage.SettlementStore].
func (a *Adapter) ListActions(ctx context.Context, q storage.ActionQuery) (storage.ActionPage, error) {
	page := storage.ActionPage{Actions: []storage.Action{}, Next: q.After}
	if q.Limit < 1 || q.Limit > 1000 {
		return page, sdk.Invalid("limit", "1 to 1000")
	}
	w := where("action > ?", q.After)
	w.and(q.ItemID != 0, "item = ?", q.ItemID)
	w.and(q.Kind != "", "kind = ?", string(q.Kind))
	err := a.read(ctx, "list actions", func(r []result) error {
		return r[0].each(func(r *row) {
			if len(page.Actions) == q.Limit {
				page.More = true
				return
			}
			x := r.action()
			page.Actions, page.Next = append(page.Actions, x), x.ID
		})
	}, read(selectActions+w.text+" ORDER BY action LIMIT ?", append(w.args, q.Limit+1)...))
	if err != nil {
		return storage.ActionPage{}, err
	}
	return page, nil
}
