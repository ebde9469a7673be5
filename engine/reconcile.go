package engine

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/engine/outbox/reconcile"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Reconcile compares what was reported to a destination with what its provider
// counted, stores the run and confirms what agrees; see [reconcile.Run]. It
// sends nothing. prober asks the destination's provider.
//
// # Errors
//
// Those of [reconcile.Run]; not_found: no exporter of that name is configured
// here.
func (e *Engine) Reconcile(ctx context.Context, dest outbox.Destination, prober reconcile.Prober, r reconcile.Request) (storage.Reconciliation, error) {
	st, err := e.reconciliations()
	if err != nil {
		return storage.Reconciliation{}, err
	}
	m, known := e.cfg.Manifests[dest.Exporter]
	if !known {
		return storage.Reconciliation{}, &sdk.Error{Tag: sdk.TagNotFound, Field: "exporter", Rule: "an exporter that is configured here"}
	}
	ctx, confirmed, end := e.startReconcile(ctx, dest.Exporter)
	done, err := reconcile.Run(ctx, reconcile.Config{
		Confirmed: confirmed,
		Store:     st, Routes: e.store.routes, Prober: prober, Manifest: m, Destination: dest, Now: e.cfg.Now, Logger: e.cfg.Logger,
		Items: e.store.items, Attest: func(ctx context.Context, id int64, what string) error {
			_, err := e.AddEvidence(ctx, id, Evidence{
				Kind: outbox.EvidenceProvider, Source: outbox.SourceSumPresent, Finding: outbox.FoundTaken, Text: what,
			}, outbox.Act{Actor: r.Act.Actor, Reason: r.Act.Reason})
			return err
		},
	}, r)
	end(done, err)
	if err != nil {
		return done, tagged(ctx, err)
	}
	return done, nil
}

// Reconciliations returns runs, latest first, without lines.
func (e *Engine) Reconciliations(ctx context.Context, q storage.ReconciliationQuery) ([]storage.Reconciliation, error) {
	st, err := e.reconciliations()
	if err != nil {
		return nil, err
	}
	all, err := st.Reconciliations(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list reconciliations: %w", err)
	}
	return all, nil
}

// ReconciliationLines returns the lines of one run above after, in order, at
// most limit. It fails with not_found if there is no such run.
func (e *Engine) ReconciliationLines(ctx context.Context, run string, after int64, limit int) ([]storage.ReconciliationLine, error) {
	st, err := e.reconciliations()
	if err != nil {
		return nil, err
	}
	lines, err := st.ReconciliationLines(ctx, run, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list reconciliation lines: %w", err)
	}
	if len(lines) > 0 || after > 0 {
		return lines, nil
	}
	known, err := e.Reconciliations(ctx, storage.ReconciliationQuery{ID: run, Limit: 1})
	if err == nil && len(known) == 0 {
		err = &sdk.Error{Tag: sdk.TagNotFound, Field: "reconciliation", Rule: "a run that exists"}
	}
	return lines, err
}

func (e *Engine) reconciliations() (storage.ReconcileStore, error) {
	return need[storage.ReconcileStore](e.cfg.Store, storage.Outbox)
}
