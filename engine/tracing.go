package engine

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Tracer is implemented by an [Observer] that also follows single calls.
type Tracer interface {
	// StartRecord begins a call with so many inputs; its context is that of
	// everything the call does. The function that it returns is called once,
	// with the events that are recorded now, whether by this call or before,
	// and the call's error. It must not block.
	StartRecord(ctx context.Context, inputs int) (context.Context, func(events []storage.EventKey, err error))
}

// ReconcileTracer is implemented by an [Observer] that also follows comparisons
// with a provider. Its methods must not block.
type ReconcileTracer interface {
	// StartReconcile begins a comparison; its context is that of everything the
	// comparison does. The function that it returns is called once, with what
	// came of it.
	StartReconcile(ctx context.Context, exporter string) (context.Context, func(done storage.Reconciliation, err error))
	// ConfirmedSum tells that the provider's sum confirmed so many items, which
	// the store does not name. ctx is that of the comparison. // O29
	ConfirmedSum(ctx context.Context, sum storage.SumConfirm, items int64)
}

// startReconcile is the observer's StartReconcile and ConfirmedSum, or nothing.
func (e *Engine) startReconcile(ctx context.Context, exporter string) (
	_ context.Context, confirmed func(context.Context, storage.SumConfirm, int64), end func(storage.Reconciliation, error),
) {
	t, ok := e.cfg.Observer.(ReconcileTracer)
	if !ok {
		return ctx, nil, func(storage.Reconciliation, error) {}
	}
	ctx, end = t.StartReconcile(ctx, exporter)
	return ctx, t.ConfirmedSum, end
}

// startRecord is the observer's StartRecord, or nothing.
func (e *Engine) startRecord(ctx context.Context, b Batch) (context.Context, func([]Result, error)) {
	t, ok := e.cfg.Observer.(Tracer)
	if !ok {
		return ctx, func([]Result, error) {}
	}
	ctx, end := t.StartRecord(ctx, len(b.Inputs))
	return ctx, func(results []Result, err error) {
		var keys []storage.EventKey
		for _, r := range results {
			keys = append(keys, recordedKeys(b.Inputs[r.Index], r)...)
		}
		end(keys, err)
	}
}

// recordedKeys are the events that an input led to.
func recordedKeys(in Input, r Result) []storage.EventKey {
	if r.Outcome != Inserted && r.Outcome != Duplicate {
		return nil
	}
	if in.Plain != nil {
		return []storage.EventKey{{Tenant: in.Plain.Tenant, EventID: r.ID}}
	}
	var keys []storage.EventKey
	for _, entry := range r.Entries {
		keys = append(keys, storage.EventKey{Tenant: in.Cloud.Subject, EventID: entry.EventID})
	}
	return keys
}
