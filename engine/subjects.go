package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// subjectsMax bounds the remembered tenants; past it all are forgotten, which
// costs one read each.
const subjectsMax = 100_000

// subjects remembers what recording reads of tenants and routes. What it
// remembers may be old: the store checks the revisions inside the transaction
// and the caller reads again. So a cache can cost a retry, never a wrong period
// or a wrong destination.
type subjects struct {
	store  stores
	zones  period.Zones
	routes atomic.Pointer[routeView]

	mu      sync.RWMutex
	tenants map[string]subject
}

// routeView is the stored routes with their mappings by version.
type routeView struct {
	storage.RouteSet
	mappings map[string]storage.Mapping
	fields   map[string]map[string]string
	features map[string]storage.Feature
}

// subject is one tenant. The zero value is a tenant without a subscription.
type subject struct {
	sub      storage.Subscription
	calendar period.Calendar
	// durableFrom is the start of the first period that events report, by
	// feature: of those that have a cutover and that this call is about.
	durableFrom map[string]time.Time
}

func newSubjects(st stores) *subjects {
	return &subjects{store: st, tenants: map[string]subject{}}
}

// routeSet returns the remembered routes, reading them if there are none.
func (s *subjects) routeSet(ctx context.Context) (*routeView, error) {
	if view := s.routes.Load(); view != nil {
		return view, nil
	}
	set, err := s.store.routes.Routes(ctx)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	view := &routeView{RouteSet: set, mappings: map[string]storage.Mapping{}, fields: map[string]map[string]string{}, features: byName(set.Features)}
	for _, m := range set.Mappings {
		view.mappings[m.Version] = m
		// One that cannot be read quarantines its items as payload_invalid.
		if fields, err := outbox.MappingFields(m); err == nil {
			view.fields[m.Version] = fields
		}
	}
	s.routes.Store(view)
	return view, nil
}

// of returns the named tenants, reading those that are not remembered in one
// call.
func (s *subjects) of(ctx context.Context, names []string) (map[string]subject, error) {
	out := make(map[string]subject, len(names))
	var missing []string
	s.mu.RLock()
	for _, n := range names {
		if sub, ok := s.tenants[n]; ok {
			out[n] = sub
		} else {
			missing = append(missing, n)
		}
	}
	s.mu.RUnlock()
	if len(missing) == 0 {
		return out, nil
	}
	found, err := s.store.subs.Subscriptions(ctx, missing)
	if err != nil {
		return nil, fmt.Errorf("read subscriptions: %w", err)
	}
	for _, n := range missing {
		out[n] = subject{} // absence is remembered too
	}
	for _, sub := range found {
		cal, err := s.zones.Of(sub)
		if err != nil {
			return nil, fmt.Errorf("calendar of a stored subscription: %w", err)
		}
		out[sub.Tenant] = subject{sub: sub, calendar: cal}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tenants)+len(missing) > subjectsMax {
		clear(s.tenants)
	}
	for _, n := range missing {
		s.tenants[n] = out[n]
	}
	return out, nil
}

// check drops tenants that are remembered with another revision than now says;
// one that is absent there has none.
func (s *subjects) check(now map[string]int64, tenants []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tenants {
		if known, ok := s.tenants[t]; ok && known.sub.Revision != now[t] {
			delete(s.tenants, t)
		}
	}
}

// forget drops what a store called stale.
func (s *subjects) forget(st *storage.Stale) {
	if st.Routes {
		s.routes.Store(nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range st.Tenants {
		delete(s.tenants, t)
	}
}
