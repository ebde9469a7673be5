package engine

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// errRenamed ends a rename that has taken place already.
var errRenamed = errors.New("renamed already")

// Keys of the detail of a rename's action.
const (
	renamedFrom = "renamed"
	renamedTo   = "to"
)

// renamed answers a rename of an exporter that has no routes: errRenamed if it was
// this very rename that took them, which is said again by scripts and by hosts that
// were not first. The action is written with the rename, so it tells; once it was
// pruned, nobody does.
func (e *Engine) renamed(ctx context.Context, from, to string, has int) error {
	last, err := e.lastRename(ctx, from, to)
	switch {
	case err != nil:
		return err
	case has > 0 && last[renamedFrom] == from && last[renamedTo] == to:
		return errRenamed
	case has > 0:
		return routeExists()
	}
	gone := &sdk.Error{Tag: sdk.TagNotFound, Field: "from", Rule: "an exporter with routes"}
	if last[renamedFrom] == from {
		gone.Hint = "it was renamed " + last[renamedTo]
	}
	return gone
}

func routeExists() error {
	return &sdk.Error{Tag: sdk.TagConflict, Code: codeRouteExists, Field: "to", Rule: "a name that no route has, nor had"}
}

// lastRename is the detail of the last rename in which one of the names occurs;
// nil: none.
func (e *Engine) lastRename(ctx context.Context, from, to string) (map[string]string, error) {
	var last map[string]string
	for q := (storage.ActionQuery{Kind: storage.ActionRoute, Limit: pageOfActions}); ; {
		page, err := e.Actions(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, a := range page.Actions {
			var d map[string]string
			if json.Unmarshal(a.Detail, &d) != nil || d[renamedTo] == "" {
				continue // a retirement
			}
			if d[renamedFrom] == from || d[renamedFrom] == to || d[renamedTo] == from || d[renamedTo] == to {
				last = d
			}
		}
		if q.After = page.Next; !page.More {
			return last, nil
		}
	}
}

const pageOfActions = 500
