package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// routeRetries bounds how often ApplyRoutes starts again because another host
// changed routes at the same time.
const routeRetries = 8

// Keys of a mapping's content that the engine adds to the operator's.
const (
	mappingProvider = "provider"
	mappingFeature  = "feature"
)

// RoutePlan is what one exporter's configuration asks for.
type RoutePlan struct {
	Exporter string
	Provider string // the plugin's name in its manifest
	Account  string
	Mode     string
	// Features maps a feature to how the provider calls it.
	Features map[string]map[string]string
	Ignore   []string
	// Label is the configuration's version of the mapping, for people.
	Label string
}

// ApplyRoutes makes the stored routes follow the plans and returns them.
//
// A feature whose mapping changed gets a new route for what is recorded from
// now on; items that exist keep the mapping they were made with. Routes of an
// exporter that moved to another account or mode are retired. Routes of
// exporters without a plan are left alone: another host may serve them.
//
// A plan that brings nothing but a return to routes that were replaced is not
// carried out, but logged: in a rolling upgrade it is that of a host of the old
// release which starts again, and [RoutePlan.Behind] tells how it differs. With a
// Label that the exporter's mappings never had it is asked for, and is.
//
// It also stores the configured settings of features.
//
// It fails with tag conflict when two exporters would report one feature to
// the same event of the same account: that would bill it twice; and, with code
// "signed_in_use", when a feature that has events would become signed or no
// longer be. It fails with tag unsupported when a plan maps a feature whose
// usage is not a sum of its events.
func (e *Engine) ApplyRoutes(ctx context.Context, plans []RoutePlan) (storage.RouteSet, error) {
	return e.applyRoutes(ctx, plans, e.held)
}

// applyRoutes carries out the plans that keeps does not hold back.
func (e *Engine) applyRoutes(ctx context.Context, plans []RoutePlan, keeps func(context.Context, RoutePlan, storage.RouteSet) (bool, error)) (storage.RouteSet, error) {
	for range routeRetries {
		set, err := e.store.routes.Routes(ctx)
		if err != nil {
			return storage.RouteSet{}, fmt.Errorf("read routes: %w", err)
		}
		change, labels := storage.RouteChange{Revision: set.Revision}, false
		for _, p := range plans {
			if err := e.exportable(p); err != nil {
				return storage.RouteSet{}, err
			}
			if held, err := keeps(ctx, p, set); held || err != nil {
				if err != nil {
					return storage.RouteSet{}, err
				}
				continue
			}
			if err := p.diff(set, &change); err != nil {
				return storage.RouteSet{}, err
			}
			noted, err := p.noteLabel(set, &change)
			if err != nil {
				return storage.RouteSet{}, err
			}
			labels = labels || noted
		}
		if err := refuseShared(set, change); err != nil {
			return storage.RouteSet{}, err
		}
		e.featureChanges(set, &change)
		if len(change.Add) == 0 && len(change.Retire) == 0 && len(change.Features) == 0 && !labels {
			return set, nil
		}
		changed, err := e.store.routes.ChangeRoutes(ctx, change)
		if err == nil {
			e.subjects.routes.Store(nil)
			e.noteBuckets(ctx, set, change.Features)
			e.noteRoutes(ctx, set, change)
			return changed, nil
		}
		if errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: codeSignedInUse}) {
			return storage.RouteSet{}, signedInUse(set, change.Features)
		}
		if !errors.Is(err, sdk.ErrConflict) {
			return storage.RouteSet{}, fmt.Errorf("change routes: %w", err)
		}
	}
	return storage.RouteSet{}, sdk.Unavailable("routes_moving", errors.New("other hosts kept changing routes"))
}

// exportable fails if a plan reports a feature of which a provider cannot be
// told event by event (Q8).
func (e *Engine) exportable(p RoutePlan) error {
	for _, name := range slices.Sorted(maps.Keys(p.Features)) {
		f := e.cfg.feature(name)
		if f.Aggregation.Exportable() {
			continue
		}
		rule := "a feature that adds up (sum or count), not " + string(f.Aggregation)
		return &sdk.Error{Tag: sdk.TagUnsupported, Code: "not_exportable", Field: "mapping.features." + name, Rule: rule}
	}
	return nil
}

