package simulation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What the simulation is worth: each guard that is taken out of the store, the
// sender or the operators is missed by a world of the default run. The guards
// of the engine itself are those of TestEngineMutants.
func TestMutants(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]hooks{
		"no fence":                              {noToken: true},
		"nonce in the key":                      {nonce: true},
		"cap only at retry":                     {noBudget: true},
		"horizon only at retry":                 {noHorizon: true},
		"a re-claimed lease is not open":        {noMark: true},
		"claim without looking under the lock":  {noRecheck: true},
		"operators act on a plan that is stale": {noExpect: true},
		"500 means rejected":                    {failedIsNo: true},
		"method chosen anew":                    {forgetMethod: true},
		"a correction misses its original move": {noMoved: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failing, sum := found(t, defaultSeeds, h)
			if failing == nil {
				t.Fatalf("%d worlds miss nothing", sum.worlds)
			}
			t.Logf("seed %d of %d: %s", failing.seed, defaultSeeds, failing.failure)
		})
	}
}

// change is one text in one file of the engine, which must be there once.
type change struct{ file, from, to string }

// The same for guards of the engine: each is taken out of its source, and the
// simulation, built with what is left, must fail.
func TestEngineMutants(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCEPOST_MUTANT") != "" {
		t.Skip("this is the mutant")
	}
	for name, changes := range map[string][]change{
		"R1: a refusal ends what is open": {
			{"decide.go", "case open: // R1", "case open && false: // R1"},
			{"settle.go", "move.Expect.Unresolved = new(bool)", ""},
		},
		"any duplicate is ours": {
			{"decide.go", "	case actAcceptOwn:\n		if open {", "	case actAcceptOwn:\n		if open || true {"},
		},
		"a worker that slept sends": {
			{"pass.go", "if left <= 0 { // the point before", "if false { // the point before"},
			{"pass.go", "func (p *pass) left() time.Duration { return p.until - p.cfg.Boottime() }", "func (p *pass) left() time.Duration { return time.Minute }"},
		},
		"R2: identified anew after a send": {
			{"requeue.go", "State: storage.Quarantined, LeaseToken: q.LeaseToken", "State: i.State, LeaseToken: q.LeaseToken"},
			{"requeue.go", "State: storage.Quarantined, MappingVersion: &version, LeaseToken: &i.LeaseToken,\n\t\t\tUnresolved", "State: i.State, MappingVersion: &version, LeaseToken: &i.LeaseToken,\n\t\t\tUnresolved"},
			{"requeue.go", "!absent(d)", "false"},
		},
		"R3: people do not wait": {
			{"resolve.go", "quiet := s.QuietFor\n\tt := storage.Transition{", "quiet := time.Duration(0)\n\tt := storage.Transition{"},
		},
		"released without the original accepted": {
			{"corrections.go", "item.DependsOn.Wait = item.QuarantineReason == \"\" && !Charged(of.State)", ""},
			{"corrections.go", "case !Charged(of.State):", "case false:"},
		},
		"an indefinite outcome leaves nothing open": {
			{"decide.go", "d.MarkUnresolved = act == actRetryOpen || act == actWaitOpen", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := mutate(t, changes)
			if err == nil || !strings.Contains(out, "--- FAIL: TestSimulation") {
				t.Fatalf("the simulation does not miss it: %v\n%s", err, out)
			}
			for line := range strings.Lines(out) {
				if strings.Contains(line, ": seed ") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// mutate runs the simulation of the default size over a changed engine.
func mutate(t *testing.T, changes []change) (string, error) {
	t.Helper()
	dir := t.TempDir()
	engine, err := filepath.Abs(filepath.Join("..", "..", "engine", "outbox"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, c := range changes {
		path := filepath.Join(engine, c.file)
		if texts[path] == "" {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(b)
		}
		if n := strings.Count(texts[path], c.from); n != 1 {
			t.Fatalf("%s holds %q %d times", c.file, c.from, n)
		}
		texts[path] = strings.Replace(texts[path], c.from, c.to, 1)
	}
	replace := map[string]string{}
	for path, text := range texts {
		to := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", file, "-run", "^TestSimulation$", ".")
	cmd.Env = append(os.Environ(), "FENCEPOST_MUTANT=1", "SEEDS=", "SEED=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
