// Command postgres-transaction records usage in a PostgreSQL transaction next
// to a row of the program's own: both are there, or, after a rollback, neither
// is.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
)

func main() {
	ctx := context.Background()
	store := must(postgres.Open(ctx, postgres.Config{DSN: os.Args[1], Migrate: true}))
	defer func() { _ = store.Close() }()
	h := must(host.Open(ctx, host.Config{Store: store}))
	defer func() { _ = h.Close(ctx) }()
	db := must(pgx.Connect(ctx, os.Args[2])) // the program's own connection
	defer func() { _ = db.Close(ctx) }()
	must(db.Exec(ctx, "CREATE TABLE IF NOT EXISTS orders (id text)"))
	for id, failure := range map[string]error{"paid": nil, "declined": errors.New("card declined")} {
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, own := tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", id)
			// Conditional until the transaction commits.
			_, err := h.Engine().In(store.WithTx(tx)).Record(ctx, engine.Event{ID: id, Tenant: "acme", Feature: "orders", Quantity: decimal.One})
			return errors.Join(own, err, failure) // an error rolls everything back
		})
		fmt.Println(id, "→", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
