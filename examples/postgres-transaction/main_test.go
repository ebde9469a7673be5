package main

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/internal/pgtest"
)

// TestBothOrNeither runs the example and looks into the database with the
// driver alone: one order and one event, of the transaction that was not rolled
// back.
func TestBothOrNeither(t *testing.T) { //nolint:paralleltest // it sets os.Args
	dsn, schema := pgtest.Schema(t)
	own := pgtest.Plain(dsn) + "&search_path=" + schema
	old := os.Args
	os.Args = []string{"postgres-transaction", dsn, own}
	defer func() { os.Args = old }()
	main()

	c, err := pgx.Connect(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	for q, want := range map[string]string{
		"SELECT string_agg(id, ',') FROM orders":                            "paid",
		"SELECT count(*)::text FROM fencepost_events":                       "1",
		"SELECT string_agg(event_id, ',') FROM fencepost_events":            "paid",
		"SELECT string_agg(quantity::int::text, ',') FROM fencepost_totals": "1",
	} {
		var got string
		if err := c.QueryRow(t.Context(), q).Scan(&got); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		if got != want {
			t.Errorf("%s = %s, want %s", q, got, want)
		}
	}
}
