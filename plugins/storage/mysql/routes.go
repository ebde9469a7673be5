package mysql

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// selectRouteSet reads all that is stored about routes.
func selectRouteSet() []capability.Statement {
	return []capability.Statement{
		read("SELECT routes_revision FROM fencepost_state WHERE scope = 1"),
		read("SELECT route, exporter, account, mode, feature, disposition, mapping_version, applies_after, retired_at FROM fencepost_routes ORDER BY route LIMIT ?", maxPage),
		read("SELECT version, label, content FROM fencepost_mappings ORDER BY place LIMIT ?", maxPage),
		read("SELECT feature, signed_usage, buckets, revision FROM fencepost_features ORDER BY feature LIMIT ?", maxPage/2),
	}
}

func readRouteSet(r []result) (set storage.RouteSet, err error) {
	set.Routes, set.Mappings, set.Features = []storage.Route{}, []storage.Mapping{}, []storage.Feature{}
	for i, f := range []func(*row){
		func(r *row) { set.Revision = r.int() },
		func(r *row) {
			set.Routes = append(set.Routes, storage.Route{
				ID: r.int(), Exporter: r.text(), Account: r.text(), Mode: r.text(), Feature: r.text(),
				Disposition: storage.RouteDisposition(r.text()), MappingVersion: r.text(), AppliesAfter: r.int(), RetiredAt: r.time(),
			})
		},
		func(r *row) { set.Mappings = append(set.Mappings, r.mapping()) },
		func(r *row) {
			f := storage.Feature{Name: r.text(), Signed: r.bool()}
			r.decode(&f.Buckets)
			f.Revision = r.int()
			set.Features = append(set.Features, f)
		},
	} {
		if err := r[i].each(f); err != nil {
			return set, err
		}
		if len(r[i].rows) >= maxPage/2*2 {
			return set, &sdk.Error{Tag: sdk.TagUnsupported, Code: "too_many_routes", Rule: "fewer than 4,000 routes, mappings and features"}
		}
	}
	return set, nil
}

func (r *row) mapping() storage.Mapping {
	return storage.Mapping{Version: r.text(), Label: r.text(), Content: r.json()}
}

// Routes implements [storage.RouteStore].
func (a *Adapter) Routes(ctx context.Context) (set storage.RouteSet, err error) {
	err = a.read(ctx, "routes", func(r []result) error {
		set, err = readRouteSet(r)
		return err
	}, selectRouteSet()...)
	if err != nil {
		return storage.RouteSet{}, err
	}
	return set, nil
}

// ChangeRoutes implements [storage.RouteStore]. The lock keeps everybody out who
// records.
func (a *Adapter) ChangeRoutes(ctx context.Context, change storage.RouteChange) (set storage.RouteSet, err error) {
	if change.Action != nil {
		if err := checkAction(change.Action); err != nil {
			return set, err
		}
	}
	err = a.writeAfter(ctx, "change routes", selectRouteSet(), func(t *tx, r []result) error {
		c := &changer{tx: t, change: &change}
		var err error
		if c.set, err = readRouteSet(r); err != nil {
			return err
		}
		if err := c.run(); err != nil {
			return err
		}
		r, err = t.queries(selectRouteSet()...)
		if err != nil {
			return err
		}
		set, err = readRouteSet(r)
		return err
	})
	if err != nil {
		return storage.RouteSet{}, err
	}
	return set, nil
}

// changer is the state of one change of routes. set is what was there.
type changer struct {
	*tx
	change *storage.RouteChange
	set    storage.RouteSet
}

func (c *changer) run() error {
	if c.state.routes != c.change.Revision {
		return conflict("routes_changed")
	}
	c.state.routes++
	c.moved = true
	for _, step := range []func() error{c.rename, c.mappings, c.features, c.retire, c.add} {
		if err := step(); err != nil {
			return err
		}
	}
	if c.change.Action != nil {
		c.act(c.change.Action, 0)
	}
	if err := c.room(); err != nil {
		return err
	}
	s := &c.state // the answer is read before the commit
	c.exec(1, putState, s.routes, s.lastEvent, s.lastItem, s.claims, s.restores, s.lastBeat, s.through)
	return nil
}

