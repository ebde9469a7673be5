package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// cutoverDecider stores which periods of a tenant's feature durable events
// report. A [Transaction] may be one: then what is decided is decided with it.
type cutoverDecider interface {
	DecideCutovers(ctx context.Context, list []storage.Cutover) ([]storage.Cutover, error)
}

// cutoverKey is one feature of one tenant.
type cutoverKey struct{ tenant, feature string }

// cutovers remembers decisions. A decision never changes, so neither does what is
// remembered. // Q21.
type cutovers struct {
	mu   sync.RWMutex
	from map[cutoverKey]time.Time
}

// cutoversMax bounds what is remembered; past it all is forgotten, which costs
// one read each.
const cutoversMax = 1_000_000

func (c *cutovers) get(k cutoverKey) (time.Time, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t, ok := c.from[k]
	return t, ok
}

func (c *cutovers) put(decided []storage.Cutover) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.from == nil || len(c.from)+len(decided) > cutoversMax {
		c.from = make(map[cutoverKey]time.Time, len(decided))
	}
	for _, d := range decided {
		c.from[cutoverKey{d.Tenant, d.Feature}] = d.DurableFrom
	}
}

// firstBoundary is the start of the first period that begins at or after an
// instant.
func firstBoundary(cal period.Calendar, at time.Time) time.Time {
	p := cal.At(at)
	if p.Start.Equal(at) {
		return p.Start
	}
	return p.End
}

// withCutovers adds to tenants which of their periods durable events report, for
// the features that have a cutover. What is not decided yet is decided now, at
// the tenant's own boundary, and stored before anything is recorded by it. // O23.
func (r recorder) withCutovers(ctx context.Context, tenants map[string]subject, features []cutoverKey) error {
	var undecided []storage.Cutover
	found := map[cutoverKey]time.Time{}
	for _, k := range features {
		at := r.engine.cfg.Features[k.feature].Cutover
		if at.IsZero() {
			continue
		}
		if from, ok := r.engine.cutovers.get(k); ok {
			found[k] = from
			continue
		}
		if _, twice := found[k]; !twice {
			found[k] = firstBoundary(tenants[k.tenant].calendar, at)
			undecided = append(undecided, storage.Cutover{Tenant: k.tenant, Feature: k.feature, DurableFrom: found[k]})
		}
	}
	decided, err := r.engine.decide(ctx, r.store.cutovers, undecided)
	if err != nil {
		return err
	}
	for _, d := range decided {
		found[cutoverKey{d.Tenant, d.Feature}] = d.DurableFrom
	}
	for k, from := range found {
		s := tenants[k.tenant]
		s.durableFrom = maps.Clone(s.durableFrom) // the remembered subject stays as it is
		if s.durableFrom == nil {
			s.durableFrom = map[string]time.Time{}
		}
		s.durableFrom[k.feature] = from
		tenants[k.tenant] = s
	}
	return nil
}

// decide stores decisions and returns those that stand. Decisions made in a
// caller's transaction are remembered by nobody: it may be rolled back.
func (e *Engine) decide(ctx context.Context, bound cutoverDecider, list []storage.Cutover) ([]storage.Cutover, error) {
	if len(list) == 0 {
		return nil, nil
	}
	store := bound
	if store == nil {
		store = e.report
	}
	if store == nil {
		return nil, needsReports(e.cfg.Store)
	}
	decided, err := store.DecideCutovers(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("decide cutovers: %w", err)
	}
	if len(decided) != len(list) {
		return nil, sdk.Unavailable("storage_answer", errors.New("the storage adapter answered for another number of cutovers"))
	}
	for i, d := range decided {
		decided[i].DurableFrom = d.DurableFrom.UTC()
		if d.Tenant != list[i].Tenant || d.Feature != list[i].Feature || d.DurableFrom.IsZero() {
			return nil, sdk.Unavailable("storage_answer", errors.New("the storage adapter answered another cutover"))
		}
	}
	if bound == nil {
		e.cutovers.put(decided)
	}
	return decided, nil
}

// needsReports is the error of a store that cannot say who reports a period.
func needsReports(a storage.Adapter) error {
	if _, err := need[storage.CounterStore](a, storage.Counters); err != nil {
		return err
	}
	_, err := need[storage.ReportStore](a, storage.Outbox)
	return err
}

// counted reports whether the counter of a feature reports a period. // O23.
func (s subject) counted(feature string, periodStart time.Time) bool {
	from, ok := s.durableFrom[feature]
	return ok && periodStart.Before(from)
}

// cutoverPage is how many decisions one call reads.
const cutoverPage = 1000

