package host

import (
	"context"
	"errors"
	"strconv"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host/api"
)

// settling is what of a host the API offers to people who settle something.
type settling struct{ host *Host }

// RecoverRestore is [api.Restorer].
func (s settling) RecoverRestore(ctx context.Context, ask api.RestoreAsk) (api.RestoreAnswer, error) {
	do := s.host.RecoverRestore
	if ask.Unnoticed {
		do = s.host.RecoverUnnoticed
	}
	done, err := do(ctx, ask.Act)
	out := api.RestoreAnswer{DryRun: ask.Act.DryRun, Items: strconv.FormatInt(done.Items, 10)}
	for _, c := range done.Of {
		out.Of = append(out.Of, api.RestoreCount{State: c.State, Reason: c.Reason, Items: strconv.FormatInt(c.Items, 10)})
	}
	return out, err
}

// RecoverAdopt is [api.Restorer].
func (s settling) RecoverAdopt(ctx context.Context, a engine.Act) error {
	_, err := s.host.RecoverAdopt(ctx, a)
	return err
}

// Reconcile is [api.Reconciler]. Without loops nobody would go on with it, so it
// is done here; only its caller's leaving ends it then, no request's deadline.
func (s settling) Reconcile(ctx context.Context, ask api.ReconcileAsk) (string, bool, error) {
	r := ReconcileRequest{
		Exporter: ask.Exporter, From: ask.From, To: ask.To, Customer: ask.Customer, Feature: ask.Feature, Whole: ask.Whole,
		Actor: ask.Actor, Reason: ask.Reason, DryRun: ask.DryRun,
	}
	if !s.host.cfg.WithoutDelivery {
		id, err := s.host.StartReconcile(ctx, r)
		return id, false, err
	}
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})()
	run, err := s.host.Reconcile(whole, r)
	return run.ID, true, err
}
