//go:build faults && unix

package faults

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// graceMax is the documented grace of "serve" and a second, and what a busy
// machine adds to it.
const graceMax = 15*time.Second + time.Second + 10*time.Second

// F06: SIGTERM in the middle of a page. What is on its way ends and is written,
// what is not sent is handed back with its attempt, the program ends with 0.
func TestTerminatedWhileDelivering(t *testing.T) {
	t.Parallel()
	r := newRig(t, defaults(), func(c *stripedouble.Config) { c.Latency = 100 * time.Millisecond })
	r.subscribe()
	r.load(events("e", 40))
	s := r.start("")
	eventually(t, "some are charged", func() bool { return r.double.Ledger().Charges >= 3 })
	if took := s.stop(); took > graceMax {
		t.Errorf("ended %v after SIGTERM", took)
	}
	b := r.audit()
	n := b.states()
	if n["leased"] != 0 || n["pending"] == 0 || n["accepted"] == 0 {
		t.Errorf("states after SIGTERM: %v", n)
	}
	for _, it := range b.items {
		if it.state == "pending" && (it.attempts != 0 || it.unresolved) {
			t.Errorf("item %d was not sent and has %d attempts, unresolved %t", it.id, it.attempts, it.unresolved)
		}
	}
	r.start("")
	r.drain()
	r.audit().accepted(r)
	if l := r.double.Ledger(); l.DuplicatesRefused != 0 {
		t.Errorf("%d items were sent twice", l.DuplicatesRefused)
	}
}

// F06: SIGTERM while the provider hangs and a client sends its request slowly.
// Claiming stops at once, the end comes within the grace, and the item whose
// answer never came is unresolved.
func TestTerminatedWhileTheProviderHangs(t *testing.T) {
	t.Parallel()
	s := defaults()
	s.lease, s.page = "120s", 5
	r := newRig(t, s)
	r.subscribe()
	r.load(events("e", 10))
	r.faults("before:slow(delay=10m)")
	srv := r.start("")
	eventually(t, "a request hangs", func() bool { return r.double.Ledger().Requests == 1 })
	conn, err := net.Dial("tcp", strings.TrimPrefix(srv.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprint(conn, "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n[{"); err != nil {
		t.Fatal(err)
	}
	took := srv.stop()
	if took > graceMax {
		t.Errorf("ended %v after SIGTERM", took)
	}
	t.Logf("ended %v after SIGTERM", took.Round(time.Millisecond))
	b := r.audit()
	open := 0
	for _, it := range b.items {
		if it.unresolved {
			open++
		} else if it.attempts != 0 {
			t.Errorf("item %d was not sent and has %d attempts", it.id, it.attempts)
		}
		if it.state != "pending" {
			t.Errorf("item %d is %s", it.id, it.state)
		}
	}
	if open != 1 {
		t.Errorf("%d items are unresolved, one request was on its way", open)
	}
}

// F06: the second SIGTERM ends the program at once. That is a crash like any.
func TestTerminatedTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, defaults())
	r.subscribe()
	r.load(events("e", 5))
	r.faults("after:slow(delay=10m)@n1")
	s := r.start("")
	eventually(t, "a request hangs", func() bool { return r.double.Ledger().Charges == 1 })
	for range 2 {
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the first one is seen", func() bool { return len(s.logged("stopping")) > 0 })
	}
	s.wait(5 * time.Second)
	if s.signalled() != syscall.SIGTERM {
		t.Errorf("ended with %v", s.err)
	}
	r.start("")
	r.drain()
	r.audit().accepted(r)
}

// F06: SIGTERM while clients record. What was acknowledged is stored; what was
// not may be repeated.
func TestTerminatedWhileRecording(t *testing.T) {
	t.Parallel()
	r := newRig(t, defaults())
	r.subscribe()
	s := r.start("")
	const callers, each = 8, 300
	all := make([][]event, callers)
	acked := make(chan int, callers)
	var wg sync.WaitGroup
	for c := range callers {
		all[c] = events(fmt.Sprint("caller", c), each)
		wg.Go(func() {
			n := 0
			for _, e := range all[c] {
				if _, err := r.post([]event{e}); err != nil {
					break
				}
				n++
			}
			acked <- n
		})
	}
	eventually(t, "some are stored", func() bool { return len(r.read().events) > 50 })
	s.stop()
	wg.Wait()
	close(acked)
	sum := 0
	for n := range acked {
		sum += n
	}
	if sum == callers*each {
		t.Error("every call was answered: the signal came too late to prove anything")
	}
	r.start("")
	for c := range callers {
		r.record(all[c])
	}
	r.drain()
	if n := r.audit().accepted(r); n != callers*each {
		t.Errorf("%d items", n)
	}
}

// Two servers on one file: the second waits a while, and is refused with a
// sentence that names the first one. The first one goes on.
func TestSecondServerIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, defaults())
	r.subscribe()
	first := r.start("")
	r.record(events("before", 20))
	second := r.launch("")
	second.wait(patience)
	var exit *exec.ExitError
	if !errors.As(second.err, &exit) || exit.ExitCode() != 6 {
		t.Errorf("the second server ended with %v, want exit code 6", second.err)
	}
	said := tail(second.log)
	if want := fmt.Sprintf("another process (%d) holds this store", first.cmd.Process.Pid); !strings.Contains(said, want) {
		t.Errorf("the second server said %s, want %q", said, want)
	}
	if lines := strings.Count(said, "\n"); lines > 3 {
		t.Errorf("a sentence has %d lines: %s", lines-1, said)
	}
	if first.hasEnded() {
		t.Fatal("the first server ended")
	}
	r.record(events("after", 20))
	r.drain()
	if n := r.audit().accepted(r); n != 40 {
		t.Errorf("%d items", n)
	}
}

// A second server that waits takes over when the first one is killed.
func TestSecondServerTakesOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, defaults(), func(c *stripedouble.Config) { c.Latency = 50 * time.Millisecond })
	r.subscribe()
	first := r.start("")
	r.record(events("e", 30))
	second := r.launch("")
	eventually(t, "a few are charged", func() bool { return r.double.Ledger().Charges >= 2 })
	first.kill()
	if !second.serving() {
		t.Skipf("the second server had given up already: %v", second.err) // 5 s: a very busy machine
	}
	r.server = second
	r.drain()
	if n := r.audit().accepted(r); n != 30 {
		t.Errorf("%d items", n)
	}
}

// Of several first starts at once, on a file that does not exist yet, one
// creates the store and serves.
func TestSimultaneousFirstStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t, defaults())
	const starts = 4
	servers := make([]*server, starts)
	for i := range servers {
		servers[i] = r.launch("")
	}
	eventually(t, "all but one end", func() bool {
		ended := 0
		for _, s := range servers {
			if s.hasEnded() {
				ended++
			}
		}
		return ended == starts-1
	})
	for _, s := range servers {
		if s.hasEnded() {
			if said := tail(s.log); !strings.Contains(said, "holds this store") {
				t.Errorf("refused with %s", said)
			}
			continue
		}
		if !s.serving() {
			t.Fatal("the last one does not serve")
		}
		r.server = s
	}
	r.record(events("e", 5))
	// No customer is known: everything is held back, with its reason.
	b := r.audit()
	if n := b.states()["quarantined"]; n != 5 {
		t.Errorf("states %v", b.states())
	}
}
