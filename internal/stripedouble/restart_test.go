package stripedouble_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// durable is what of a ledger survives a restart.
func durable(l stripedouble.Ledger) stripedouble.Ledger {
	l.Requests, l.Replays, l.Answers, l.FaultsFired = 0, 0, nil, nil
	return l
}

func in(dir string) func(*stripedouble.Config) {
	return func(c *stripedouble.Config) { c.Dir, c.Sync, c.DedupeWindow = dir, true, time.Hour }
}

// history drives a double through charges, repeats, a second charge, stored
// answers and clock moves.
func history(r *rig) {
	r.t.Helper()
	r.mustPost(200, event("id_1", "payload[value]", "0.1"), "Idempotency-Key", "k1")
	r.mustPost(400, event("id_1"), "Idempotency-Key", "k2")
	r.mustPost(200, event("id_2", "payload[value]", "-7"), "Authorization", "Bearer sk_live_abc")
	if err := r.Advance(time.Hour); err != nil {
		r.t.Fatal(err)
	}
	r.mustPost(200, event("id_1", "payload[value]", "0.2", "timestamp", ""), "Stripe-Account", "acct_2")
	r.mustPost(200, event("id_1", "payload[value]", "0.2"), "Idempotency-Key", "k3")
}

// Point 1: a restart rebuilds the same ledger, stored answers and clock.
func TestRestartKeepsTheLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, in(dir))
	history(r)
	want, entries := durable(r.Ledger()), r.Entries()
	ca := r.CAFile()
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again := start(t, in(dir))
	if diff := cmp.Diff(want, durable(again.Ledger())); diff != "" {
		t.Errorf("ledger changed:\n%s", diff)
	}
	if diff := cmp.Diff(entries, again.Entries()); diff != "" {
		t.Errorf("entries changed:\n%s", diff)
	}
	if l := again.Ledger(); l.DoubleCharges != 1 || l.ChargesTotal["llm_tokens"] != "-6.5" || !l.Clock.Equal(epoch.Add(time.Hour)) {
		t.Errorf("ledger %+v", l)
	}
	got := again.mustPost(400, event("id_1"), "Idempotency-Key", "k2")
	if !replayed(got) || got.header.Get("Stripe-Should-Retry") != "false" {
		t.Errorf("stored refusal was lost: %v", got.header)
	}
	again.mustPost(400, event("id_1", "payload[value]", "0.1"))
	if after, err := os.ReadFile(again.CAFile()); err != nil || !bytes.Equal(after, pem) {
		t.Errorf("the CA changed over the restart: %v", err)
	}
}

// Point 1: wherever a kill cut the last line, the ledger is that of the lines
// before, the file is mended, and what follows is not glued to the fragment.
func TestRestartDropsAnUnfinishedLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, in(dir))
	history(r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lastLine := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for cut := lastLine; cut < len(whole); cut += 1 + (len(whole)-lastLine)/7 {
		t.Run(fmt.Sprint("cut at ", cut-lastLine), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "ledger.jsonl")
			if err := os.WriteFile(file, whole[:cut], 0o600); err != nil {
				t.Fatal(err)
			}
			r := start(t, in(dir))
			// The last line was the second charge of id_1, 0.2.
			if l := r.Ledger(); l.Charges != 3 || l.DoubleCharges != 0 || l.ChargesTotal["llm_tokens"] != "-6.7" {
				t.Errorf("ledger %+v", l)
			}
			if onDisk, err := os.ReadFile(file); err != nil || !bytes.Equal(onDisk, whole[:lastLine]) {
				t.Errorf("the file was not mended: %v", err)
			}
			r.mustPost(200, event("id_1", "payload[value]", "0.2"))
			want := durable(r.Ledger())
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, durable(start(t, in(dir)).Ledger())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Damage that no kill explains is not read over.
func TestRestartRefusesOtherDamage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, want string }{
		"not JSON":      {"x\n", "line 1"},
		"unknown op":    {`{"op":"gift","at":1}` + "\n", "unknown op"},
		"unknown key":   {`{"op":"clock","at":1,"colour":"red"}` + "\n", "line 1"},
		"bad value":     {`{"op":"charge","at":1,"identifier":"a","event_name":"b","value":"1e3"}` + "\n", "value"},
		"two on a line": {`{"op":"clock","at":1} {"op":"clock","at":1}` + "\n", "more than one"},
		"second line":   {`{"op":"clock","at":1}` + "\n\n", "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "ledger.jsonl"), []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := stripedouble.New(stripedouble.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("start: %v, want %q", err, c.want)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close after a failed start: %v", err)
			}
		})
	}
}

func TestDirectoryBelongsToOneServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, in(dir))
	s, err := stripedouble.New(stripedouble.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("second server on one directory: %v", err)
	}
}

const helperDir = "STRIPEDOUBLE_TEST_DIR"

// TestHelperServer is not a test: it is the process that the next one kills.
func TestHelperServer(t *testing.T) {
	dir := os.Getenv(helperDir)
	if dir == "" {
		t.Skip("only as a child of TestKill")
	}
	t.Parallel()
	s, err := stripedouble.New(stripedouble.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "url.tmp"), []byte(s.URL()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "url.tmp"), filepath.Join(dir, "url")); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
}

// Point 1, F03: kill -9 under load. What was answered 200 is in the ledger,
// once; what was not answered is there once or not at all.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answered := map[string]bool{}
	var sent int
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperServer$")
		cmd.Env = append(os.Environ(), helperDir+"="+dir)
		_ = os.Remove(filepath.Join(dir, "url"))
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // killed, or output says why not
		}()
		url, ok := awaitFile(filepath.Join(dir, "url"), ended)
		if !ok {
			t.Fatalf("the server ended by itself: %s", &output)
		}
		client := clientFor(t, filepath.Join(dir, "ca.pem"))
		var mu sync.Mutex
		var wg sync.WaitGroup
		enough := make(chan struct{})
		var once sync.Once
		for worker := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					id := fmt.Sprintf("r%d-w%d-%d", round, worker, i)
					ok := postTo(t, client, url, id, worker)
					mu.Lock()
					sent++
					if ok {
						answered[id] = true
					}
					if i == 40 {
						once.Do(func() { close(enough) })
					}
					mu.Unlock()
					if !ok {
						return
					}
				}
			})
		}
		allFailed := make(chan struct{})
		go func() {
			defer close(allFailed)
			wg.Wait()
		}()
		select {
		case <-enough:
		case <-allFailed:
			t.Error("every worker failed before the kill")
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-ended
		<-allFailed
		client.CloseIdleConnections()
	}
	s, err := stripedouble.New(stripedouble.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	l := s.Ledger()
	if l.DoubleCharges != 0 || l.Events < len(answered) || l.Events > sent {
		t.Errorf("%d sent, %d answered, ledger %+v", sent, len(answered), l)
	}
	for id := range answered {
		if _, ok := s.Entry("", false, id); !ok {
			t.Errorf("%s was answered and is lost", id)
		}
	}
}

// Reset forgets everything but the clock, on disk too.
func TestReset(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, in(dir), func(c *stripedouble.Config) { c.ClockOffset = time.Minute })
	history(r)
	if got := r.control("/__reset", "{}"); got.status != 200 {
		t.Fatalf("reset: %d %s", got.status, got.body)
	}
	empty := stripedouble.Ledger{Clock: epoch.Add(time.Hour + time.Minute)}
	if diff := cmp.Diff(empty, r.Ledger(), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	r.mustPost(200, event("id_1"), "Idempotency-Key", "k1")
	want := durable(r.Ledger())
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again := start(t, in(dir), func(c *stripedouble.Config) { c.ClockOffset = time.Minute })
	if diff := cmp.Diff(want, durable(again.Ledger())); diff != "" {
		t.Error(diff)
	}
}
