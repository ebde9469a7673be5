package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// The longest actor and reason, in characters.
const (
	maxActor  = 200
	maxReason = 1000
)

var actionKinds = [...]storage.ActionKind{
	storage.ActionResolve, storage.ActionRequeue, storage.ActionSupersede, storage.ActionAbandon, storage.ActionEvidence,
	storage.ActionConfirm, storage.ActionRestore, storage.ActionAdopt, storage.ActionBackfill, storage.ActionRoute,
}

// checkAction refuses what the log does not take; nil when it does.
func checkAction(a *storage.Action) *sdk.Error {
	switch {
	case !slices.Contains(actionKinds[:], a.Kind):
		return sdk.Invalid("action.kind", "one of the closed list")
	case a.Actor == "" || utf8.RuneCountInString(a.Actor) > maxActor:
		return sdk.Invalid("action.actor", "1 to 200 characters")
	case a.Reason == "" || utf8.RuneCountInString(a.Reason) > maxReason:
		return sdk.Invalid("action.reason", "1 to 1000 characters")
	}
	return nil
}

// appendAction writes one line of the log, dated by the store.
func appendAction(c *conn, a *storage.Action, now time.Time) error {
	_, err := c.bind(qActionInsert).time(now).optInt(a.ItemID).text(string(a.Kind)).text(a.Actor).text(a.Reason).
		text(a.EvidenceKind).text(a.Evidence).text(string(a.From)).text(string(a.To)).json(a.Detail).run()
	return err
}

// ListActions returns what people and reconcilers did, in order.
func (a *Adapter) ListActions(ctx context.Context, q storage.ActionQuery) (page storage.ActionPage, err error) {
	const op = "list actions"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	err = a.read(ctx, op, func(c *conn) (err error) {
		page, err = listActions(c, q)
		return err
	})
	return page, err
}

func listActions(c *conn, q storage.ActionQuery) (storage.ActionPage, error) {
	page := storage.ActionPage{Actions: []storage.Action{}, Next: q.After}
	statement := qActions
	if q.ItemID != 0 {
		statement = qActionsOfItem
	}
	b := c.bind(statement).int(q.After).int(int64(q.Limit) + 1).optText(string(q.Kind))
	if q.ItemID != 0 {
		b.int(q.ItemID)
	}
	err := b.each(func(r *row) error {
		page.Actions = append(page.Actions, storage.Action{
			ID: r.int(), At: r.time(), ItemID: r.int(), Kind: storage.ActionKind(r.text()), Actor: r.text(), Reason: r.text(),
			EvidenceKind: r.text(), Evidence: r.text(), From: storage.ItemState(r.text()), To: storage.ItemState(r.text()),
			Detail: r.json(),
		})
		return nil
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
