package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// define makes a case. requirements and needs are written in one string each.
func define(name, requirements string, needs []storage.Capability, f func(*run)) Case {
	return Case{Name: name, Requirements: strings.Fields(requirements), Needs: needs, run: f}
}

// fresh makes a case that needs the store to itself.
func fresh(name, requirements string, needs []storage.Capability, f func(*run)) Case {
	c := define(name, requirements, needs, f)
	c.Fresh = true
	return c
}

func caps(all ...storage.Capability) []storage.Capability { return all }

func manifestCases() []Case {
	return []Case{
		define("manifest/vocabulary", "B10 B-T13", nil, manifestVocabulary),
		define("manifest/never-changes", "B8", nil, manifestNeverChanges),
		define("manifest/declared-is-implemented", "B7 B8", nil, declaredIsImplemented),
		define("manifest/undeclared-is-refused", "B8 B9 B48 S16", nil, undeclaredIsRefused),
		define("adapter/ping", "S10", nil, func(r *run) { r.must("ping", r.store.Ping(r.ctx)) }),
	}
}

func manifestVocabulary(r *run) {
	if r.manifest.Name == "" {
		r.errorf("the manifest has no name")
	}
	seen := map[storage.Capability]bool{}
	for _, c := range r.manifest.Capabilities {
		if !slices.Contains(Vocabulary(), c) {
			r.errorf("unknown capability %q", c)
		}
		if seen[c] {
			r.errorf("capability %q is declared twice", c)
		}
		seen[c] = true
	}
	for _, needs := range [][2]storage.Capability{
		{storage.Corrections, storage.DurableEvents},
		{storage.Outbox, storage.DurableEvents},
		{storage.EventStreaming, storage.DurableEvents},
		{storage.ProjectionGenerations, storage.EventStreaming},
		{storage.Buckets, storage.DurableEvents},
	} {
		if seen[needs[0]] && !seen[needs[1]] {
			r.errorf("%s is of no use without %s", needs[0], needs[1])
		}
	}
}

func manifestNeverChanges(r *run) {
	for range 3 {
		r.same("Describe", r.store.Describe(), r.manifest)
	}
}

// interfaceOf asks the dispatcher for each interface of a capability.
func interfaceOf(a storage.Adapter, c storage.Capability) []error {
	ask := func(errs ...error) []error { return errs }
	switch c {
	case storage.DurableEvents:
		return ask(reach[storage.EventStore](a, c), reach[storage.Aggregator](a, c))
	case storage.Subscriptions:
		return ask(reach[storage.SubscriptionStore](a, c))
	case storage.EventStreaming:
		return ask(reach[storage.EventStreamer](a, c))
	case storage.Outbox:
		return ask(reach[storage.OutboxStore](a, c), reach[storage.RouteStore](a, c), reach[storage.SettlementStore](a, c),
			reach[storage.HostStore](a, c), reach[storage.ReconcileStore](a, c))
	case storage.Counters:
		all := ask(reach[storage.CounterStore](a, c), reach[storage.HistoryStore](a, c))
		if a.Describe().Has(storage.Outbox) {
			all = append(all, reach[storage.ReportStore](a, c))
		}
		return all
	case storage.Corrections:
		return ask(reach[storage.CorrectionStore](a, c))
	case storage.ProjectionGenerations:
		return ask(reach[storage.ProjectionStore](a, c), reach[storage.ProjectionKeeper](a, c))
	case storage.Buckets:
		return ask(reach[storage.BucketStore](a, c), reach[storage.SnapshotStore](a, c))
	case storage.Retention:
		return ask(reach[storage.RetentionStore](a, c))
	}
	return nil
}

func reach[T any](a storage.Adapter, c storage.Capability) error {
	_, err := need[T](a, c)
	return err
}

func declaredIsImplemented(r *run) {
	for _, c := range r.manifest.Capabilities {
		for _, err := range interfaceOf(r.store, c) {
			if err != nil {
				r.errorf("%v", err)
			}
		}
	}
}

// An adapter that declares nothing is asserted to refuse everything, by the
// name of what is missing.
func undeclaredIsRefused(r *run) {
	for _, c := range Vocabulary() {
		if r.manifest.Has(c) {
			continue
		}
		for _, err := range interfaceOf(r.store, c) {
			r.tagIs("a call of "+string(c), err, sdk.TagUnsupported, string(c))
		}
	}
}

func deadlineCases() []Case {
	durable := caps(storage.DurableEvents)
	return []Case{
		define("deadline/canceled-calls-are-unavailable", "B46 B48 S14", nil, canceledCalls),
		define("deadline/passed-deadline-is-unavailable", "B46 S14", durable, passedDeadline),
		define("deadline/a-repeat-counts-once", "B46 B-T9", durable, repeatCountsOnce),
	}
}

// Every method answers a context that has ended at once and by tag.
func canceledCalls(r *run) {
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	r.tagIs("Ping", r.store.Ping(ctx), sdk.TagUnavailable, "")
	e := usage(r.tenant("a"), "1", "1")
	for name, call := range callsOf(r.store, e) {
		r.tagIs(name, call(ctx), sdk.TagUnavailable, "")
	}
	if r.manifest.Has(storage.DurableEvents) {
		r.absent("after canceled calls", e.Tenant, e.EventID)
	}
}

