package simulation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

		"Q16: the clock is always trusted":             {noTrusted: true},
		"O16: two sends of a customer at a time":       {noSerial: true},
		"Q17: a restore goes unnoticed":                {noIncarnate: true},
		"Q17: what was restored goes on":               {noRestoreLog: true},
		"Q17: plans from before a restore":             {oldPlans: true},
		"O12: evidence takes the place of evidence":    {overwrites: true},
		"Q20: windows are staged whatever was, before": {noBound: true},
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
			{"outbox/decide.go", "case open: // R1", "case open && false: // R1"},
			{"outbox/settle.go", "move.Expect.Unresolved = new(bool)", ""},
		},
		"any duplicate is ours": {
			{"outbox/decide.go", "	case actAcceptOwn:\n		if open {", "	case actAcceptOwn:\n		if open || true {"},
		},
		"a worker that slept sends": {
			{"outbox/pass.go", "if left <= 0 { // the point before", "if false { // the point before"},
			{"outbox/pass.go", "func (p *pass) left() time.Duration { return p.until - p.cfg.Boottime() }", "func (p *pass) left() time.Duration { return time.Minute }"},
		},
		"R2: identified anew after a send": {
			{"outbox/requeue.go", "State: storage.Quarantined, LeaseToken: q.LeaseToken", "State: i.State, LeaseToken: q.LeaseToken"},
			{"outbox/requeue.go", "State: storage.Quarantined, MappingVersion: &version, LeaseToken: &i.LeaseToken,\n\t\t\tUnresolved", "State: i.State, MappingVersion: &version, LeaseToken: &i.LeaseToken,\n\t\t\tUnresolved"},
			{"outbox/requeue.go", "!absent(d)", "false"},
		},
		"R3: people do not wait": {
			{"outbox/resolve.go", "quiet, kept := s.QuietFor, item", "quiet, kept := time.Duration(0), item"},
		},
		"released without the original accepted": {
			{"outbox/corrections.go", "item.DependsOn.Wait = item.QuarantineReason == \"\" && !Charged(of.State)", ""},
			{"outbox/corrections.go", "case !Charged(of.State):", "case false:"},
		},
		"an indefinite outcome leaves nothing open": {
			{"outbox/decide.go", "d.MarkUnresolved = act == actRetryOpen || act == actWaitOpen", ""},
		},
		"Q16: steps back are not counted": {
			{"outbox/clock.go", "case difference < was-clockBand:", "case false:"},
		},
		"Q16: a chain that is broken is trusted": {
			{"outbox/clock.go", "if least < 0 || least > bound {", "if least > bound {"},
		},
		"O16: a serial key of its own for each item": {
			{"outbox/payload.go", "value = item.Customer", "value = item.Identifier"},
		},
		"Q17: a page is sent though the store went back": {
			{"outbox/pass.go", "err := p.cfg.BeforeSend(ctx, claim)\n\tif err == nil {", "err := p.cfg.BeforeSend(ctx, claim)\n\tif true {"},
		},
		"O12: evidence moves the state": {
			{"outbox/attest.go", "t.Set.Disputed = &text\n\t\tif Charged", "t.Set.Disputed, t.Set.State = &text, storage.Rejected\n\t\tif Charged"},
		},
		"O12: evidence is not kept": {
			{"outbox/attest.go", "e.note(nil)))\n\tt.Action = &action", "e.note(nil)))\n\t_ = &action"},
		},
		"O12: a dispute is settled with its acceptance": {
			{"outbox/attest.go", "t.Set.Settled = new(bool)\n\t\t}\n\t\tif item", "t.Set.Settled = &settled\n\t\t}\n\t\tif item"},
		},
		"Q18: what is disputed is credited": {
			{"outbox/corrections.go", "case of.Disputed != \"\":", "case false:"},
		},
		"O22: a window that was refused is acknowledged": {
			{"report/report.go", "case storage.Accepted, storage.Confirmed:\n\t\t\t\tif err", "case storage.Accepted, storage.Confirmed, storage.Rejected:\n\t\t\t\tif err"},
			{"report/report.go", "case storage.Rejected, storage.Quarantined, storage.Uncertain:", "case storage.Quarantined, storage.Uncertain:"},
			{"report/report.go", "States: []storage.ItemState{storage.Accepted, storage.Confirmed},", "States: []storage.ItemState{storage.Accepted, storage.Confirmed, storage.Rejected},"},
		},
		"Q20: a window begins where the last was staged": {
			{"report/bounds.go", "out.acked, out.staged = row.Acked, row.StagedTo != nil", "out.acked, out.staged = row.Acked, false"},
			{"report/report.go", "From: b.acked, To: to, Span: b.span", "To: to, Span: b.span"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := mutate(t, changes, "")
			if err == nil { // what only a rare world shows: seed 635 finds the page of Q17
				out, err = mutate(t, changes, "1440")
			}
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
func mutate(t *testing.T, changes []change, seeds string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	engine, err := filepath.Abs(filepath.Join("..", "..", "engine"))
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
		to := filepath.Join(dir, strconv.Itoa(len(replace))+filepath.Base(path))
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
	cmd.Env = append(os.Environ(), "FENCEPOST_MUTANT=1", "SEEDS="+seeds, "SEED=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
