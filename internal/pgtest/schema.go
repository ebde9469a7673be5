// Package pgtest gives tests a PostgreSQL of their own: a schema on the server
// that scripts/test.sh started, or a whole throwaway cluster where a test has
// to stop, fill or damage it.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Env names the variable with the DSN of a server on which tests may create
// schemas.
const Env = "FENCEPOST_TEST_POSTGRES"

// Schema creates a schema with a random name and returns a DSN that selects it
// for the storage adapter (fencepost_schema). The schema is dropped when the
// test ends. Without a server the test is skipped, unless FENCEPOST_TEST_STRICT
// is set: then it fails.
func Schema(t testing.TB) (dsn, schema string) {
	t.Helper()
	base := os.Getenv(Env)
	if base == "" {
		missing(t, "%s is not set: run make test, which starts a server", Env)
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	schema = "t_" + hex.EncodeToString(b[:])
	execute(t, Plain(base), "CREATE SCHEMA "+schema)
	t.Cleanup(func() { execute(t, Plain(base), "DROP SCHEMA "+schema+" CASCADE") })
	u, err := url.Parse(base)
	if err != nil {
		t.Fatalf("%s: %v", Env, err)
	}
	q := u.Query()
	q.Set("fencepost_schema", schema)
	u.RawQuery = q.Encode()
	return u.String(), schema
}

// Plain is a DSN without the parameters that only the storage adapter
// understands: for a connection of the test's own.
func Plain(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn
	}
	q := u.Query()
	q.Del("fencepost_schema")
	q.Del("pgbouncer")
	u.RawQuery = q.Encode()
	return u.String()
}

func execute(t testing.TB, dsn, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer func() { _ = c.Close(ctx) }()
	if _, err := c.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
