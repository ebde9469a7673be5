package remote

import (
	"cmp"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
)

func checkClaim(in *storage.ClaimRequest, out *storage.Claim) error {
	routes := make(map[int64]bool, len(in.Routes))
	for _, r := range in.Routes {
		routes[r] = true
	}
	seen := make(map[int64]bool, len(out.Items)+len(out.Exhausted))
	once := func(id int64) bool {
		ok := id > 0 && !seen[id]
		seen[id] = true
		return ok
	}
	return first(
		atMost(len(out.Items), in.Limit),
		each(out.Items, func(_ int, i *storage.ClaimedItem) bool {
			event := i.Identity.SubjectKind != storage.SubjectEvent ||
				(i.Event.EventID == i.Identity.SubjectRef && i.Event.Tenant == i.Identity.Tenant)
			return once(i.ItemID) && routes[i.RouteID] && event && i.Digest != (storage.Hash{}) && i.LeaseToken > 0 && i.Attempts > 0
		}, errForeign),
		each(out.Exhausted, func(_ int, e *storage.Exhausted) bool { return once(e.ItemID) && e.Code != "" }, errForeign),
		checkIncarnation(&out.Incarnation),
	)
}

func checkIncarnation(i *storage.Incarnation) error {
	return holds(len(i.Store) <= 64 && i.Claims >= 0 && i.Restores >= 0 && (i.Restores > 0 || i.RestoredThrough.IsZero()), "an incarnation")
}

func checkTransition(in *storagev1.TransitionRequest, out *storagev1.TransitionAnswer) error {
	return first(
		count(len(out.Result), len(in.Moves)),
		each(out.Result, func(i int, r *storage.TransitionResult) bool {
			return r.ItemID == in.Moves[i].ItemID && (r.Rows == 0 || r.Rows == 1)
		}, errForeign),
	)
}

func checkLoadItem(in *storagev1.LoadItemRequest, out *storage.ItemDetail) error {
	return foreign(out.Item.ItemID == in.ID)
}

func checkListItems(in *storage.ItemQuery, out *storage.ItemPage) error {
	if n := len(out.Items); n > 0 && out.Next != out.Items[n-1].ItemID {
		return errCursor
	}
	events := make(map[storage.EventKey]bool, len(in.Events))
	for _, k := range in.Events {
		events[k] = true
	}
	return first(
		page{len(out.Items), in.Limit, out.More}.check(),
		ascending(out.Items, &storage.Item{ItemID: in.After}, func(a, b *storage.Item) int { return cmp.Compare(a.ItemID, b.ItemID) }),
		each(out.Items, func(_ int, i *storage.Item) bool {
			return matches(string(in.State), string(i.State)) && matches(in.Tenant, i.Identity.Tenant) && matches(in.SubjectRef, i.Identity.SubjectRef) &&
				(in.DependsOn == 0 || i.DependsOn == in.DependsOn) && (len(in.Digests) == 0 || slices.Contains(in.Digests, i.Digest)) &&
				(len(events) == 0 || events[storage.EventKey{Tenant: i.Identity.Tenant, EventID: i.Identity.SubjectRef}])
		}, errForeign),
	)
}

func checkOutboxStats(_ *struct{}, out *storage.OutboxStats) error {
	return each(out.Counts, func(_ int, c *storage.ItemCount) bool { return c.Items >= 0 && c.Open >= 0 && c.Open <= c.Items }, errForeign)
}

func checkRoutes(_ *struct{}, out *storage.RouteSet) error {
	mappings := make(map[string]bool, len(out.Mappings))
	for _, m := range out.Mappings {
		mappings[m.Version] = true
	}
	seen := make(map[int64]bool, len(out.Routes))
	return first(
		holds(out.Revision >= 0, "a revision"),
		each(out.Routes, func(_ int, r *storage.Route) bool {
			ok := r.ID > 0 && !seen[r.ID] && (r.MappingVersion == "" || mappings[r.MappingVersion])
			seen[r.ID] = true
			return ok
		}, errForeign),
	)
}

func checkChangeRoutes(in *storage.RouteChange, out *storage.RouteSet) error {
	return first(holds(out.Revision >= in.Revision, "a revision that never falls"), checkRoutes(nil, out))
}

func checkBeat(_ *storage.Heartbeat, out *storage.HeartbeatResult) error {
	return first(holds(!out.Now.IsZero(), "the store's clock"), checkIncarnation(&out.Incarnation))
}

func checkHosts(_ *storagev1.HostsRequest, out *storagev1.HostsAnswer) error {
	seen := map[string]bool{}
	return each(out.Result, func(_ int, h *storage.HostRow) bool {
		ok := h.Host != "" && !seen[h.Host]
		seen[h.Host] = true
		return ok
	}, errForeign)
}

func checkClockSamples(_ *struct{}, out *storagev1.ClockSamplesAnswer) error {
	return each(out.Result, func(_ int, s *storage.ClockSample) bool { return s.Host != "" && !s.StoreAt.IsZero() }, errForeign)
}

func checkHold(in *storagev1.HoldRequest, out *storage.Holding) error {
	return foreign(!out.Held || (out.Owner == in.Owner && in.TTL > 0))
}

func checkSupersede(in *storagev1.SupersedeRequest, out *storagev1.SupersedeAnswer) error {
	return first(
		count(len(out.Result), len(in.List)),
		each(out.Result, func(_ int, r *storage.SupersedeResult) bool {
			return (r.Rows == 0 && r.NewItemID == 0) || (r.Rows == 1 && r.NewItemID > 0)
		}, errForeign),
	)
}

func checkEnqueue(in *storage.EnqueueRequest, out *storagev1.EnqueueAnswer) error {
	return first(
		count(len(out.Result), len(in.Items)),
		each(out.Result, func(_ int, id *int64) bool { return *id >= 0 }, errForeign),
	)
}

func checkMarkRestored(_ *storage.RestoreRequest, out *storagev1.MarkRestoredAnswer) error {
	return holds(out.Result >= 0, "a count")
}

func checkListActions(in *storage.ActionQuery, out *storage.ActionPage) error {
	if n := len(out.Actions); n > 0 && out.Next != out.Actions[n-1].ID {
		return errCursor
	}
	return first(
		page{len(out.Actions), in.Limit, out.More}.check(),
		ascending(out.Actions, &storage.Action{ID: in.After}, func(a, b *storage.Action) int { return cmp.Compare(a.ID, b.ID) }),
		each(out.Actions, func(_ int, a *storage.Action) bool {
			return (in.ItemID == 0 || a.ItemID == in.ItemID) && matches(string(in.Kind), string(a.Kind))
		}, errForeign),
	)
}

func checkMigrate(_ *struct{}, out *storagev1.MigrateAnswer) error {
	return checkMigrations(out.Result)
}

func checkMigrationStatus(_ *struct{}, out *storagev1.MigrationStatusAnswer) error {
	return checkMigrations(out.Result)
}

func checkMigrations(list []storage.Migration) error {
	return ascending(list, &storage.Migration{}, func(a, b *storage.Migration) int { return cmp.Compare(a.Version, b.Version) })
}
