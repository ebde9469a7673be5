package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Routes returns every route and every mapping, with the revision that
// RecordEvents checks.
func (a *Adapter) Routes(ctx context.Context) (set storage.RouteSet, err error) {
	err = a.read(ctx, "load routes", func(c *conn) (err error) {
		set, err = routes(c)
		return err
	})
	return set, err
}

func routes(c *conn) (storage.RouteSet, error) {
	set := storage.RouteSet{Routes: []storage.Route{}, Mappings: []storage.Mapping{}}
	_, err := c.bind(qRoutesRevision).one(func(r *row) { set.Revision = r.int() })
	if err != nil {
		return set, err
	}
	err = c.bind(qRoutes).each(func(r *row) error {
		set.Routes = append(set.Routes, storage.Route{
			ID: r.int(), Exporter: r.text(), Account: r.text(), Mode: r.text(), Feature: r.text(),
			Disposition: storage.RouteDisposition(r.text()), MappingVersion: r.text(),
			AppliesAfter: r.int(), RetiredAt: r.time(),
		})
		return nil
	})
	if err != nil {
		return set, err
	}
	err = c.bind(qMappings).each(func(r *row) error {
		set.Mappings = append(set.Mappings, r.mapping())
		return nil
	})
	if err != nil {
		return set, err
	}
	set.Features, err = features(c)
	return set, err
}

func (r *row) mapping() storage.Mapping {
	return storage.Mapping{Version: r.text(), Label: r.text(), Content: json.RawMessage(r.text())}
}

// ChangeRoutes retires, then adds, if nobody changed the routes since
// change.Revision was read. The writer lock is the exclusive lock: no record
// is in flight meanwhile.
func (a *Adapter) ChangeRoutes(ctx context.Context, change storage.RouteChange) (set storage.RouteSet, err error) {
	err = a.write(ctx, "change routes", func(_ context.Context, c *conn) (err error) {
		set, err = changeRoutes(c, change, a.now())
		return err
	})
	return set, err
}

func changeRoutes(c *conn, change storage.RouteChange, now time.Time) (storage.RouteSet, error) {
	var set storage.RouteSet
	var revision int64
	if _, err := c.bind(qRoutesRevision).one(func(r *row) { revision = r.int() }); err != nil {
		return set, err
	}
	if revision != change.Revision {
		return set, routeConflict("routes_changed", "the revision of the routes as they are")
	}
	if err := renameExporter(c, change.Rename); err != nil {
		return set, err
	}
	for _, m := range change.Mappings {
		if err := putMapping(c, m, now); err != nil {
			return set, err
		}
	}
	for _, f := range change.Features {
		if err := putFeature(c, f, revision+1); err != nil {
			return set, err
		}
	}
	for _, id := range change.IdleAlso {
		if err := checkIdle(c, id); err != nil {
			return set, err
		}
	}
	for _, id := range change.Retire {
		if change.Idle {
			if err := checkIdle(c, id); err != nil {
				return set, err
			}
		}
		n, err := c.bind(qRouteRetire).int(id).time(now).run()
		if err != nil {
			return set, err
		}
		if n == 0 {
			return set, routeConflict("route_not_in_force", "a route in force")
		}
	}
	for i, rt := range change.Add {
		if rt.MappingVersion != "" {
			if known, err := c.bind(qMapping).text(rt.MappingVersion).one(func(*row) {}); err != nil || !known {
				return set, cmp.Or(err, error(sdk.Invalid("routes", "a mapping that is stored").At(i)))
			}
		}
		_, err := c.bind(qRouteInsert).text(rt.Exporter).text(rt.Account).text(rt.Mode).text(rt.Feature).
			text(string(rt.Disposition)).text(rt.MappingVersion).time(now).run()
		if sqlite.ErrCode(err) == sqlite.ResultConstraintUnique {
			return set, routeConflict("route_exists", "no other route in force for the feature at this destination").At(i)
		}
		if err != nil {
			return set, err
		}
	}
	if err := c.run(qRoutesRevisionRaise); err != nil {
		return set, err
	}
	if change.Action != nil {
		if e := checkAction(change.Action); e != nil {
			return set, e
		}
		if err := appendAction(c, change.Action, now); err != nil {
			return set, err
		}
	}
	return routes(c)
}

// renameExporter moves the routes and bounds of an exporter to another name.
func renameExporter(c *conn, r *storage.RouteRename) error {
	if r == nil {
		return nil
	}
	if r.To == "" || r.To == r.From {
		return sdk.Invalid("rename.to", "another name")
	}
	var taken bool
	if _, err := c.bind(qExporterKnown).text(r.To).one(func(row *row) {
		routed, bounds := row.bool(), row.bool()
		taken = routed || bounds
	}); err != nil {
		return err
	}
	if taken {
		return routeConflict("route_exists", "a name that no route and no report bound has")
	}
	n, err := c.bind(qRouteRename).text(r.From).text(r.To).run()
	if err != nil {
		return err
	}
	if n == 0 {
		return notFound("a route of the exporter")
	}
	_, err = c.bind(qBoundRename).text(r.From).text(r.To).run()
	return err
}

// checkIdle refuses a route with open items: the gauge is kept in the
// transactions that move them.
func checkIdle(c *conn, route int64) error {
	var open int64
	if _, err := c.bind(qRouteOpen).int(route).one(func(r *row) { open = r.int() }); err != nil {
		return err
	}
	if open > 0 {
		return routeConflict("route_open", "a route without open items")
	}
	return nil
}

func routeConflict(code, rule string) *sdk.Error {
	return &sdk.Error{Tag: sdk.TagConflict, Code: code, Field: "routes", Rule: rule}
}

// putMapping inserts a mapping, or finds the same one.
func putMapping(c *conn, m storage.Mapping, now time.Time) error {
	if m.Version == "" || len(m.Content) == 0 {
		return sdk.Invalid("mappings", "a version and a content")
	}
	n, err := c.bind(qMappingInsert).text(m.Version).text(m.Label).text(string(m.Content)).time(now).run()
	if err != nil || n == 1 {
		return err
	}
	stored, err := loadMapping(c, m.Version)
	if err != nil {
		return err
	}
	if string(stored.Content) != string(m.Content) {
		return &sdk.Error{
			Tag: sdk.TagConflict, Code: "mapping_changed", Field: "mappings",
			Rule: "the same content for the same version",
		}
	}
	return nil
}

func loadMapping(c *conn, version string) (m storage.Mapping, err error) {
	found, err := c.bind(qMapping).text(version).one(func(r *row) { m = r.mapping() })
	if err == nil && !found {
		err = sdk.Unavailable("corrupt", errors.New("an item names a mapping that is not stored"))
	}
	return m, err
}
