package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// staleRetries bounds how often one call reads routes and subscriptions again
// because they changed between the reading and the transaction.
const staleRetries = 8

// Record records events, all or none. It returns a result for each, in order.
//
// # Errors
//
// Invalid: an event breaks a rule; all broken rules are listed ([meter.Errors])
// and nothing was written. Conflict: an id exists with other content; nothing
// was written. Unavailable: the events may or may not be recorded; call again
// with the same ids and, where the caller sets one, the same time. With code
// "overloaded", too many calls ran at the same time and nothing was recorded.
func (e *Engine) Record(ctx context.Context, events ...Event) ([]Result, error) {
	return e.RecordBatch(ctx, plainBatch(events))
}

// RecordBatch records plain events and CloudEvents. In atomic mode it answers
// as [Engine.Record] does. In mode each, an input that is invalid or in
// conflict is reported in its result and the others are recorded; the error
// then only says that nothing is known of the call as a whole.
//
// At most 500 inputs. A call with one input may be written together with other
// callers' inputs; that changes nothing it can see.
func (e *Engine) RecordBatch(ctx context.Context, b Batch) ([]Result, error) {
	start := e.cfg.Now()
	ctx, end := e.startRecord(ctx, b)
	results, err := e.recordBatch(ctx, b)
	end(results, err)
	e.cfg.Observer.RecordTook(e.cfg.Now().Sub(start))
	return results, err
}

func (e *Engine) recordBatch(ctx context.Context, b Batch) ([]Result, error) {
	if err := e.calls.begin(); err != nil {
		return nil, err
	}
	defer e.calls.end()
	if e.gather != nil && len(b.Inputs) == 1 {
		r := e.gather.record(ctx, b.Inputs[0])
		switch {
		case r.Outcome == "":
			return nil, r.Err
		case b.Mode != storage.Each && r.Err != nil:
			return nil, single(faults(r.Err).At(0))
		}
		return []Result{r}, nil
	}
	r := recorder{engine: e, store: e.store, subjects: e.subjects}
	results, err := r.run(ctx, b)
	e.observe(results)
	return results, err
}

// recordGathered writes what the coalescer gathered from several callers. A
// panic, in this program or in a store that is linked into it, is an unknown
// outcome for these callers and ends nothing else.
func (e *Engine) recordGathered(ctx context.Context, inputs []Input) (results []Result) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Logger.ErrorContext(ctx, "recording panicked", "stack", string(debug.Stack()))
			results = unknown(inputs, sdk.Unavailable("panic", errors.New("recording panicked")))
		}
	}()
	r := recorder{engine: e, store: e.store, subjects: e.subjects}
	results, err := r.run(ctx, Batch{Inputs: inputs, Mode: storage.Each})
	switch {
	case err == nil:
	case len(inputs) > 1 && !errors.Is(err, sdk.ErrUnavailable):
		// Nothing was written, and the fault lies in what was asked: whoever
		// asked it should hear of it, and nobody else.
		results = results[:0]
		for _, in := range inputs {
			results = append(results, e.recordGathered(ctx, []Input{in})...)
		}
		return results
	default:
		results = unknown(inputs, err)
	}
	e.observe(results)
	return results
}

func (e *Engine) observe(results []Result) {
	counts := map[Outcome]int{}
	for _, r := range results {
		counts[r.Outcome]++
	}
	for o, n := range counts {
		if o != "" {
			e.cfg.Observer.Recorded(string(o), n)
		}
	}
}

// recorder carries one call through its steps.
type recorder struct {
	engine   *Engine
	store    stores
	subjects *subjects
	// bound: the transaction is the caller's, who commits it later or not.
	bound bool
}

func (r recorder) run(ctx context.Context, b Batch) ([]Result, error) {
	if n := len(b.Inputs); n > meter.MaxBatchEvents {
		return nil, sdk.Invalid("events", fmt.Sprintf("at most %d in one call", meter.MaxBatchEvents))
	}
	if b.Mode == "" {
		b.Mode = storage.Atomic
	}
	ctx, cancel := context.WithTimeout(ctx, r.engine.cfg.RecordTimeout)
	defer cancel()
	now := meter.Truncate(r.engine.cfg.Now())
	all := r.prepareAll(b.Inputs, now)
	if err := r.redelivered(ctx, all); err != nil {
		return nil, tagged(ctx, err)
	}
	if b.Mode == storage.Atomic {
		if err := refusals(all); err != nil {
			return nil, err
		}
	}
	for todo := leaders(all); len(todo) > 0; todo = promote(all) {
		if err := r.write(ctx, todo, b.Mode); err != nil {
			return nil, tagged(ctx, err)
		}
	}
	if err := fault.Point(ctx, "r9"); err != nil {
		return nil, sdk.Unavailable("fault", err)
	}
	results := make([]Result, len(all))
	for i, p := range all {
		results[i] = p.answer()
		if b.Mode == storage.Atomic && errors.Is(results[i].Err, sdk.ErrConflict) {
			return nil, single(meter.Errors{conflictError()}.At(i))
		}
	}
	return results, nil
}

// refusals returns everything that already rules an atomic call out. A second
// content of one id does: whichever of the two is right, one is a conflict.
func refusals(all []*prepared) error {
	var errs meter.Errors
	for _, p := range all {
		switch {
		case p.refused != nil:
			errs = append(errs, faults(p.refused).At(p.index)...)
		case p.rival != nil, p.result.Outcome == storage.Conflict:
			errs = append(errs, meter.Errors{conflictError()}.At(p.index)...)
		}
	}
	return single(errs)
}

// faults lists what is wrong with an input, never nothing.
func faults(err error) meter.Errors {
	if all := meter.AsErrors(err); len(all) > 0 {
		return all
	}
	return meter.Errors{{Tag: sdk.TagInvalid, Err: err}}
}

