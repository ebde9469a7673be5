package sqlite

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// boundStore answers from within a transaction.
type boundStore struct{ tx *Tx }

var _ BoundStore = boundStore{}

// do runs f unless the transaction is over. The transaction's context is the
// one that interrupts; the call's own is looked at first.
func (b boundStore) do(ctx context.Context, op string, f func(*conn) error) error {
	if b.tx.done {
		return storeError(ctx, op, sdk.Unavailable("transaction_ended", errors.New("the transaction is over")))
	}
	if err := ctx.Err(); err != nil {
		return storeError(ctx, op, err)
	}
	return storeError(b.tx.ctx, op, f(b.tx.c))
}

func (b boundStore) RecordEvents(ctx context.Context, req storage.RecordRequest) (res storage.RecordResult, err error) {
	err = b.do(ctx, "record events", func(c *conn) (err error) {
		res, err = recordIn(ctx, c, b.tx.a.now, req)
		return err
	})
	return res, err
}

func (b boundStore) LoadCorrectable(ctx context.Context, key storage.EventKey) (found storage.Correctable, err error) {
	err = b.do(ctx, "load correctable", func(c *conn) (err error) {
		found, err = loadCorrectable(c, key)
		return err
	})
	return found, err
}

func (b boundStore) RecordCorrection(ctx context.Context, req storage.CorrectRequest) (res storage.CorrectResult, err error) {
	err = b.do(ctx, "record correction", func(c *conn) (err error) {
		res, err = correctIn(ctx, c, b.tx.a.now, req)
		return err
	})
	return res, err
}

func (b boundStore) LoadEvent(ctx context.Context, key storage.EventKey) (ev storage.Event, err error) {
	err = b.do(ctx, "load event", func(c *conn) (err error) {
		ev, err = loadEvent(c, key)
		return err
	})
	return ev, err
}

func (b boundStore) LoadReceipt(ctx context.Context, key storage.ReceiptKey) (rc storage.Receipt, err error) {
	err = b.do(ctx, "load receipt", func(c *conn) (err error) {
		rc, err = loadReceipt(c, key)
		return err
	})
	return rc, err
}

func (b boundStore) LoadTotals(ctx context.Context, q storage.TotalsQuery) (all []storage.Total, err error) {
	err = b.do(ctx, "load totals", func(c *conn) (err error) {
		all, err = loadTotals(c, q)
		return err
	})
	return all, err
}

func (b boundStore) Subscriptions(ctx context.Context, tenants []string) (all []storage.Subscription, err error) {
	err = b.do(ctx, "load subscriptions", func(c *conn) (err error) {
		all, err = subscriptions(c, tenants)
		return err
	})
	return all, err
}

func (b boundStore) PutSubscription(ctx context.Context, s storage.Subscription) (stored storage.Subscription, err error) {
	err = b.do(ctx, "put subscription", func(c *conn) (err error) {
		stored, err = putSubscription(c, s, b.tx.a.now())
		return err
	})
	return stored, err
}

func (b boundStore) ListSubscriptions(ctx context.Context, after string, limit int) (all []storage.Subscription, err error) {
	err = b.do(ctx, "list subscriptions", func(c *conn) (err error) {
		all, err = listSubscriptions(c, after, limit)
		return err
	})
	return all, err
}

func (b boundStore) Routes(ctx context.Context) (set storage.RouteSet, err error) {
	err = b.do(ctx, "load routes", func(c *conn) (err error) {
		set, err = routes(c)
		return err
	})
	return set, err
}

// DecideCutovers is that of [storage.ReportStore]: who records in a transaction
// cannot wait for another one.
func (b boundStore) DecideCutovers(ctx context.Context, list []storage.Cutover) (stored []storage.Cutover, err error) {
	err = b.do(ctx, "decide cutovers", func(c *conn) error {
		return c.savepoint(func() (err error) {
			stored, err = decideCutovers(c, list)
			return err
		})
	})
	return stored, err
}

func (b boundStore) ChangeRoutes(ctx context.Context, change storage.RouteChange) (set storage.RouteSet, err error) {
	err = b.do(ctx, "change routes", func(c *conn) error {
		return c.savepoint(func() (err error) {
			set, err = changeRoutes(c, change, b.tx.a.now())
			return err
		})
	})
	return set, err
}
