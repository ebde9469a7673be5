package engine

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// FirstRoutes is [Engine.ApplyRoutes] for a process that comes and goes beside the
// hosts, such as a command that records a file: the plans are carried out in a
// store that never had a route, whose first usage would go nowhere otherwise. In
// any other the routes in force stay, new exporters and returns included, and the
// log says how a plan differs. The configured settings of features are stored as
// ApplyRoutes does, since what is recorded here is recorded by them.
//
// It returns the routes in force, and fails as ApplyRoutes does.
func (e *Engine) FirstRoutes(ctx context.Context, plans []RoutePlan) (storage.RouteSet, error) {
	return e.applyRoutes(ctx, plans, e.settled)
}

// settled holds every plan back in a store that has, or had, routes.
func (e *Engine) settled(ctx context.Context, p RoutePlan, set storage.RouteSet) (bool, error) {
	if len(set.Routes) == 0 {
		return false, nil
	}
	how, err := p.Behind(set)
	if err == nil && how != "" {
		e.cfg.Logger.WarnContext(ctx, "the mapping in force is another one than configured here and stays so: usage is recorded by it",
			"exporter", p.Exporter, "differs", how)
	}
	return true, err
}