// single returns errors as what they are: none, one, or a list.
func single(errs meter.Errors) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errs.Err()
}

// tagged gives an error a tag that it may lack: a store that answers an error
// nobody classified leaves the outcome unknown. // B48.
func tagged(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*sdk.Error](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", contextError(ctx), err)
	}
	return sdk.Unavailable("storage", err)
}

// contextError is the error of a call whose context ended.
func contextError(ctx context.Context) *sdk.Error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return sdk.Unavailable("canceled", ctx.Err())
	}
	return sdk.Unavailable("timeout", ctx.Err())
}

// write hands inputs to the store, again where what they were computed from has
// changed meanwhile.
func (r recorder) write(ctx context.Context, todo []*prepared, mode storage.RecordMode) error {
	for range staleRetries {
		req, err := r.request(ctx, todo, mode)
		if err != nil {
			return err
		}
		res, err := r.store.events.RecordEvents(ctx, req)
		if err != nil {
			return fmt.Errorf("record: %w", err)
		}
		if res.Stale != nil {
			r.subjects.forget(res.Stale)
			continue
		}
		if res.Superseded > 0 {
			// Another mapping of the subject is still to be sent, or was: a
			// second item would charge it again. // Q5
			r.engine.cfg.Logger.WarnContext(ctx, "items not made: the subject has one under another mapping", "items", res.Superseded)
		}
		if err := accept(todo, mode, res.Units); err != nil {
			return err
		}
		r.tellLate(todo)
		return nil
	}
	return sdk.Unavailable("routes_moving", errors.New("routes or subscriptions kept changing"))
}

// accept checks what a store answered before anybody is told. An answer that
// makes no sense leaves the outcome unknown.
func accept(todo []*prepared, mode storage.RecordMode, units []storage.UnitResult) error {
	if len(units) != len(todo) {
		return sdk.Unavailable("storage_answer", errors.New("the storage adapter answered for another number of units"))
	}
	undone := mode == storage.Atomic && slices.ContainsFunc(units, func(u storage.UnitResult) bool {
		return u.Outcome == storage.Conflict
	})
	for i, p := range todo {
		u := units[i]
		ok := u.Outcome == storage.Conflict || u.Outcome == storage.Duplicate ||
			(u.Outcome == storage.Inserted && len(u.Entries) == len(p.events))
		if !ok && !undone {
			return sdk.Unavailable("storage_answer", errors.New("the storage adapter answered something that cannot be"))
		}
		p.result, p.written = u, true
	}
	return nil
}

// request computes periods and outbox items from the tenants and routes as they
// are remembered, and says which revisions that was.
func (r recorder) request(ctx context.Context, todo []*prepared, mode storage.RecordMode) (storage.RecordRequest, error) {
	var names []string
	seen := map[string]bool{}
	for _, p := range todo {
		if t := p.in.tenant(); !seen[t] {
			seen[t] = true
			names = append(names, t)
		}
	}
	tenants, err := r.subjects.of(ctx, names)
	if err != nil {
		return storage.RecordRequest{}, err
	}
	if r.engine.cuts {
		if err := r.withCutovers(ctx, tenants, featuresOf(todo)); err != nil {
			return storage.RecordRequest{}, err
		}
	}
	routes, err := r.subjects.routeSet(ctx)
	if err != nil {
		return storage.RecordRequest{}, err
	}
	req := storage.RecordRequest{Mode: mode, RoutesRevision: routes.Revision, Units: make([]storage.Unit, len(todo))}
	for _, n := range names {
		req.Subscriptions = append(req.Subscriptions, storage.SubscriptionRevision{Tenant: n, Revision: tenants[n].sub.Revision})
	}
	for i, p := range todo {
		u := storage.Unit{Receipt: p.receipt, Entries: make([]storage.Entry, len(p.events))}
		for j, ev := range p.events {
			u.Entries[j] = r.engine.entry(ev, tenants[ev.Tenant], routes, p.now)
		}
		req.Units[i] = u
	}
	return req, nil
}

// featuresOf lists the features of inputs, by tenant.
func featuresOf(todo []*prepared) []cutoverKey {
	var out []cutoverKey
	for _, p := range todo {
		for _, ev := range p.events {
			out = append(out, cutoverKey{ev.Tenant, ev.Feature})
		}
	}
	return out
}

// entry completes an event with its period and plan and computes its items. What
// the counter reports leads to items that nobody sends, and is counted.
func (e *Engine) entry(ev storage.Event, s subject, routes *routeView, now time.Time) storage.Entry {
	p := s.calendar.At(ev.OccurredAt)
	ev.PeriodStart, ev.PeriodEnd = p.Start, p.End
	ev.PeriodSource = storage.FromCalendar
	if s.sub.Revision > 0 {
		ev.PeriodSource = storage.FromSubscription
		ev.Plan, ev.PlanVersion = s.sub.Plan, s.sub.PlanVersion
	}
	var reason outbox.Reason
	counted := s.counted(ev.Feature, p.Start)
	if counted {
		reason = outbox.ReasonPeriodBuffered
	}
	items := outbox.BuildItems(outbox.Enqueue{
		Event: ev, Routes: routes.Routes, Mappings: routes.mappings, Fields: routes.fields, Manifests: e.cfg.Manifests,
		Customers: s.sub.Customers, AttemptBudget: e.cfg.AttemptBudget, Now: now, Reason: reason,
	})
	return storage.Entry{
		Event: ev, Items: items, Signed: e.signed(routes, ev.Feature), Bucket: bucketOf(routes.features[ev.Feature], ev),
		Counted: counted,
	}
}
