// Command transaction records usage in a SQLite transaction next to a row of
// the program's own: both are there, or, after a rollback, neither is.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

func main() {
	ctx := context.Background()
	store := must(sqlite.Open(ctx, sqlite.Config{Path: os.Args[1], Migrate: true}))
	defer func() { _ = store.Close() }()
	h := must(host.Open(ctx, host.Config{Store: store}))
	defer func() { _ = h.Close(ctx) }()
	for id, failure := range map[string]error{"paid": nil, "declined": errors.New("card declined")} {
		err := store.WithTx(ctx, func(tx *sqlite.Tx) error {
			own := sqlitex.ExecuteScript(tx.Conn(), "CREATE TABLE IF NOT EXISTS orders (id TEXT); INSERT INTO orders VALUES ('o1')", nil)
			_, err := h.Engine().In(tx.Store()).Record(ctx, engine.Event{ID: id, Tenant: "acme", Feature: "orders", Quantity: decimal.One})
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
