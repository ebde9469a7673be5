package main

import (
	"os"
	"path/filepath"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// TestBothOrNeither runs the example and looks into the file with SQLite alone:
// one order and one event, of the transaction that was not rolled back.
func TestBothOrNeither(t *testing.T) { //nolint:paralleltest // it sets os.Args
	path := filepath.Join(t.TempDir(), "app.db")
	old := os.Args
	os.Args = []string{"transaction", path}
	defer func() { os.Args = old }()
	main()

	c, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for q, want := range map[string]string{
		"SELECT count(*) FROM orders":                                     "1",
		"SELECT count(*) FROM fencepost_events WHERE event_id='paid'":     "1",
		"SELECT count(*) FROM fencepost_events WHERE event_id='declined'": "0",
		"SELECT quantity FROM fencepost_totals":                           "1",
	} {
		got, err := sqlitex.ResultText(c.Prep(q))
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		if got != want {
			t.Errorf("%s = %s, want %s", q, got, want)
		}
	}
}
