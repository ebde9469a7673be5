package postgres

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qExporterKnown query = "exporter_known"
	qRenameAllow   query = "rename_allow"
	qRouteRename   query = "route_rename"
	qBoundRename   query = "bound_rename"
	qRouteOpen     query = "route_open"
)

// renameExporter moves the routes and the report bounds of an exporter to
// another name. Items keep the name under which they were made.
func renameExporter(ctx context.Context, t *tx, r *storage.RouteRename) error {
	if r == nil {
		return nil
	}
	if r.To == "" || r.To == r.From {
		return sdk.Invalid("rename.to", "another name")
	}
	taken := false
	if err := t.row(ctx, qExporterKnown, []any{&taken}, r.To); err != nil {
		return err
	}
	if taken {
		return routeConflict("route_exists", "a name that no route and no report bound has")
	}
	if _, err := t.exec(ctx, qRenameAllow, "on"); err != nil {
		return err
	}
	n, err := t.exec(ctx, qRouteRename, r.From, r.To)
	if err == nil && n == 0 {
		err = notFound("a route of the exporter")
	}
	if err != nil {
		return err
	}
	if _, err := t.exec(ctx, qBoundRename, r.From, r.To); err != nil {
		return err
	}
	_, err = t.exec(ctx, qRenameAllow, "") // the transaction may be the caller's
	return err
}

// checkIdle refuses a route with open items.
func checkIdle(ctx context.Context, t *tx, route int64) error {
	open := false
	err := t.row(ctx, qRouteOpen, []any{&open}, route)
	if err == nil && open {
		err = routeConflict("route_open", "a route without open items")
	}
	return err
}