// counterOwns reports whether the counter of a tenant's feature reports the period
// that begins at an instant, whatever this host's configuration says of the
// feature: another host may have decided. Where nobody has and a cutover is
// configured it is decided now. tx is a caller's transaction, nil without. // Q21.
func (r recorder) counterOwns(ctx context.Context, tenant, feature string, periodStart time.Time) (bool, error) {
	k := cutoverKey{tenant, feature}
	if from, ok := r.engine.cutovers.get(k); ok {
		return periodStart.Before(from), nil
	}
	if !r.engine.cfg.Features[feature].Cutover.IsZero() {
		tenants, err := r.subjects.of(ctx, []string{tenant})
		if err != nil {
			return false, err
		}
		if err := r.withCutovers(ctx, tenants, []cutoverKey{k}); err != nil {
			return false, err
		}
		return tenants[tenant].counted(feature, periodStart), nil
	}
	if r.engine.report == nil {
		return false, nil
	}
	after := storage.Cutover{Tenant: tenant}
	for {
		list, err := r.engine.report.Cutovers(ctx, after, cutoverPage)
		if err != nil {
			return false, fmt.Errorf("read cutovers: %w", err)
		}
		for _, c := range list {
			if c.Tenant == tenant && c.Feature == feature {
				r.engine.cutovers.put([]storage.Cutover{c})
				return periodStart.Before(c.DurableFrom), nil
			}
		}
		if len(list) < cutoverPage || list[len(list)-1].Tenant != tenant {
			return false, nil
		}
		after = list[len(list)-1]
	}
}

// countedOriginal reports whether an event was added to the counter of its
// feature, so that what is taken back of it is taken from there: the counter
// reports its period, and nothing else reports the event, as it would if it was
// recorded before there was a cutover.
func (r recorder) countedOriginal(ctx context.Context, c storage.Correctable) (bool, error) {
	for _, it := range c.Items {
		if outbox.Reason(it.QuarantineReason) != outbox.ReasonPeriodBuffered {
			return false, nil
		}
	}
	return r.counterOwns(ctx, c.Original.Tenant, c.Original.Feature, c.Original.PeriodStart)
}

// counterOwns is [recorder.counterOwns] outside of any transaction.
func (e *Engine) counterOwns(ctx context.Context, tenant, feature string, periodStart time.Time) (bool, error) {
	return recorder{engine: e, store: e.store, subjects: e.subjects}.counterOwns(ctx, tenant, feature, periodStart)
}

// CheckSources fails with tag conflict if the configured sources of features are
// not those that the store was used with: code "cutover_decided" if it is decided
// for a tenant that other periods are reported from events than the configuration
// asks for, and "reported_by_counter" if a feature whose usage is recorded as
// events, without a cutover, was reported from its counter. Features that are not
// configured are left alone: another host may measure them. // O23, Q21.
func (e *Engine) CheckSources(ctx context.Context) error {
	if e.report == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(e.cfg.Features)) {
		f := e.cfg.Features[name]
		if f.Buffered || !f.Cutover.IsZero() {
			continue
		}
		page, err := e.report.ReportBounds(ctx, storage.BoundQuery{Feature: name, Limit: 1})
		if err != nil {
			return fmt.Errorf("read report bounds: %w", err)
		}
		if len(page.Bounds) > 0 {
			return &sdk.Error{
				Tag: sdk.TagConflict, Code: "reported_by_counter", Field: "features." + name,
				Rule: "a feature whose usage was reported from its counter stays buffered, or has a cutover",
				Hint: "set features." + name + ".cutover to when events take over",
			}
		}
	}
	var after storage.Cutover
	for {
		list, err := e.report.Cutovers(ctx, after, cutoverPage)
		if err != nil {
			return fmt.Errorf("read cutovers: %w", err)
		}
		if err := e.checkDecided(ctx, list); err != nil {
			return err
		}
		if len(list) < cutoverPage {
			return nil
		}
		after = list[len(list)-1]
	}
}

// checkDecided compares decisions with the configuration.
func (e *Engine) checkDecided(ctx context.Context, list []storage.Cutover) error {
	var tenants []string
	for _, c := range list {
		if _, configured := e.cfg.Features[c.Feature]; configured {
			tenants = append(tenants, c.Tenant)
		}
	}
	slices.Sort(tenants)
	found, err := e.subjects.of(ctx, slices.Compact(tenants))
	if err != nil {
		return err
	}
	for _, c := range list {
		f, configured := e.cfg.Features[c.Feature]
		if !configured || decidedBy(f.Cutover, c.DurableFrom, found[c.Tenant].calendar) {
			continue
		}
		err := &sdk.Error{
			Tag: sdk.TagConflict, Code: "cutover_decided", Field: "features." + c.Feature + ".cutover",
			Rule: "the cutover that was decided: for one tenant at least, events report the periods from " + c.DurableFrom.Format(time.RFC3339) + " on",
			Hint: "set it back to what it was; what is decided for a tenant never changes",
		}
		return err
	}
	return nil
}

// decidedBy reports whether a cutover can have led to a decision. The tenant's
// calendar may have changed since; then only what no calendar allows is refused.
func decidedBy(cutover, from time.Time, now period.Calendar) bool {
	if cutover.IsZero() || from.Before(cutover) || from.Sub(cutover) > longestPeriod {
		return false
	}
	unchanged := now.At(from).Start.Equal(from)
	return !unchanged || firstBoundary(now, cutover).Equal(from)
}

// longestPeriod is longer than a year, the longest interval, whatever its clocks do.
const longestPeriod = 367 * 24 * time.Hour
