package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// command prepares the binary under test in a folder of its own; TestMain has
// put it on the path.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	cmd = exec.CommandContext(t.Context(), "fencepost", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), cacheVar+"="+filepath.Join(dir, "cache"), "TMPDIR="+dir, "FENCEPOST_CONFIG=", "FENCEPOST_SERVER=")
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// TestDemo: issue 2, "make demo": the JSON is a contract (design, section 5),
// and P1 and P2 hold over two kills and a provider that misbehaves.
func TestDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("half a minute")
	}
	cmd, stdout, stderr := command(t, "demo", "--json", "--exit", "--events", "200")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	t.Logf("%s%s", stderr, stdout)
	dec := json.NewDecoder(stdout)
	var got struct {
		Recorded, Duplicates, DoubleCharges, Lost, StaleWorkers, Restarts *int
		RecordedTotal, ChargedTotal                                       *string
		States                                                            map[string]int
		Seconds                                                           *float64
	}
	var raw map[string]json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		t.Fatalf("stdout is not JSON: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		t.Error("stdout holds more than one JSON object")
	}
	want := map[string]any{
		"recorded": &got.Recorded, "duplicates": &got.Duplicates, "double_charges": &got.DoubleCharges, "lost": &got.Lost,
		"stale_workers": &got.StaleWorkers, "restarts": &got.Restarts, "recorded_total": &got.RecordedTotal,
		"charged_total": &got.ChargedTotal, "states": &got.States, "seconds": &got.Seconds,
	}
	for name, v := range raw {
		if want[name] == nil {
			t.Errorf("unknown member %s", name)
		} else if err := json.Unmarshal(v, want[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(raw) != len(want) {
		t.Fatalf("%d members, want %d: %s", len(raw), len(want), stdout)
	}
	if *got.Recorded != 200 || *got.Duplicates != 20 || *got.DoubleCharges != 0 || *got.Lost != 0 || *got.Restarts != 2 {
		t.Errorf("counts are off: %v", raw)
	}
	if *got.RecordedTotal != *got.ChargedTotal || *got.RecordedTotal == "0" {
		t.Errorf("recorded %s, charged %s", *got.RecordedTotal, *got.ChargedTotal)
	}
	states := map[string]int{"pending": 0, "leased": 0, "accepted": 200, "confirmed": 0, "uncertain": 0, "rejected": 0, "quarantined": 0}
	if diff := cmp.Diff(states, got.States); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// recordAndWait starts a command that has recorded a batch of 500, has the store
// open, holds half a batch more and waits for its input.
func recordAndWait(t *testing.T) (*exec.Cmd, io.WriteCloser, *bufio.Scanner, *bytes.Buffer) {
	t.Helper()
	cmd, _, stderr := command(t, "record", "-", "-o", "jsonl")
	cmd.Stdout = nil
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for i := range batchLines * 3 / 2 {
		if _, err := fmt.Fprintf(in, `{"id":"e%d","tenant":"t","feature":"tokens","quantity":1}`+"\n", i); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(out)
	for i := range batchLines {
		if !lines.Scan() {
			t.Fatalf("output ended after %d lines\n%s", i, stderr)
		}
	}
	return cmd, in, lines, stderr
}

// TestTwoCommands: a command waits for another one that has the store open.
func TestTwoCommands(t *testing.T) {
	t.Parallel()
	first, in, lines, stderr := recordAndWait(t)
	second, usage, complaint := command(t, "usage", "--tenant", "t", "-o", "csv")
	second.Dir = first.Dir
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Second, func() { _ = in.Close() }) // the second has met the lock by then
	for lines.Scan() {
	}
	if err := first.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if err := second.Wait(); err != nil || !strings.HasSuffix(usage.String(), ",750,750\n") {
		t.Errorf("%v\n%s%s", err, usage, complaint)
	}
}

// TestRecordInterrupted: the first interrupt ends a command that waits for its
// input, says what is answered for, and exits 130; the store is not left locked.
func TestRecordInterrupted(t *testing.T) {
	t.Parallel()
	cmd, _, lines, stderr := recordAndWait(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop() // not the end that is wanted
	if lines.Scan() {
		t.Errorf("unexpected line %q", lines.Text())
	}
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Fatalf("exit code %d (%v), want %d\n%s", code, err, exitInterrupted, stderr)
	}
	for _, want := range []string{"500 lines are answered for; run the same command again", "fencepost: interrupted\n"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr %q lacks %q", stderr, want)
		}
	}
	after, usage, _ := command(t, "usage", "--tenant", "t", "-o", "csv")
	after.Dir = cmd.Dir
	if err := after.Run(); err != nil || !strings.HasSuffix(usage.String(), ",500,500\n") {
		t.Errorf("usage after: %v\n%s", err, usage)
	}
}
