package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Behind says how the routes in force of the exporter differ from what the plan
// asks for, naming both versions of each mapping; empty: they do not. A host whose
// plan differs takes and sends usage as the routes in force say.
func (p RoutePlan) Behind(set storage.RouteSet) (string, error) {
	want, err := p.routes(&storage.RouteChange{})
	if err != nil {
		return "", err
	}
	force := p.inForce(set)
	if len(force) == 0 {
		return "", nil // retired or renamed, which is told elsewhere
	}
	labels := mappingLabels(set)
	var lines []string
	for _, f := range slices.Sorted(maps.Keys(union(want, force))) {
		w, asked := want[f]
		r, has := force[f]
		if asked && has && sameRoute(w, r) {
			continue
		}
		mine, theirs := "nothing", "nothing"
		if asked {
			mine = told(w, p.Label)
		}
		if has {
			theirs = told(r, labels[r.MappingVersion])
		}
		lines = append(lines, fmt.Sprintf("feature %s: configured here %s, in force %s", f, mine, theirs))
	}
	return strings.Join(lines, "; "), nil
}

// inForce are the exporter's routes in force, by feature.
func (p RoutePlan) inForce(set storage.RouteSet) map[string]storage.Route {
	force := map[string]storage.Route{}
	for _, r := range set.Routes {
		if r.Exporter == p.Exporter && r.RetiredAt.IsZero() {
			force[r.Feature] = r
		}
	}
	return force
}

// returns reports whether the plan brings nothing but a return to routes that were
// replaced, and nobody asked for that.
func (p RoutePlan) returns(set storage.RouteSet) (bool, error) {
	want, err := p.routes(&storage.RouteChange{})
	force := p.inForce(set)
	if err != nil || len(force) == 0 {
		return false, err
	}
	back := false
	for f, w := range want {
		if r, ok := force[f]; ok && sameRoute(w, r) {
			continue
		}
		if !slices.ContainsFunc(set.Routes, func(r storage.Route) bool {
			return r.Exporter == p.Exporter && r.Feature == f && !r.RetiredAt.IsZero() && sameRoute(w, r)
		}) {
			return false, nil // something that never was
		}
		back = true
	}
	if !back || p.Label == "" {
		return back, nil
	}
	return p.hadLabel(set) // a new one asks for the return
}

// held reports, and logs, that a plan is not carried out.
func (e *Engine) held(ctx context.Context, p RoutePlan, set storage.RouteSet) (bool, error) {
	held, err := p.returns(set)
	if err != nil || !held {
		return false, err
	}
	how, err := p.Behind(set)
	e.cfg.Logger.WarnContext(ctx, "the mapping of this host was replaced by another one and stays so; to return to it, give mapping.version a value that it never had",
		"exporter", p.Exporter, "differs", how)
	return true, err
}

// noteRoutes logs which mappings took the place of others: what is recorded from
// now on is reported by them, whatever the other hosts are configured with.
func (e *Engine) noteRoutes(ctx context.Context, set storage.RouteSet, change storage.RouteChange) {
	all := set
	all.Mappings = slices.Concat(set.Mappings, change.Mappings)
	labels := mappingLabels(all)
	for _, old := range set.Routes {
		if !slices.Contains(change.Retire, old.ID) {
			continue
		}
		now := "nothing"
		for _, r := range change.Add {
			if r.Exporter == old.Exporter && r.Feature == old.Feature {
				now = told(r, labels[r.MappingVersion])
			}
		}
		e.cfg.Logger.WarnContext(ctx, "the mapping in force was replaced, for all hosts", "exporter", old.Exporter, "feature", old.Feature,
			"was", told(old, labels[old.MappingVersion]), "is", now)
	}
}

func sameRoute(a, b storage.Route) bool {
	return a.Account == b.Account && a.Mode == b.Mode && a.Disposition == b.Disposition && a.MappingVersion == b.MappingVersion
}

// told is a route as people read it.
func told(r storage.Route, label string) string {
	text := string(r.Disposition)
	if r.MappingVersion != "" {
		text = "mapping " + r.MappingVersion
	}
	if r.MappingVersion != "" && label != "" {
		text += " (version " + label + ")"
	}
	return text + " of account " + r.Account + ", " + r.Mode
}

func mappingLabels(set storage.RouteSet) map[string]string {
	labels := make(map[string]string, len(set.Mappings))
	for _, m := range set.Mappings {
		labels[m.Version] = m.Label
	}
	return labels
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
