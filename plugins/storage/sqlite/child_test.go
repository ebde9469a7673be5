//go:build linux

package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// roleVar makes a run of the test binary a child of a test; pathVar names its
// store.
const (
	roleVar = "FENCEPOST_SQLITE_CHILD"
	pathVar = "FENCEPOST_SQLITE_PATH"
)

// childRole answers what this process is to do instead of testing, or nil.
func childRole() func() int {
	return map[string]func() int{"record": childRecord, "open": childOpen}[os.Getenv(roleVar)]
}

// child starts this test binary in a role. Its output is lines.
func child(t *testing.T, binary, role, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), roleVar+"="+role, pathVar+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func self(t *testing.T) string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// killBatch is how many units of two events a batch of the killed child has.
const killBatch = 50

// childRecord records batches as fast as it can and says which were
// acknowledged.
func childRecord() int {
	a, err := Open(context.Background(), Config{Path: os.Getenv(pathVar), Migrate: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	set, err := a.Routes(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for batch := 0; ; batch++ {
		res, err := a.RecordEvents(context.Background(), killRequest(batch, set))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Printf("%d %s\n", batch, res.Units[0].Outcome)
	}
}

func killRequest(batch int, set storage.RouteSet) storage.RecordRequest {
	req := storage.RecordRequest{Mode: storage.Atomic, RoutesRevision: set.Revision}
	for i := range killBatch {
		u := cloudEvent("acme", fmt.Sprintf("%d-%d", batch, i), "x", "in", "out")
		for j := range u.Entries {
			e := u.Entries[j].Event
			u.Entries[j].Items = []storage.NewItem{item(e, set.Routes[0].ID, "m1")}
		}
		req.Units = append(req.Units, u)
	}
	return req
}

// P2, F01: after kill -9 in the middle of batches, what was acknowledged is
// there, each batch is there whole or not at all, and the sums say the same.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.db")
	a, err := Open(t.Context(), Config{Path: path, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	addRoute(t, a)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	acknowledged, batches := -1, 0
	for round := range 5 {
		cmd, lines := child(t, self(t), "record", path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fresh := 0
		for lines.Scan() {
			var batch int
			var outcome storage.Outcome
			if _, err := fmt.Sscan(lines.Text(), &batch, &outcome); err != nil {
				t.Fatal(err)
			}
			if batch <= acknowledged && outcome != storage.Duplicate {
				t.Errorf("batch %d was acknowledged before and is %s", batch, outcome)
			}
			if outcome == storage.Inserted {
				acknowledged = batch
				if fresh++; fresh == round*3+2 {
					// The next batch is somewhere between BEGIN and COMMIT.
					if err := cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the child ended with %v", err)
		}
		batches = checkWhole(t, path, acknowledged)
	}
	t.Logf("%d batches acknowledged, %d stored, over 5 kills", acknowledged+1, batches)
}

// checkWhole opens the store after a kill and answers how many batches it has.
func checkWhole(t *testing.T, path string, acknowledged int) int {
	t.Helper()
	// The lock of a killed process is gone with it: no wait.
	a, err := Open(t.Context(), Config{Path: path, LockWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	perBatch := map[string]int{}
	events := 0
	for after := int64(0); ; {
		page, err := a.StreamEvents(t.Context(), storage.StreamQuery{After: after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			batch, _, _ := strings.Cut(strings.TrimPrefix(e.EventID, "ce-"), "-")
			perBatch[batch]++
			events++
		}
		if after = page.Next; !page.More {
			break
		}
	}
	for batch := range len(perBatch) {
		if n := perBatch[strconv.Itoa(batch)]; n != 2*killBatch {
			t.Errorf("batch %d has %d of %d events", batch, n, 2*killBatch)
		}
	}
	if len(perBatch) <= acknowledged {
		t.Errorf("%d batches are there, %d were acknowledged", len(perBatch), acknowledged+1)
	}
	units := len(perBatch) * killBatch
	if got, want := totals(t, a, "acme"), fmt.Sprintf("in %d/%d, out %d/%d", 2*units, units, 2*units, units); got != want {
		t.Errorf("totals %s, want %s", got, want)
	}
	w := <-a.writer
	defer func() { a.writer <- w }()
	for statement, want := range map[string]string{
		"PRAGMA integrity_check":                        "ok",
		"SELECT count(*) FROM fencepost_outbox_items":   strconv.Itoa(events),
		"SELECT count(*) FROM fencepost_outbox":         strconv.Itoa(events),
		"SELECT count(*) FROM fencepost_cloudevents":    strconv.Itoa(units),
		"SELECT items FROM fencepost_outbox_counts":     strconv.Itoa(events),
		"SELECT max(seq) FROM fencepost_events":         strconv.Itoa(events),
		"SELECT count(*) FROM pragma_foreign_key_check": "0",
	} {
		if got, err := w.pragma(statement); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", statement, got, err, want)
		}
	}
	return len(perBatch)
}

// childOpen opens the store, says how that went, and holds it until its input
// ends.
func childOpen() int {
	a, err := Open(context.Background(), Config{Path: os.Getenv(pathVar), Migrate: true, LockWait: 100 * time.Millisecond})
	if err != nil {
		e := new(sdk.Error)
		errors.As(err, &e)
		fmt.Printf("%s %s %s: %v\n", e.Tag, e.Field, e.Code, err)
		return 3
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := a.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// S11: two processes on one file: the second is refused in a sentence, and
// gets in as soon as the first is gone, killed or not.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.db")
	first, lines := child(t, self(t), "open", path)
	hold, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("the first process says %q", lines.Text())
	}
	_, err = Open(t.Context(), Config{Path: path, LockWait: 50 * time.Millisecond})
	wantError(t, err, sdk.TagUnavailable, "store_locked", path, fmt.Sprintf("another process (%d) holds this store", first.Process.Pid))
	opened := make(chan error, 1)
	go func() {
		a, err := Open(context.WithoutCancel(t.Context()), Config{Path: path, LockWait: time.Minute})
		if err == nil {
			err = a.Close()
		}
		opened <- err
	}()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // killed
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// A folder in which nothing can be written is a fault of the configuration.
// Root writes everywhere, so the child is nobody.
func TestReadOnlyFolder(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to become somebody who may not write")
	}
	dir, err := os.MkdirTemp("", "fencepost-readonly-") //nolint:usetesting // nobody may not enter t.TempDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "test")
	// A link, because a copy may still be open for writing in a process that
	// another test is just starting.
	if err := os.Link(self(t), binary); err != nil {
		t.Skipf("needs the test binary in a folder that nobody may enter: %v", err)
	}
	for _, err := range []error{
		os.Chmod(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "readonly.db"), nil, 0o444),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, word := range map[string]string{"new.db": "folder that can be written", "readonly.db": "file that can be written"} {
		cmd, lines := child(t, binary, "open", filepath.Join(dir, name))
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines.Scan()
		if got := lines.Text(); !strings.HasPrefix(got, "invalid storage.dsn ") || !strings.Contains(got, word) {
			t.Errorf("%s: %s", name, got)
		}
		_ = cmd.Wait() // ends with an error of its own
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.db*")); err != nil || len(left) != 1 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// A full disk is an error that says so; what was recorded before stays, and
// work goes on when there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("needs to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast, 0)
	path := filepath.Join(dir, "f.db")
	_, err := Open(t.Context(), Config{Path: path, Migrate: true})
	e := wantError(t, err, sdk.TagInvalid, "disk_full", "free space")
	if e.Field != "storage.dsn" {
		t.Errorf("field %q", e.Field)
	}
	for _, left := range []string{path, path + "-wal", path + "-shm"} {
		if exists(left) {
			t.Errorf("%s was left", left)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	a, err := Open(t.Context(), Config{Path: path, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	addRoute(t, a)
	set, err := a.Routes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for err == nil {
		if _, err = a.RecordEvents(t.Context(), killRequest(stored, set)); err == nil {
			stored++
		}
	}
	wantError(t, err, sdk.TagUnavailable, "disk_full")
	want := fmt.Sprintf("in %d/%d, out %[1]d/%[2]d", 2*stored*killBatch, stored*killBatch)
	if got := totals(t, a, "acme"); got != want || stored == 0 {
		t.Errorf("totals %s, want %s", got, want)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	for batch := range stored + 1 { // the client repeats everything
		res, err := a.RecordEvents(t.Context(), killRequest(batch, set))
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome := storage.Duplicate
		if batch == stored {
			wantOutcome = storage.Inserted
		}
		if res.Units[0].Outcome != wantOutcome {
			t.Errorf("batch %d of %d: %s", batch, stored, res.Units[0].Outcome)
		}
	}
	checkCounts(t, a)
}

// fill writes a file until the disk has no more than left bytes.
func fill(t *testing.T, path string, left int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); err != nil {
			break
		}
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(info.Size() - left); err != nil {
		t.Fatal(err)
	}
}
