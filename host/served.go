package host

import (
	"context"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// routesFresh is how long a deliverer uses the routes it has read. Another host
// may add one with a mapping of its own; its items wait at most this long for
// us, and are frozen with that mapping, so we can send them.
const routesFresh = 5 * time.Second

// servedRoutes reads the routes of one destination, retired ones included:
// their items are still to be delivered. It is used by one goroutine.
type servedRoutes struct {
	store storage.RouteStore
	dest  outbox.Destination
	log   *slog.Logger

	known  []int64
	readAt time.Duration
}

func (s *servedRoutes) ids() []int64 {
	now := egress.Elapsed()
	if s.known != nil && now-s.readAt < routesFresh {
		return s.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), routesFresh)
	defer cancel()
	set, err := s.store.Routes(ctx)
	if err != nil {
		s.log.Warn("read routes", "error", err)
		return s.known
	}
	s.readAt, s.known = now, []int64{}
	for _, r := range set.Routes {
		if outbox.DestinationOf(r) == s.dest {
			s.known = append(s.known, r.ID)
		}
	}
	return s.known
}
