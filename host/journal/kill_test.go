package journal

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Processes are killed in the middle of appending, two at a time, and others go
// on with what was not acknowledged. No line that was acknowledged is lost, and no
// identifier is there twice.
func TestKill(t *testing.T) {
	t.Parallel()
	path := journalAt(t)
	rounds := 12
	if testing.Short() {
		rounds = 5
	}
	acknowledged := map[string]string{}
	var left []string // asked for and not acknowledged
	next := 0
	random := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		var runs []*killed
		for range 2 {
			var ids []string
			for part := range slices.Chunk(left, 20) {
				ids = append(ids, "again "+strings.Join(part, " "))
			}
			left = nil
			for range 60 {
				ids = append(ids, "new "+strings.Join(numbers(next, 5), " "))
				next += 5
			}
			runs = append(runs, start(t, path, ids, 1+random.IntN(40)))
		}
		for _, r := range runs {
			for id, sequence := range r.wait(t) {
				if earlier, twice := acknowledged[id]; twice && earlier != sequence {
					t.Errorf("item %s has lines %s and %s", id, earlier, sequence)
				}
				acknowledged[id] = sequence
			}
			for _, id := range r.asked {
				if acknowledged[id] == "" {
					left = append(left, id)
				}
			}
		}
	}
	last := open(t, path)
	for part := range slices.Chunk(left, RecordsMax) {
		appended(t, last, true, part...)
	}
	verify(t, path, -1)
	lines := sequences(t, path)
	for id, sequence := range acknowledged {
		if lines["fencepost_"+id] != sequence {
			t.Errorf("item %s was acknowledged as line %s and is in %q", id, sequence, lines["fencepost_"+id])
		}
	}
	t.Logf("%d lines, %d acknowledged before a kill, %d kills", len(lines), len(acknowledged), 2*rounds)
}

// killed is a process that is killed after a number of acknowledged batches.
type killed struct {
	cmd   *exec.Cmd
	out   io.Reader
	after int
	lines []string
	in    io.WriteCloser
	asked []string
}

func start(t *testing.T, path string, lines []string, after int) *killed {
	t.Helper()
	k := &killed{cmd: exec.CommandContext(t.Context(), os.Args[0]), after: after, lines: lines}
	k.cmd.Env = append(os.Environ(), "FENCEPOST_TEST_JOURNAL="+path)
	k.cmd.Stderr = os.Stderr
	var err error
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if k.out, err = k.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return k
}

// wait feeds the process without waiting for its answers, kills it, and returns
// what it has acknowledged by then.
func (k *killed) wait(t *testing.T) map[string]string {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, l := range k.lines {
			if _, err := fmt.Fprintln(k.in, l); err != nil {
				return
			}
		}
	}()
	for _, l := range k.lines {
		k.asked = append(k.asked, strings.Fields(l)[1:]...)
	}
	said := map[string]string{}
	batches := 0
	in := bufio.NewScanner(k.out)
	for in.Scan() {
		id, sequence, found := strings.Cut(in.Text(), " ")
		if found {
			said[id] = sequence
			continue
		}
		if batches++; batches == k.after {
			_ = k.cmd.Process.Kill()
		}
	}
	_ = k.in.Close()
	_ = k.cmd.Wait()
	<-done
	return said
}

// sequences reads the file with nothing of ours but the form of a line.
func sequences(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i, l := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		_, id, _ := strings.Cut(l, `"identifier":"`)
		id, _, _ = strings.Cut(id, `"`)
		if out[id] != "" {
			t.Errorf("%s is in lines %s and %d", id, out[id], i+1)
		}
		out[id] = strconv.Itoa(i + 1)
	}
	return out
}
