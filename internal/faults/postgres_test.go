//go:build faults && linux

package faults

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/internal/stripedouble"
)

// schemaName is that of a cluster which belongs to one rig.
const schemaName = "fencepost"

// bed is a rig whose store is in PostgreSQL.
type bed struct {
	*rig
	dsn    string // past any proxy, for the auditor
	schema string
	proxy  *pgtest.Proxy // in front of the server, nil without
}

// on makes a rig on a schema of the shared server. The program is the one with
// faults.
func newBed(t *testing.T, s settings, change ...func(*stripedouble.Config)) *bed {
	t.Helper()
	dsn, schema := pgtest.Schema(t)
	b := &bed{rig: newBareRig(t, s, change...), dsn: dsn, schema: schema}
	b.use(dsn)
	return b
}

// newProxied is newBed with a proxy, and with the program as it is released:
// what a proxy sees depends on how many round trips the adapter makes.
func newProxied(t *testing.T, s settings) *bed {
	t.Helper()
	dsn, schema := pgtest.Schema(t)
	b := &bed{rig: newBareRig(t, s), dsn: dsn, schema: schema, proxy: pgtest.NewProxy(t, dsn)}
	b.program = shipped
	b.use(b.proxy.DSN())
	return b
}

// newOwn is newProxied on a server of the test's own.
func newOwn(t *testing.T, s settings, c *pgtest.Cluster, change ...func(*stripedouble.Config)) *bed {
	t.Helper()
	dsn := c.DSN() + "&fencepost_schema=" + schemaName
	b := &bed{rig: newBareRig(t, s, change...), dsn: dsn, schema: schemaName, proxy: pgtest.NewProxy(t, dsn)}
	b.program = shipped
	b.use(b.proxy.DSN())
	return b
}

// use writes a configuration with that DSN, and makes the schema.
func (b *bed) use(dsn string) {
	b.t.Helper()
	b.storage = fmt.Sprintf(`{plugin: "builtin:postgres", dsn: %q}`, dsn)
	b.rig.books = func() (*books, error) { return readPostgres(b.dsn, b.schema) }
	b.configure()
	if _, diag, err := b.run("migrate", "up"); err != nil {
		b.t.Fatalf("migrate: %v: %s", err, diag)
	}
}

// session is a connection of the test's own to the database.
func (b *bed) session() *pgx.Conn {
	b.t.Helper()
	c, err := pgx.Connect(b.t.Context(), pgtest.Plain(b.dsn))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// sql runs a statement in which $ stands for the schema.
func (b *bed) sql(c *pgx.Conn, text string) {
	b.t.Helper()
	if _, err := c.Exec(b.t.Context(), text); err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
}

// at is a connection to another server.
func (b *bed) at(c *pgtest.Cluster) *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), c.DSN())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
