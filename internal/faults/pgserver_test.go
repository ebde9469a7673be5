//go:build faults && linux

package faults

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/pgtest"
)

// stream sends single events and small batches from several callers until it
// is stopped. What was not answered is sent once more at the end.
type stream struct {
	b    *bed
	quit chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	unknown [][]event
	ok      int
}

func (b *bed) stream(callers int) *stream {
	s := &stream{b: b, quit: make(chan struct{})}
	for c := range callers {
		s.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-s.quit:
					return
				default:
				}
				call := events(fmt.Sprintf("stream%d-%d", c, n), 1+n%4)
				_, err := b.post(call)
				s.mu.Lock()
				if err != nil {
					s.unknown = append(s.unknown, call)
				} else {
					s.ok++
				}
				s.mu.Unlock()
				if err != nil {
					time.Sleep(20 * time.Millisecond) // a server that is down refuses at once
				}
			}
		})
	}
	return s
}

func (s *stream) answered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ok
}

// more waits until so many further calls have been answered.
func (s *stream) more(n int) {
	s.b.t.Helper()
	want := s.answered() + n
	eventually(s.b.t, fmt.Sprintf("%d more calls are answered", n), func() bool { return s.answered() >= want })
}

// stop ends the stream, repeats what was not answered, and settles the books.
func (s *stream) stop() *books {
	s.b.t.Helper()
	books := s.settle()
	books.accepted(s.b.rig)
	return books
}

// settle is stop that leaves it to its caller what became of the items.
func (s *stream) settle() *books {
	s.b.t.Helper()
	close(s.quit)
	s.wg.Wait()
	eventually(s.b.t, "readiness turns green", func() bool { return s.b.status("/readyz") == http.StatusOK })
	for _, call := range s.unknown {
		s.b.record(call)
	}
	s.b.drain()
	books := s.b.audit()
	s.b.t.Logf("%d calls answered, %d not", s.ok, len(s.unknown))
	return books
}

// F12, I1, I11: the server is ended under load in each way there is, and comes
// back. Readiness turns red and green again by itself, and nothing that was
// acknowledged is lost.
func TestServerEnds(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{})
	b := newOwn(t, defaults(), c)
	b.subscribe()
	s := b.start("")
	load := b.stream(4)
	load.more(20)
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL, syscall.SIGINT} {
		c.Stop(sig)
		eventually(t, "readiness turns red", func() bool { return b.status("/readyz") == http.StatusServiceUnavailable })
		if b.status("/livez") != http.StatusOK {
			t.Errorf("%v: not live", sig)
		}
		c.Start()
		load.more(20)
		eventually(t, "readiness turns green", func() bool { return b.status("/readyz") == http.StatusOK })
	}
	if s.hasEnded() {
		t.Error("the program ended with its database")
	}
	if c.Logged("automatic recovery in progress") == 0 {
		t.Error("the server never had to recover")
	}
	load.stop()
}

// F14: behind the same address stands a node that is read-only, as after a
// failover. Its connections are given up, not kept: when a node that takes
// writes is back behind the address, work goes on.
func TestReadOnlyNode(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewCluster(t, pgtest.ClusterConfig{})
	b := newOwn(t, defaults(), primary)
	b.subscribe()
	b.start("")
	b.record(events("before", 10))
	b.drain()
	standby := pgtest.NewCluster(t, pgtest.ClusterConfig{From: primary})
	b.proxy.Redirect(standby.Addr())
	if b.proxy.Cut() == 0 {
		t.Error("there was no connection to cut")
	}
	call := events("during", 5)
	if _, err := b.post(call); err == nil {
		t.Error("recorded on a standby")
	}
	eventually(t, "readiness turns red", func() bool { return b.status("/readyz") == http.StatusServiceUnavailable })
	b.proxy.Redirect(primary.Addr())
	b.recovers(call)
}

// F14 in place: the node itself turns read-only, and open connections stay.
func TestNodeTurnsReadOnly(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{})
	b := newOwn(t, defaults(), c)
	b.subscribe()
	b.start("")
	b.record(events("before", 10))
	admin := b.session()
	b.sql(admin, "ALTER SYSTEM SET default_transaction_read_only = on")
	b.sql(admin, "SELECT pg_reload_conf()")
	call := events("during", 5)
	eventually(t, "a record is refused", func() bool {
		_, err := b.post(call)
		return err != nil
	})
	eventually(t, "readiness turns red", func() bool { return b.status("/readyz") == http.StatusServiceUnavailable })
	b.sql(admin, "SET default_transaction_read_only = off")
	b.sql(admin, "ALTER SYSTEM RESET default_transaction_read_only")
	b.sql(admin, "SELECT pg_reload_conf()")
	b.recovers(call)
}

// F19, I1 to I9: a backend is ended every 200 ms, whichever it is.
func TestBackendsAreTerminated(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{})
	s := shortLease()
	b := newOwn(t, s, c)
	b.subscribe()
	b.start("")
	load := b.stream(4)
	load.more(5)
	admin := b.session()
	killed := 0
	for range 25 {
		var n int
		if err := admin.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM
			(SELECT pid FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS victim`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		killed += n
		time.Sleep(200 * time.Millisecond) // the schedule of the fault
	}
	if killed < 15 {
		t.Errorf("only %d backends were ended", killed)
	}
	load.more(5)
	load.stop()
}

// F22: the disk is full. Writes are unavailable, never ok; when there is room
// again, work goes on without a restart of ours.
func TestServerDiskFull(t *testing.T) {
	t.Parallel()
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{Size: "160m", Options: []string{"max_wal_size=32MB", "min_wal_size=32MB"}})
	b := newOwn(t, defaults(), c)
	b.subscribe()
	s := b.start("")
	load := b.stream(4)
	load.more(10)
	c.FillTo(0)
	refused := func() int {
		load.mu.Lock()
		defer load.mu.Unlock()
		return len(load.unknown)
	}
	eventually(t, "the disk is full for a record", func() bool { return refused() > 5 })
	if c.Logged("No space left on device") == 0 {
		t.Error("the fault never fired")
	}
	c.Empty()
	if c.Ended() {
		c.Start() // its supervisor does that; ours must not need one
	}
	load.more(10)
	if s.hasEnded() {
		t.Error("the program ended with the disk")
	}
	load.stop()
}

// F23, D9: fsync fails, the server panics and recovers, and a commit that it
// reported as failed may be there. The client heard unavailable; the same call
// again counts once.
func TestServerCannotSync(t *testing.T) {
	t.Parallel()
	disk := pgtest.NewDisk(t)
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{Disk: disk})
	b := newOwn(t, defaults(), c)
	b.subscribe()
	b.start("")
	load := b.stream(2)
	load.more(10)
	for n := range 3 {
		disk.Fail(true, false)
		c.WaitLogged("could not fdatasync", n+1)
		disk.Fail(false, false)
		if c.Ended() {
			c.Start()
		}
		load.more(10)
	}
	if c.Logged("PANIC") == 0 {
		t.Error("the server never panicked")
	}
	load.stop()
}
