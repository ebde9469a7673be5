package postgres

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qCreditInsert query = "credit_insert"
	qCredit       query = "credit"
	qCredits      query = "credits"
)

// lockClassCredits is held by whoever adds credits.
const lockClassCredits int32 = 0x46505205

// AddCredit appends a credit, or answers with the one that is stored.
func (a *Adapter) AddCredit(ctx context.Context, c storage.Credit) (stored storage.Credit, err error) {
	const op = "add a credit"
	if err := checkCredit(&c); err != nil {
		return stored, fmt.Errorf("%s: %w", op, err)
	}
	err = a.run.write(ctx, op, writing{}, func(ctx context.Context, t *tx) error {
		list, err := t.addCredits(ctx, []storage.Credit{c})
		if err == nil {
			stored = list[0]
		}
		return err
	})
	if err != nil {
		return storage.Credit{}, err
	}
	return stored, nil
}

// addCredits appends credits that were checked and answers them as stored. They
// are written under a lock, so that their order is the one in which they become
// visible: who pages by it misses none.
func (t *tx) addCredits(ctx context.Context, list []storage.Credit) ([]storage.Credit, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if _, err := t.exec(ctx, qClassLock, lockClassCredits, t.a.target.scope()); err != nil {
		return nil, err
	}
	stored := make([]storage.Credit, len(list))
	for i, c := range list {
		if _, err := t.exec(ctx, qCreditInsert, c.Tenant, c.Meter, c.ID, string(c.Kind), c.Amount.String(), c.Reason); err != nil {
			return nil, err
		}
		err := t.each(ctx, qCredit, func(r pgx.Rows) (err error) {
			stored[i], err = scanCredit(r, c.Tenant)
			return err
		}, c.Tenant, c.Meter, c.ID)
		if err != nil {
			return nil, err
		}
		if s := stored[i]; s.Kind != c.Kind || !s.Amount.Equal(c.Amount) || s.Reason != c.Reason {
			return nil, &sdk.Error{Tag: sdk.TagConflict, Code: "credit_exists", Field: "id", Rule: "a name that no other credit of this tenant and meter has"}
		}
	}
	return stored, nil
}

func scanCredit(r pgx.Rows, tenant string) (storage.Credit, error) {
	c := storage.Credit{Tenant: tenant}
	err := r.Scan(&c.Seq, &c.Meter, &c.ID, (*string)(&c.Kind), decimalInto{&c.Amount}, &c.Reason, utcInto{&c.CreatedAt})
	return c, err
}

func checkCredit(c *storage.Credit) error {
	switch {
	case c.Tenant == "" || !storable(c.Tenant):
		return sdk.Invalid("tenant", "required, UTF-8 without NUL")
	case !named(c.Meter):
		return sdk.Invalid("meter", nameRule)
	case !named(c.ID):
		return sdk.Invalid("id", nameRule)
	case c.Kind != storage.CreditGrant && c.Kind != storage.CreditReset:
		return sdk.Invalid("kind", "grant or reset")
	case len(c.Reason) > 1000 || !utf8.ValidString(c.Reason) || !storable(c.Reason):
		return sdk.Invalid("reason", "at most 1000 bytes of UTF-8 without NUL")
	}
	return nil
}

// Credits returns a page of a tenant's credits.
func (a *Adapter) Credits(ctx context.Context, q storage.CreditQuery) (page storage.CreditPage, err error) {
	const op = "list credits"
	if err := checkLimit(q.Limit); err != nil {
		return page, fmt.Errorf("%s: %w", op, err)
	}
	if q.Tenant == "" || !storable(q.Tenant) || !storable(q.Meter) {
		return page, fmt.Errorf("%s: %w", op, sdk.Invalid("tenant", "required, UTF-8 without NUL"))
	}
	err = a.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		page = storage.CreditPage{Credits: []storage.Credit{}, Next: q.After}
		return t.each(ctx, qCredits, func(r pgx.Rows) error {
			c, err := scanCredit(r, q.Tenant)
			page.Credits = append(page.Credits, c)
			return err
		}, q.Tenant, q.After, optText(q.Meter), q.Limit+1)
	})
	if err != nil {
		return storage.CreditPage{}, err
	}
	if page.More = len(page.Credits) > q.Limit; page.More {
		page.Credits = page.Credits[:q.Limit]
	}
	if n := len(page.Credits); n > 0 {
		page.Next = page.Credits[n-1].Seq
	}
	return page, nil
}
