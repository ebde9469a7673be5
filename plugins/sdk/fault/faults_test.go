//go:build faults && unix

package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// TestMain turns this binary into the program under test when FAULT_CHILD is
// set: it passes point r1 that often, says so on stdout, and ends with 0.
func TestMain(m *testing.M) {
	times := 0
	if _, err := fmt.Sscan(os.Getenv("FAULT_CHILD"), &times); err != nil {
		os.Exit(m.Run())
	}
	if err := Check(); err != nil {
		fmt.Println("check:", err)
		os.Exit(3)
	}
	for i := range times {
		if err := Point(context.Background(), "r1"); err != nil {
			fmt.Println("error:", err)
			os.Exit(4)
		}
		fmt.Println("passed", i+1)
	}
	os.Exit(0)
}

func child(t *testing.T, times int, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), append(env, fmt.Sprint("FAULT_CHILD=", times))...)
	return cmd
}

func testPlan(t *testing.T, spec string) (*Plan, *bytes.Buffer) {
	t.Helper()
	seed := uint64(7)
	p, err := NewPlan(spec, &seed)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p.stderr = &out
	return p, &out
}

// sequence calls f n times and writes 1 for each error, 0 for each nil.
func sequence(n int, f func() error) string {
	var b strings.Builder
	for range n {
		if f() != nil {
			b.WriteByte('1')
		} else {
			b.WriteByte('0')
		}
	}
	return b.String()
}

func TestTriggers(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"r1=error":                     "111111",
		"r1=error@n3":                  "001000",
		"r1=error@every2":              "010101",
		"r1=error@p1":                  "111111",
		"r2=error":                     "000000",
		"r1=error@n1; r1=error@every3": "101001",
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			p, _ := testPlan(t, spec)
			got := sequence(6, func() error { return Point(With(t.Context(), p), "r1") })
			if got != want {
				t.Errorf("fired %s, want %s", got, want)
			}
			if n := p.Fired("r1"); n != uint64(strings.Count(want, "1")) {
				t.Errorf("Fired = %d", n)
			}
		})
	}
}

// The same seed fires at the same hits, another seed at others, and about as
// often as asked.
func TestProbabilityFollowsTheSeed(t *testing.T) {
	t.Parallel()
	const hits = 10_000
	run := func(seed uint64) string {
		p, err := NewPlan("r1=error@p0.2", &seed)
		if err != nil {
			t.Fatal(err)
		}
		p.stderr = new(bytes.Buffer)
		return sequence(hits, func() error { return p.reach(t.Context(), "r1") })
	}
	one, again, two := run(1), run(1), run(2)
	if one != again {
		t.Error("one seed, two sequences")
	}
	if one == two {
		t.Error("two seeds, one sequence")
	}
	// Binomial(10000, 0.2): mean 2000, deviation 40; 6 deviations either side.
	if n := strings.Count(one, "1"); n < 1760 || n > 2240 {
		t.Errorf("fired %d times of %d at p0.2", n, hits)
	}
}

func TestErrorClass(t *testing.T) {
	t.Parallel()
	p, out := testPlan(t, "r1=error(conflict);r2=error;r3=error(canceled)")
	ctx := With(t.Context(), p)
	for label, want := range map[string]error{"r1": sdk.ErrConflict, "r2": sdk.ErrUnavailable, "r3": context.Canceled} {
		if err := Point(ctx, label); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", label, err, want)
		}
	}
	if !strings.Contains(out.String(), "fault label=r1 action=error(conflict) hit=1 fired=1 ") {
		t.Errorf("reported %q", out)
	}
}

func TestSleepEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := testPlan(t, "r1=sleep(10s)")
		began := time.Now()
		if err := Point(With(t.Context(), p), "r1"); err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("slept %v, %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := Point(With(ctx, p), "r1"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("slept %v, %v", time.Since(began), err)
		}
	})
}

func TestBlockWaitsForTheFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go on")
	p, _ := testPlan(t, "r1=block("+file+")")
	blocked, cancel := context.WithTimeout(t.Context(), 4*pollEvery)
	defer cancel()
	if err := Point(With(blocked, p), "r1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without the file: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Point(With(t.Context(), p), "r1"); err != nil {
		t.Errorf("with the file: %v", err)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	p, _ := testPlan(t, "r1=panic")
	defer func() {
		if r := recover(); r != "fault r1" {
			t.Errorf("recovered %v", r)
		}
	}()
	_ = Point(With(t.Context(), p), "r1")
	t.Error("passed the point")
}

// The third pass dies by SIGKILL, and the log says so although nothing after
// the kill ran.
func TestKill(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "faults.log")
	cmd := child(t, 5, "FENCEPOST_FAULTS=r1=kill@n3", "FENCEPOST_FAULTS_LOG="+log, "FENCEPOST_FAULTS_SEED=11")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("ended with %v", err)
	}
	if string(out) != "passed 1\npassed 2\n" {
		t.Errorf("printed %q", out)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("fault label=r1 action=kill hit=3 fired=1 pid=%d seed=11\n", cmd.Process.Pid)
	if string(b) != want || string(exit.Stderr) != want {
		t.Errorf("logged %q, stderr %q, want %q", b, exit.Stderr, want)
	}
}

// The process is seen stopped, and goes on by itself.
func TestStop(t *testing.T) {
	t.Parallel()
	cmd := child(t, 2, "FENCEPOST_FAULTS=r1=stop(300ms)@n1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	if err != nil || pid != cmd.Process.Pid || !status.Stopped() {
		t.Fatalf("wait: pid %d, status %v, %v", pid, status, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after the stop: %v", err)
	}
}

// A broken rule ends the program at Check, not in silence.
func TestCheckRefusesBrokenRules(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"FENCEPOST_FAULTS=r1=kil", "FENCEPOST_FAULTS_SEED=-1"} {
		out, err := child(t, 1, env).Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.HasPrefix(string(out), "check: FENCEPOST_FAULTS") {
			t.Errorf("%s: %v, %q", env, err, out)
		}
	}
}

func TestLogThatCannotBeWrittenPanics(t *testing.T) {
	t.Parallel()
	p, _ := testPlan(t, "r1=error")
	p.logFile = filepath.Join(t.TempDir(), "absent", "log")
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_ = p.reach(t.Context(), "r1")
}
