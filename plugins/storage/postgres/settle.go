package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qEventsOf       query = "events_of"
	qRestorable     query = "restorable"
	qRestore        query = "restore"
	qRestoresRaise  query = "restores_raise"
	routesMovedCode       = "routes_moved"
)

var _ storage.SettlementStore = (*Adapter)(nil)

// Enqueue inserts items of what is recorded already; see
// [storage.SettlementStore].
func (a *Adapter) Enqueue(ctx context.Context, req storage.EnqueueRequest) (ids []int64, err error) {
	const op = "enqueue items"
	if req.Action != nil {
		if err := checkAction(*req.Action); err != nil {
			return nil, storeError(ctx, op, err)
		}
	}
	err = a.run.write(ctx, op, writing{lock: lockShared}, func(ctx context.Context, t *tx) (err error) {
		ids, err = enqueue(ctx, t, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func enqueue(ctx context.Context, t *tx, req storage.EnqueueRequest) ([]int64, error) {
	if err := routesMoved(ctx, t, req.RoutesRevision); err != nil {
		return nil, err
	}
	items, err := placed(ctx, t, req.Items)
	if err != nil {
		return nil, err
	}
	same, err := dependencies(ctx, t, req.Items)
	if err == nil && !same {
		err = itemsMoved()
	}
	if err != nil {
		return nil, err
	}
	done, err := insertItems(ctx, t, items)
	if err != nil {
		return nil, err
	}
	if done.ids == nil {
		done.ids = []int64{}
	}
	if req.Action != nil && slices.ContainsFunc(done.ids, func(id int64) bool { return id != 0 }) {
		err = t.appendActions(ctx, []storage.Action{*req.Action})
	}
	return done.ids, err
}

// routesMoved refuses items that were computed from other routes than these.
func routesMoved(ctx context.Context, t *tx, revision int64) error {
	moved := false
	err := t.row(ctx, qCorrectBegin, []any{&moved}, revision)
	if err == nil && moved {
		err = routeConflict(routesMovedCode, "the revision of the routes as they are")
	}
	return err
}

// placed finds what items report: the event, or the feature of a window.
func placed(ctx context.Context, t *tx, list []storage.NewItem) ([]itemOf, error) {
	items := make([]itemOf, len(list))
	var tenants, refs []string
	var at []int
	for i := range list {
		n := &list[i]
		items[i].new = n
		if n.Identity.SubjectKind == storage.SubjectWindow {
			if items[i].feature = windowOf(n.Payload).Feature; items[i].feature == "" {
				return nil, sdk.Invalid("payload.feature", "required").At(i)
			}
			continue
		}
		tenants, refs, at = append(tenants, n.Identity.Tenant), append(refs, n.Identity.SubjectRef), append(at, i)
	}
	if len(at) == 0 {
		return items, nil
	}
	row := 0
	err := t.each(ctx, qEventsOf, func(rows pgx.Rows) error {
		it := &items[at[row]]
		row++
		if err := rows.Scan(intInto(&it.seq), textInto(&it.feature)); err != nil {
			return err
		}
		if it.seq == 0 {
			return notFound("an event")
		}
		return nil
	}, tenants, refs)
	return items, err
}

// MarkRestored makes uncertain what may have been sent in a time that the store
// does not remember; see [storage.RestoreRequest]. What it says of the store
// moves in the transaction that leaves nothing to mark: one that fails must not
// let a host believe that the store is ahead.
func (a *Adapter) MarkRestored(ctx context.Context, req storage.RestoreRequest) (moved int64, err error) {
	const op = "mark as restored"
	switch {
	case req.Limit < 1 || req.Limit > maxPrune:
		err = sdk.Invalid("limit", "1 to 10,000")
	case req.Since.IsZero():
		err = sdk.Invalid("since", "required")
	default:
		err = checkAction(req.Action)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	if req.DryRun {
		err = a.run.read(ctx, op, func(ctx context.Context, t *tx) error {
			return t.row(ctx, qRestorable, []any{&moved}, req.Before)
		})
		return moved, err
	}
	var through time.Time
	if req.Action.Kind == storage.ActionRestore {
		through = req.Before
	}
	err = a.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) error {
		if err := t.row(ctx, qRestore, []any{&moved}, req.Before, req.Since, req.Limit); err != nil {
			return err
		}
		var left int64
		if err := t.row(ctx, qRestorable, []any{&left}, req.Before); err != nil || left > 0 {
			return err
		}
		if n, err := t.exec(ctx, qRestoresRaise, req.Claims, optTime(through)); err != nil || n != 1 {
			return oneRow(err)
		}
		return t.appendActions(ctx, []storage.Action{req.Action})
	})
	if err != nil {
		return 0, err
	}
	return moved, nil
}

// oneRow is the error of a statement that did not change the one row that is
// there.
func oneRow(err error) error {
	if err == nil {
		err = errGone
	}
	return err
}