// callsOf returns a call of each declared capability.
func callsOf(a storage.Adapter, e storage.Event) map[string]func(context.Context) error {
	calls := map[string]func(context.Context) error{}
	m := a.Describe()
	if s, ok := a.(storage.EventStore); ok && m.Has(storage.DurableEvents) {
		calls["RecordEvents"] = func(ctx context.Context) error {
			_, err := s.RecordEvents(ctx, storage.RecordRequest{Units: units(e), Mode: storage.Atomic})
			return err
		}
		calls["LoadEvent"] = func(ctx context.Context) error { _, err := s.LoadEvent(ctx, keyOf(&e)); return err }
		calls["LoadTotals"] = func(ctx context.Context) error {
			_, err := s.LoadTotals(ctx, storage.TotalsQuery{Tenant: e.Tenant})
			return err
		}
	}
	if s, ok := a.(storage.CorrectionStore); ok && m.Has(storage.Corrections) {
		calls["RecordCorrection"] = func(ctx context.Context) error {
			_, err := s.RecordCorrection(ctx, storage.CorrectRequest{Event: correction(&e, "c", "1")})
			return err
		}
	}
	if s, ok := a.(storage.EventStreamer); ok && m.Has(storage.EventStreaming) {
		calls["StreamEvents"] = func(ctx context.Context) error {
			_, err := s.StreamEvents(ctx, storage.StreamQuery{Limit: 1})
			return err
		}
	}
	if s, ok := a.(storage.SubscriptionStore); ok && m.Has(storage.Subscriptions) {
		calls["PutSubscription"] = func(ctx context.Context) error {
			_, err := s.PutSubscription(ctx, subscriptionOf(e.Tenant))
			return err
		}
	}
	if s, ok := a.(storage.OutboxStore); ok && m.Has(storage.Outbox) {
		calls["Claim"] = func(ctx context.Context) error {
			_, err := s.Claim(ctx, storage.ClaimRequest{Owner: "w", Routes: []int64{1 << 60}, Limit: 1, Lease: time.Minute})
			return err
		}
		calls["Transition"] = func(ctx context.Context) error {
			_, err := s.Transition(ctx, []storage.Transition{{
				ItemID: 1 << 60, Expect: storage.Expect{State: storage.Pending}, Set: storage.Change{State: storage.Quarantined},
			}})
			return err
		}
	}
	if s, ok := a.(storage.CounterStore); ok && m.Has(storage.Counters) {
		calls["FlushBatch"] = func(ctx context.Context) error {
			_, err := s.FlushBatch(ctx, storage.FlushBatch{ID: e.Tenant, Owner: "w"})
			return err
		}
	}
	return calls
}

func passedDeadline(r *run) {
	ctx, cancel := context.WithDeadline(r.ctx, period) // long ago
	defer cancel()
	_, err := r.eventStore().RecordEvents(ctx, r.request(units(usage(r.tenant("a"), "1", "1")), storage.Atomic))
	r.tagIs("RecordEvents", err, sdk.TagUnavailable, "")
	_, err = r.eventStore().LoadTotals(ctx, storage.TotalsQuery{Tenant: r.tenant("a")})
	r.tagIs("LoadTotals", err, sdk.TagUnavailable, "")
}

// A call whose time runs out somewhere in the middle may or may not have
// happened; repeated with the same ids, it counts once.
func repeatCountsOnce(r *run) {
	t := r.tenant("a")
	for i := range r.opts.Rounds {
		e := usage(t, "e"+decimalInt(i), "1")
		req := r.request(units(e), storage.Atomic)
		ctx, cancel := context.WithTimeout(r.ctx, time.Duration(i)*100*time.Microsecond)
		_, err := r.eventStore().RecordEvents(ctx, req)
		cancel()
		if err != nil {
			r.tagIs("a call that ran out of time", err, sdk.TagUnavailable, "")
		}
		out := r.record(storage.Atomic, units(e)...)[0].Outcome
		if out != storage.Duplicate && (err == nil || out != storage.Inserted) {
			r.errorf("the repeat of a call that answered %v is %q", err, out)
		}
	}
	n := int64(r.opts.Rounds)
	r.totalIs("after the repeats", t, decimalInt(r.opts.Rounds), n, n)
}

func lastCases() []Case {
	return []Case{define("adapter/close", "B7", nil, closes)}
}

// Close may be called more than once, and a later call says that it did not
// happen instead of panicking.
func closes(r *run) {
	for range 2 {
		r.must("close", r.store.Close())
	}
	r.tagIs("Ping of a closed store", r.store.Ping(r.ctx), sdk.TagUnavailable, "")
	if r.manifest.Has(storage.DurableEvents) {
		_, err := r.eventStore().LoadEvent(r.ctx, storage.EventKey{Tenant: r.tenant("a"), EventID: "1"})
		r.tagIs("LoadEvent of a closed store", err, sdk.TagUnavailable, "")
	}
}