// diff adds to change what brings the stored routes to p.
func (p RoutePlan) diff(set storage.RouteSet, change *storage.RouteChange) error {
	want, err := p.routes(change)
	if err != nil {
		return err
	}
	for _, r := range set.Routes {
		if r.Exporter != p.Exporter || !r.RetiredAt.IsZero() {
			continue
		}
		w, ok := want[r.Feature]
		if ok && r.Account == w.Account && r.Mode == w.Mode && r.Disposition == w.Disposition && r.MappingVersion == w.MappingVersion {
			delete(want, r.Feature)
			continue
		}
		change.Retire = append(change.Retire, r.ID)
	}
	for _, f := range slices.Sorted(maps.Keys(want)) {
		change.Add = append(change.Add, want[f])
	}
	return nil
}

func (p RoutePlan) routes(change *storage.RouteChange) (map[string]storage.Route, error) {
	base := storage.Route{Exporter: p.Exporter, Account: p.Account, Mode: p.Mode}
	want := map[string]storage.Route{}
	add := func(feature string, d storage.RouteDisposition, version string) {
		r := base
		r.Feature, r.Disposition, r.MappingVersion = feature, d, version
		want[feature] = r
	}
	add(storage.AnyFeature, storage.RouteQuarantine, "")
	for _, f := range p.Ignore {
		add(f, storage.RouteIgnore, "")
	}
	for _, f := range slices.Sorted(maps.Keys(p.Features)) {
		m, err := p.mapping(f)
		if err != nil {
			return nil, err
		}
		change.Mappings = append(change.Mappings, m)
		add(f, storage.RouteExport, m.Version)
	}
	return want, nil
}

// mapping freezes how one feature is expressed. Its version is the hash of its
// content, so the same content is the same version on every host. // Q3.
func (p RoutePlan) mapping(feature string) (storage.Mapping, error) {
	content := maps.Clone(p.Features[feature])
	if content == nil {
		content = map[string]string{}
	}
	for _, k := range []string{mappingProvider, mappingFeature} {
		if _, taken := content[k]; taken {
			return storage.Mapping{}, sdk.Invalid("mapping.features."+feature+"."+k, "a key that is not reserved")
		}
	}
	content[mappingProvider], content[mappingFeature] = p.Provider, feature
	raw, err := json.Marshal(content) // sorts keys
	if err != nil {
		return storage.Mapping{}, fmt.Errorf("encode mapping: %w", err)
	}
	body, err := canon.JSON(raw)
	if err != nil {
		return storage.Mapping{}, fmt.Errorf("mapping of %s: %w", feature, err)
	}
	return storage.Mapping{Version: mappingVersion(body), Label: p.Label, Content: body}, nil
}

// refuseShared fails if, after change, two exporters report one feature to the
// same event name of the same account and mode, looking at retired routes too:
// what one has billed the other must not bill again. // Q4.
func refuseShared(set storage.RouteSet, change storage.RouteChange) error {
	contents := map[string]map[string]string{}
	for _, m := range slices.Concat(set.Mappings, change.Mappings) {
		var c map[string]string
		if err := json.Unmarshal(m.Content, &c); err != nil {
			return fmt.Errorf("decode stored mapping: %w", err)
		}
		contents[m.Version] = c
	}
	owner := map[string]string{}
	for _, r := range slices.Concat(set.Routes, change.Add) {
		c := contents[r.MappingVersion]
		if r.Disposition != storage.RouteExport || c == nil {
			continue
		}
		key := billingKey(r, c)
		if other, taken := owner[key]; taken && other != r.Exporter {
			return &sdk.Error{
				Tag: sdk.TagConflict, Code: "route_shared", Field: "exporters",
				Rule: fmt.Sprintf("exporters %s and %s would report feature %s to the same event of the same account", other, r.Exporter, r.Feature),
				Hint: "give them different accounts or event names, or keep one name",
			}
		}
		owner[key] = r.Exporter
	}
	return nil
}
