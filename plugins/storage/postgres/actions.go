package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qActionsInsert query = "actions_insert"
	qActions       query = "actions"
)

// Bounds of what people write.
const (
	maxActor  = 200
	maxReason = 1000
)

var actionKinds = [...]storage.ActionKind{
	storage.ActionResolve, storage.ActionRequeue, storage.ActionSupersede, storage.ActionAbandon,
	storage.ActionEvidence, storage.ActionConfirm, storage.ActionRestore, storage.ActionAdopt,
	storage.ActionBackfill, storage.ActionRoute,
}

func checkAction(a storage.Action) error {
	switch actor, reason := utf8.RuneCountInString(a.Actor), utf8.RuneCountInString(a.Reason); {
	case !slices.Contains(actionKinds[:], a.Kind):
		return sdk.Invalid("action.kind", "a kind of action")
	case actor < 1 || actor > maxActor:
		return sdk.Invalid("action.actor", "1 to 200 characters")
	case reason < 1 || reason > maxReason:
		return sdk.Invalid("action.reason", "1 to 1000 characters")
	}
	return nil
}

// actionsOf are the actions of the transitions that changed a row.
func actionsOf(moves []storage.Transition, results []storage.TransitionResult) []storage.Action {
	var all []storage.Action
	for i := range moves {
		if a := moves[i].Action; a != nil && results[i].Rows == 1 {
			done := *a
			done.ItemID = moves[i].ItemID
			all = append(all, done)
		}
	}
	return all
}

// appendActions writes what was done, in order.
func (t *tx) appendActions(ctx context.Context, list []storage.Action) error {
	n := len(list)
	if n == 0 {
		return nil
	}
	items := make([]int64, n)
	var text [8][]string
	for c := range text {
		text[c] = make([]string, n)
	}
	for i, a := range list {
		items[i] = a.ItemID
		for c, s := range [...]string{
			string(a.Kind), a.Actor, a.Reason, a.EvidenceKind, a.Evidence, string(a.From), string(a.To), string(a.Detail),
		} {
			text[c][i] = clean(s)
		}
	}
	_, err := t.exec(ctx, qActionsInsert, items, text[0], text[1], text[2], text[3], text[4], text[5], text[6], text[7])
	return err
}

// ListActions returns what people and reconcilers did, in order.
func (a *Adapter) ListActions(ctx context.Context, q storage.ActionQuery) (page storage.ActionPage, err error) {
	const op = "list actions"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = a.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		page = storage.ActionPage{Next: q.After}
		page.Actions, err = actions(ctx, t, q, q.Limit+1)
		return err
	})
	if err != nil {
		return storage.ActionPage{}, err
	}
	if page.More = len(page.Actions) > q.Limit; page.More {
		page.Actions = page.Actions[:q.Limit]
	}
	if n := len(page.Actions); n > 0 {
		page.Next = page.Actions[n-1].ID
	}
	return page, nil
}

// actions reads actions in order, at most limit.
func actions(ctx context.Context, t *tx, q storage.ActionQuery, limit int) ([]storage.Action, error) {
	all := []storage.Action{}
	var item *int64
	if q.ItemID != 0 {
		item = &q.ItemID
	}
	err := t.each(ctx, qActions, func(rows pgx.Rows) error {
		var a storage.Action
		var detail *string
		err := rows.Scan(&a.ID, utcInto{&a.At}, intInto(&a.ItemID), textInto(&a.Kind), &a.Actor, &a.Reason,
			&a.EvidenceKind, &a.Evidence, textInto(&a.From), textInto(&a.To), &detail)
		if detail != nil {
			a.Detail = json.RawMessage(*detail)
		}
		all = append(all, a)
		return err
	}, q.After, limit, item, optText(string(q.Kind)))
	return all, err
}
