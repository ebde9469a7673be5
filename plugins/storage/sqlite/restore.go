package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// codeRestored is the last error of what may have been sent in a time that the
// store does not remember.
const codeRestored = "restored"

// MarkRestored makes uncertain what may have been sent; see
// [storage.RestoreRequest].
func (a *Adapter) MarkRestored(ctx context.Context, req storage.RestoreRequest) (moved int64, err error) {
	const op = "mark as restored"
	switch {
	case req.Limit < 1 || req.Limit > maxPrune:
		return 0, fmt.Errorf("%s: %w", op, sdk.Invalid("limit", "1 to 10,000"))
	case req.Since.IsZero():
		return 0, fmt.Errorf("%s: %w", op, sdk.Invalid("since", "required"))
	}
	if e := checkAction(&req.Action); e != nil {
		return 0, fmt.Errorf("%s: %w", op, e)
	}
	if req.DryRun {
		err = a.read(ctx, op, func(c *conn) error {
			_, err := c.bind(qRestorableCount).time(req.Before).one(func(r *row) { moved = r.int() })
			return err
		})
		return moved, err
	}
	err = a.write(ctx, op, func(_ context.Context, c *conn) (err error) {
		moved, err = markRestored(c, &req, a.now())
		if err != nil {
			return err
		}
		if moved > int64(req.Limit) {
			moved = int64(req.Limit)
			return nil
		}
		through := time.Unix(0, 0) // none
		if req.Action.Kind == storage.ActionRestore {
			through = req.Before
		}
		if _, err := c.bind(qRestoresRaise).int(req.Claims).time(through).run(); err != nil {
			return err
		}
		return appendAction(c, &req.Action, a.now())
	})
	if err != nil {
		return 0, err
	}
	return moved, nil
}

// markRestored moves at most Limit items and answers how many it found, one
// more than that when some are left.
func markRestored(c *conn, req *storage.RestoreRequest, now time.Time) (int64, error) {
	doc, err := json.Marshal(storage.ItemError{Code: codeRestored})
	if err != nil {
		return 0, err
	}
	var all []dependent
	err = c.bind(qRestorable).time(req.Before).int(int64(req.Limit) + 1).each(func(r *row) error {
		all = append(all, dependent{item: r.int(), route: r.int(), state: storage.ItemState(r.text())})
		return nil
	})
	if err != nil {
		return 0, err
	}
	counts := countDeltas{}
	for _, it := range all[:min(len(all), req.Limit)] {
		n, err := c.bind(qRestore).int(it.item).time(req.Since).text(string(doc)).time(now).run()
		if err != nil {
			return 0, err
		}
		if n != 1 {
			return 0, errRowMoved
		}
		counts.moved(it.route, it.state, true, storage.Uncertain, true)
	}
	return int64(len(all)), counts.write(c)
}
