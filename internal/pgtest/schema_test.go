//go:build linux

package pgtest_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/pgtest"
)

// B-T15: the end of a test removes its own schema and no other, be its name one
// that the test's name would match as a pattern: there is an underscore in it.
func TestSchemaEndsAlone(t *testing.T) { //nolint:tparallel // the end of the one inside is what is looked at
	t.Parallel()
	var mine, others, dsn string
	t.Run("test", func(t *testing.T) {
		dsn, mine = pgtest.Schema(t)
		others = strings.Replace(mine, "_", "x", 1)
		c := dial(t, pgtest.Plain(dsn))
		run(t, c, "CREATE SCHEMA "+others)
		run(t, c, "CREATE TABLE "+others+".kept (n int)")
		run(t, c, "CREATE TABLE "+mine+".gone (n int)")
	})
	if dsn == "" {
		t.Skip("no server")
	}
	c := dial(t, pgtest.Plain(dsn))
	defer run(t, c, "DROP SCHEMA "+others+" CASCADE")
	for schema, want := range map[string]bool{mine: false, others: true} {
		var there bool
		if err := c.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).Scan(&there); err != nil || there != want {
			t.Errorf("schema %s: there %t, %v", schema, there, err)
		}
	}
}
