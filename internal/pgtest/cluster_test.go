//go:build linux

package pgtest_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/internal/pgtest"
)

func dial(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func run(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func code(err error) string {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return server.Code
	}
	return ""
}

// What is committed survives each way to end a server, and the server comes
// back at the same address.
func TestClusterEnds(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{})
	run(t, dial(t, c.DSN()), "CREATE TABLE probe (n int)")
	for n, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		client := dial(t, c.DSN())
		run(t, client, "INSERT INTO probe VALUES (1)")
		c.Stop(sig)
		// A backend outlives a killed postmaster for a moment.
		if !c.Ended() || (client.Ping(t.Context()) == nil && sig != syscall.SIGKILL) {
			t.Errorf("%v: the server lives", sig)
		}
		c.Start()
		var rows int
		if err := dial(t, c.DSN()).QueryRow(t.Context(), "SELECT count(*) FROM probe").Scan(&rows); err != nil || rows != n+1 {
			t.Errorf("%v: %d rows (%v)", sig, rows, err)
		}
	}
	if c.Logged("database system was not properly shut down") == 0 && c.Logged("interrupted") == 0 {
		t.Error("no recovery was logged")
	}
}

// A standby follows and takes no writes; promoted, it does.
func TestClusterStandby(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewCluster(t, pgtest.ClusterConfig{})
	run(t, dial(t, primary.DSN()), "CREATE TABLE probe (n int)")
	standby := pgtest.NewCluster(t, pgtest.ClusterConfig{From: primary})
	c := dial(t, standby.DSN())
	if _, err := c.Exec(t.Context(), "INSERT INTO probe VALUES (1)"); code(err) != "25006" {
		t.Errorf("a standby answers a write with %v", err)
	}
	run(t, c, "SELECT pg_promote()")
	run(t, c, "INSERT INTO probe VALUES (1)")
}

func TestClusterDiskFull(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{Size: "120m", Options: []string{"max_wal_size=32MB", "min_wal_size=32MB"}})
	client := dial(t, c.DSN())
	run(t, client, "CREATE TABLE probe AS SELECT repeat('x', 900) AS pad FROM generate_series(1, 10)")
	c.FillTo(1 << 20)
	if _, err := client.Exec(t.Context(), "INSERT INTO probe SELECT repeat('x', 900) FROM generate_series(1, 20000)"); err == nil {
		t.Error("written to a full disk")
	}
	c.Empty()
	if c.Ended() {
		c.Start() // a full disk for the log ends the server
	}
	run(t, dial(t, c.DSN()), "INSERT INTO probe VALUES ('x')")
}

// D9: a COMMIT that the server itself reports as failed can be durable: the
// log was written and not synced, and recovery finds it.
func TestFailedCommitCanBeDurable(t *testing.T) {
	t.Parallel()
	disk := pgtest.NewDisk(t)
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{Disk: disk})
	client := dial(t, c.DSN())
	run(t, client, "CREATE TABLE probe (n int)")
	disk.Fail(true, false)
	if _, err := client.Exec(t.Context(), "INSERT INTO probe VALUES (1)"); err == nil {
		t.Fatal("committed without fsync")
	} else if pgconn.SafeToRetry(err) {
		t.Errorf("%v is called safe to repeat", err)
	}
	disk.Fail(false, false)
	if c.Logged("PANIC") == 0 {
		t.Error("the fault never fired")
	}
	// The postmaster notices only after a while that it has to recover.
	c.WaitLogged("database system is ready to accept connections", 2)
	var rows int
	if err := dial(t, c.DSN()).QueryRow(t.Context(), "SELECT count(*) FROM probe").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if rows != 1 {
		t.Errorf("%d rows after recovery", rows)
	}
}

// D12: the server's clock follows the shim, inside a session too.
func TestClusterClock(t *testing.T) {
	t.Parallel()
	clock := pgtest.NewClock(t)
	client := dial(t, pgtest.NewCluster(t, pgtest.ClusterConfig{Clock: clock}).DSN())
	for _, step := range []time.Duration{0, -time.Hour, time.Hour, -400 * time.Millisecond} {
		clock.Step(step)
		var now time.Time
		before := time.Now()
		if err := client.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
			t.Fatal(err)
		}
		if off := now.Sub(before); off < step-time.Second || off > step+5*time.Second {
			t.Errorf("a step of %v shows as %v", step, off)
		}
	}
}
