package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qRoutesRevision      query = "routes_revision"
	qRoutesRevisionRaise query = "routes_revision_raise"
	qRoutes              query = "routes"
	qRouteInsert         query = "route_insert"
	qRouteRetire         query = "route_retire"
	qMappings            query = "mappings"
	qMapping             query = "mapping"
	qMappingInsert       query = "mapping_insert"
	qFeatures            query = "features"
	qFeaturePut          query = "feature_put"
	qFeatureInUse        query = "feature_in_use"
)

// Routes returns every route, mapping and feature, with the revision that
// RecordEvents checks.
func (s store) Routes(ctx context.Context) (set storage.RouteSet, err error) {
	err = s.run.snapshot(ctx, "load routes", func(ctx context.Context, t *tx) (err error) {
		set, err = routes(ctx, t)
		return err
	})
	if err != nil {
		return storage.RouteSet{}, err
	}
	return set, nil
}

func routes(ctx context.Context, t *tx) (storage.RouteSet, error) {
	set := storage.RouteSet{Routes: []storage.Route{}, Mappings: []storage.Mapping{}, Features: []storage.Feature{}}
	// The revision first: at read committed what follows may only be newer, and
	// a record computed from it is then refused as stale.
	if err := t.row(ctx, qRoutesRevision, []any{&set.Revision}); err != nil {
		return set, err
	}
	err := t.each(ctx, qRoutes, func(rows pgx.Rows) error {
		var r storage.Route
		var retired *time.Time
		err := rows.Scan(&r.ID, &r.Exporter, &r.Account, &r.Mode, &r.Feature, &r.Disposition,
			&r.MappingVersion, &r.AppliesAfter, &retired)
		r.RetiredAt = utc(retired)
		set.Routes = append(set.Routes, r)
		return err
	})
	if err != nil {
		return set, err
	}
	err = t.each(ctx, qMappings, func(rows pgx.Rows) error {
		m, err := scanMapping(rows)
		set.Mappings = append(set.Mappings, m)
		return err
	})
	if err != nil {
		return set, err
	}
	err = t.each(ctx, qFeatures, func(rows pgx.Rows) error {
		var f storage.Feature
		err := rows.Scan(&f.Name, &f.Signed, &f.Buckets, &f.Revision)
		set.Features = append(set.Features, f)
		return err
	})
	return set, err
}

func scanMapping(rows pgx.Rows) (m storage.Mapping, err error) {
	var content string
	err = rows.Scan(&m.Version, &m.Label, &content)
	m.Content = json.RawMessage(content)
	return m, err
}

// ChangeRoutes retires, then adds, if nobody changed the routes since
// change.Revision was read, under the exclusive side of the route lock: no
// record is in flight meanwhile.
func (s store) ChangeRoutes(ctx context.Context, change storage.RouteChange) (set storage.RouteSet, err error) {
	err = s.run.write(ctx, "change routes", writing{lock: lockExclusive}, func(ctx context.Context, t *tx) (err error) {
		set, err = changeRoutes(ctx, t, change)
		return err
	})
	if err != nil {
		return storage.RouteSet{}, err
	}
	return set, nil
}

func changeRoutes(ctx context.Context, t *tx, change storage.RouteChange) (storage.RouteSet, error) {
	var set storage.RouteSet
	var revision int64
	if err := t.row(ctx, qRoutesRevision, []any{&revision}); err != nil {
		return set, err
	}
	if revision != change.Revision {
		return set, routeConflict("routes_changed", "the revision of the routes as they are")
	}
	if change.Action != nil {
		if err := checkAction(*change.Action); err != nil {
			return set, err
		}
	}
	if err := renameExporter(ctx, t, change.Rename); err != nil {
		return set, err
	}
	for _, m := range change.Mappings {
		if err := putMapping(ctx, t, m); err != nil {
			return set, err
		}
	}
	for _, f := range change.Features {
		if err := putFeature(ctx, t, f, revision+1); err != nil {
			return set, err
		}
	}
	for _, id := range change.IdleAlso {
		if err := checkIdle(ctx, t, id); err != nil {
			return set, err
		}
	}
	for _, id := range change.Retire {
		if change.Idle {
			if err := checkIdle(ctx, t, id); err != nil {
				return set, err
			}
		}
		n, err := t.exec(ctx, qRouteRetire, id)
		if err != nil {
			return set, err
		}
		if n == 0 {
			return set, routeConflict("route_not_in_force", "a route in force")
		}
	}
	for i, r := range change.Add {
		if err := addRoute(ctx, t, r, i); err != nil {
			return set, err
		}
	}
	if _, err := t.exec(ctx, qRoutesRevisionRaise); err != nil {
		return set, err
	}
	if change.Action != nil {
		if err := t.appendActions(ctx, []storage.Action{*change.Action}); err != nil {
			return set, err
		}
	}
	return routes(ctx, t)
}

func addRoute(ctx context.Context, t *tx, r storage.Route, i int) error {
	if r.MappingVersion != "" {
		if _, err := loadMapping(ctx, t, r.MappingVersion); errors.Is(err, pgx.ErrNoRows) {
			return sdk.Invalid("routes", "a mapping that is stored").At(i)
		} else if err != nil {
			return err
		}
	}
	n, err := t.exec(ctx, qRouteInsert, r.Exporter, r.Account, r.Mode, r.Feature, string(r.Disposition), r.MappingVersion)
	if err == nil && n == 0 {
		return routeConflict("route_exists", "no other route in force for the feature at this destination").At(i)
	}
	return err
}

func routeConflict(code, rule string) *sdk.Error {
	return &sdk.Error{Tag: sdk.TagConflict, Code: code, Field: "routes", Rule: rule}
}

// putMapping inserts a mapping, or finds the same one.
func putMapping(ctx context.Context, t *tx, m storage.Mapping) error {
	if m.Version == "" || len(m.Content) == 0 {
		return sdk.Invalid("mappings", "a version and a content")
	}
	n, err := t.exec(ctx, qMappingInsert, m.Version, m.Label, string(m.Content))
	if err != nil || n == 1 {
		return err
	}
	stored, err := loadMapping(ctx, t, m.Version)
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

// loadMapping answers a mapping, or [pgx.ErrNoRows].
func loadMapping(ctx context.Context, t *tx, version string) (m storage.Mapping, err error) {
	found := false
	err = t.each(ctx, qMapping, func(rows pgx.Rows) (err error) {
		found = true
		m, err = scanMapping(rows)
		return err
	}, version)
	if err == nil && !found {
		err = pgx.ErrNoRows
	}
	return m, err
}

// putFeature creates or replaces what is known of a feature. A feature with
// events and no row is unsigned, as Q7 wants it.
func putFeature(ctx context.Context, t *tx, f storage.Feature, revision int64) error {
	if f.Name == "" {
		return sdk.Invalid("features", "a name")
	}
	var inUse bool
	if err := t.row(ctx, qFeatureInUse, []any{&inUse}, f.Name, f.Signed); err != nil {
		return err
	}
	if inUse {
		return &sdk.Error{
			Tag: sdk.TagConflict, Code: "signed_in_use", Field: "features." + f.Name,
			Rule: "the sign that the feature had when its events were recorded",
		}
	}
	_, err := t.exec(ctx, qFeaturePut, f.Name, f.Signed, f.Buckets, revision)
	return err
}
