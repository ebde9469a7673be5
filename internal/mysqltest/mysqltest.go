// Package mysqltest gives each test a database of its own on a MariaDB or MySQL
// server.
package mysqltest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"os"
	"testing"

	"github.com/fencepost/fencepost/host/sql"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/wire/sqlv1"
)

// Env names the variable with the data source name of a server, as package
// host/sql reads it, whose user may create databases.
const Env = "FENCEPOST_TEST_MYSQL"

// Database makes a database that ends with the test, and returns its data source
// name. Without a server the test is skipped.
func Database(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv(Env)
	if dsn == "" {
		t.Skip(Env + " names no server")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	name := "fencepost_test_" + hex.EncodeToString(b[:])
	Exec(t, dsn, "CREATE DATABASE "+name)
	t.Cleanup(func() { Exec(t, dsn, "DROP DATABASE "+name) })
	u.Path = "/" + name
	return u.String()
}

// Exec performs statements in one transaction, and returns the rows of the last.
func Exec(t testing.TB, dsn string, texts ...string) [][]any {
	t.Helper()
	db, err := sql.Open(dsn, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	ctx, session := db.Begin(context.Background())
	defer session.End()
	w := capability.Work{End: capability.Commit}
	for _, text := range texts {
		w.Statements = append(w.Statements, capability.Statement{SQL: text, Rows: text[0] == 'S'})
	}
	done, err := Do(ctx, db, w)
	if err != nil {
		t.Fatal(err)
	}
	return done.Results[len(texts)-1].Rows
}

// Do is the capability on a database, for the call whose context this is.
func Do(ctx context.Context, db *sql.Database, w capability.Work) (capability.Done, error) {
	payload, err := sqlv1.EncodeWork(w)
	if err != nil {
		return capability.Done{}, err
	}
	answer, err := db.Do(ctx, payload)
	if err != nil {
		return capability.Done{}, err
	}
	return sqlv1.DecodeDone(answer, len(w.Statements))
}
