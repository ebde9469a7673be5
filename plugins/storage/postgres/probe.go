package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
)

const (
	qProbeRow    query = "probe_row"
	qProbeHold   query = "probe_hold"
	qProbeSkip   query = "probe_skip"
	qProbeFence  query = "probe_fence"
	qProbeShared query = "probe_shared"
)

// probe shows, on real rows in two transactions, that the database does what
// claims and the route lock rest on. There are databases that speak this
// protocol, accept the statements and lock nothing.
func (a *Adapter) probe(ctx context.Context) error {
	err := ownTx{a}.transact(ctx, "probe", writing{}, func(ctx context.Context, first *tx) error {
		if _, err := first.exec(ctx, qProbeRow); err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	var token int64
	err = ownTx{a}.transact(ctx, "probe", writing{}, func(ctx context.Context, holder *tx) error {
		if err := holder.row(ctx, qProbeHold, []any{&token}); err != nil {
			return err
		}
		if _, err := holder.exec(ctx, qProbeShared, lockClassProbe, a.target.scope()); err != nil {
			return err
		}
		return ownTx{a}.transact(ctx, "probe", writing{pool: deliveryPool}, probeHeld)
	})
	if err != nil {
		return err
	}
	return ownTx{a}.transact(ctx, "probe", writing{}, func(ctx context.Context, t *tx) error {
		n, err := t.exec(ctx, qProbeFence, token-1)
		if err == nil && n != 0 {
			err = unsafeServer("fence", "a database that tests the condition of an update")
		}
		return err
	})
}

// probeHeld expects, while another transaction holds the row and the shared
// side of a lock, that the row is skipped and the exclusive side refused.
func probeHeld(ctx context.Context, t *tx) error {
	err := t.row(ctx, qProbeSkip, []any{new(int64)})
	if err == nil {
		return unsafeServer("skip_locked", "a database that skips rows which others have locked")
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	switch err := t.tryExclusiveFor(ctx, lockClassProbe, 10*time.Millisecond); {
	case err == nil:
		return unsafeServer("advisory_locks", "a database whose advisory locks exclude each other")
	case sqlState(err) != stateLockTimeout:
		return err
	}
	return errUndo
}

func unsafeServer(code, rule string) error {
	return &sdk.Error{
		Tag: sdk.TagUnsupported, Code: code, Field: dsnField, Rule: rule,
		Hint: "use PostgreSQL 15 or newer, or a service that runs it",
	}
}