func (c *changer) rename() error {
	n := c.change.Rename
	if n == nil {
		return nil
	}
	found := false
	for i := range c.set.Routes {
		switch r := &c.set.Routes[i]; r.Exporter {
		case n.To:
			return conflict("route_exists")
		case n.From:
			r.Exporter, found = n.To, true
		}
	}
	taken := false
	if err := c.query(func(*row) { taken = true }, "SELECT 1 FROM fencepost_bounds WHERE exporter = ? LIMIT 1", n.To); err != nil {
		return err
	}
	switch {
	case taken:
		return conflict("route_exists")
	case !found:
		return notFound("a route of the exporter")
	}
	c.exec(anyRows, "UPDATE fencepost_routes SET exporter = ? WHERE exporter = ?", n.To, n.From)
	c.exec(anyRows, "UPDATE fencepost_bounds SET exporter = ? WHERE exporter = ?", n.To, n.From)
	return nil
}

func (c *changer) mappings() error {
	for _, m := range c.change.Mappings {
		i := slices.IndexFunc(c.set.Mappings, func(o storage.Mapping) bool { return o.Version == m.Version })
		if i >= 0 {
			if !bytes.Equal(c.set.Mappings[i].Content, m.Content) {
				return conflict("mapping_changed")
			}
			continue
		}
		c.set.Mappings = append(c.set.Mappings, m)
		c.exec(1, "INSERT INTO fencepost_mappings (version, place, label, content) VALUES (?, ?, ?, ?)", m.Version, len(c.set.Mappings), m.Label, m.Content)
	}
	return nil
}

func (c *changer) features() error {
	for _, f := range c.change.Features {
		i := slices.IndexFunc(c.set.Features, func(o storage.Feature) bool { return o.Name == f.Name })
		if i >= 0 && c.set.Features[i].Signed != f.Signed {
			used := false
			if err := c.query(func(*row) { used = true }, "SELECT 1 FROM fencepost_totals WHERE feature = ? LIMIT 1", f.Name); err != nil {
				return err
			}
			if used {
				return conflict("signed_in_use")
			}
		}
		var buckets json.RawMessage
		if f.Buckets != nil {
			var err error
			if buckets, err = json.Marshal(f.Buckets); err != nil {
				return err
			}
		}
		c.exec(anyRows, "INSERT INTO fencepost_features (feature, signed_usage, buckets, revision) VALUES (?, ?, ?, ?) "+
			"ON DUPLICATE KEY UPDATE signed_usage = VALUES(signed_usage), buckets = VALUES(buckets), revision = VALUES(revision)",
			f.Name, f.Signed, buckets, c.state.routes)
	}
	return nil
}

// idle refuses a route with open items.
func (c *changer) idle(route int64) error {
	open := false
	err := c.query(func(*row) { open = true }, "SELECT 1 FROM fencepost_items WHERE route = ? AND settled_at IS NULL AND superseded_by = 0 LIMIT 1", route)
	if err == nil && open {
		err = conflict("route_open")
	}
	return err
}

func (c *changer) retire() error {
	for _, id := range c.change.IdleAlso {
		if err := c.idle(id); err != nil {
			return err
		}
	}
	for _, id := range c.change.Retire {
		i := slices.IndexFunc(c.set.Routes, func(r storage.Route) bool { return r.ID == id && r.RetiredAt.IsZero() })
		if i < 0 {
			return conflict("route_not_in_force")
		}
		if c.change.Idle {
			if err := c.idle(id); err != nil {
				return err
			}
		}
		c.set.Routes[i].RetiredAt = c.now
		c.exec(1, "UPDATE fencepost_routes SET retired_at = ? WHERE route = ?", c.now, id)
	}
	return nil
}

func (c *changer) add() error {
	last := int64(0)
	for _, r := range c.set.Routes {
		last = max(last, r.ID)
	}
	for _, r := range c.change.Add {
		if slices.ContainsFunc(c.set.Routes, func(o storage.Route) bool {
			return o.RetiredAt.IsZero() && o.Exporter == r.Exporter && o.Account == r.Account && o.Mode == r.Mode && o.Feature == r.Feature
		}) {
			return invalid("add", "one route in force for a feature at a destination")
		}
		last++
		c.exec(1, "INSERT INTO fencepost_routes (route, exporter, account, mode, feature, disposition, mapping_version, applies_after) VALUES "+places(8),
			last, r.Exporter, r.Account, r.Mode, r.Feature, string(r.Disposition), r.MappingVersion, c.state.lastEvent)
		r.ID = last
		c.set.Routes = append(c.set.Routes, r)
	}
	return nil
}
