//go:build faults && unix

package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// seedVar repeats a chaos run's schedule.
const seedVar = "FENCEPOST_FAULTS_TEST_SEED"

// misbehaviour is what the double does in a chaos run: the effect with another
// answer, no effect and no answer, and rate limits.
const misbehaviour = "after:500@p0.03; after:reset@p0.02; after:truncate@p0.02; after:close@p0.01; after:empty@p0.01; " +
	"before:500@p0.02; before:reset@p0.01; before:truncate@p0.01; before:429(retry_after=1,times=6)@p0.01"

// chaos is one run: record the trace, deliver it, and be killed all the time.
type chaos struct {
	rig         *rig
	rng         *rand.Rand
	seed        uint64
	least, most time.Duration // life of a server
	rules       string        // fault points, besides the signals
	kills       int
}

func newChaos(t *testing.T, r *rig) *chaos {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(seedVar); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d repeats the schedule", seedVar, seed)
	return &chaos{rig: r, seed: seed, rng: rand.New(rand.NewPCG(seed, 1))}
}

// run records and delivers tr through servers that are killed one after
// another, until everything is settled.
func (c *chaos) run(tr trace, limit time.Duration) {
	r, t := c.rig, c.rig.t
	t.Helper()
	shift, recorded := "now", false
	for deadline := time.Now().Add(limit); ; {
		if time.Now().After(deadline) {
			t.Fatalf("not done after %v and %d kills: %v", limit, c.kills, r.read().states())
		}
		s := r.launch(c.rules)
		if !s.serving() {
			c.kills++ // a fault point was faster
			continue
		}
		r.server = s
		life := c.least + time.Duration(c.rng.Int64N(int64(c.most-c.least)))
		reaper := time.AfterFunc(life, func() { _ = s.cmd.Process.Kill() })
		if !recorded {
			_, printed, err := r.recordTrace(tr, shift)
			if printed != "" && shift == "now" {
				shift = printed // some of it may be recorded: the same times again
			}
			recorded = err == nil
		}
		done := false
		for !done && !s.hasEnded() {
			done = recorded && drained(r)
			time.Sleep(50 * time.Millisecond)
		}
		stopped := reaper.Stop()
		if stopped && !s.hasEnded() {
			_ = s.cmd.Process.Kill()
		}
		<-s.ended
		c.kills++
		if done {
			r.start("") // some rules kill a server that has nothing to do, too
			return
		}
	}
}

// check judges the run. What a kill at the cap left uncertain would show here:
// the budget is large enough that nothing may.
func (c *chaos) check(tr trace) {
	r, t := c.rig, c.rig.t
	t.Helper()
	r.checkTotals(tr, true)
	if c.kills < 3 {
		t.Errorf("%d kills: this proves little", c.kills)
	}
	r.fired()
	if n := r.audit().accepted(r); n != tr.count {
		t.Errorf("%d items, want %d", n, tr.count)
	}
	l := r.double.Ledger()
	t.Logf("%d kills; %d requests, %d charges, %d double charges, %d duplicates refused, ledger difference 0; the double did %v",
		c.kills, l.Requests, l.Charges, l.DoubleCharges, l.DuplicatesRefused, l.FaultsFired)
}

// P1, P2: kill -9 at random, at fault points too, while the provider loses
// answers: the ledger is that of a run without faults.
func TestChaos(t *testing.T) {
	t.Parallel()
	s := traceSettings()
	s.page = 20
	r := newRig(t, s)
	r.subscribe()
	r.faults(misbehaviour)
	c := newChaos(t, r)
	c.least, c.most = 500*time.Millisecond, 2*time.Second
	c.rules = "r7=kill@p0.2; r8=kill@p0.2; d2=kill@p0.01; d5=kill@p0.004; d7=kill@p0.004; d9=kill@p0.01; d10=kill@p0.01"
	tr := generatedTrace(t, 500)
	c.run(tr, 5*time.Minute)
	c.check(tr)
}

// The same over the production trace: SIGKILL every two to four seconds.
func TestSoakTrace(t *testing.T) {
	t.Parallel()
	if os.Getenv(soakVar) == "" {
		t.Skipf("long: make soak, or set %s", soakVar)
	}
	tr := realTrace(t)
	s := traceSettings()
	s.page = 50
	r := newRig(t, s)
	r.subscribe()
	r.faults(misbehaviour)
	c := newChaos(t, r)
	c.least, c.most = 2*time.Second, 4*time.Second
	began := time.Now()
	c.run(tr, 30*time.Minute)
	t.Logf("%d events in %v", tr.count, time.Since(began).Round(time.Second))
	c.check(tr)
}

// Many short runs, each with its own schedule.
func TestSoakSwarm(t *testing.T) {
	t.Parallel()
	if os.Getenv(soakVar) == "" {
		t.Skipf("long: make soak, or set %s", soakVar)
	}
	for i := range 12 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			s := traceSettings()
			s.page = 5 + 15*(i%4)
			r := newRig(t, s)
			r.subscribe()
			r.faults(misbehaviour)
			c := newChaos(t, r)
			c.least, c.most = 200*time.Millisecond, 3*time.Second
			c.rules = swarm(c.rng)
			tr := generatedTrace(t, 400)
			c.run(tr, 10*time.Minute)
			r.checkTotals(tr, true)
			r.audit().accepted(r)
			t.Logf("%d kills under %s", c.kills, c.rules)
		})
	}
}

// swarm draws a few points and how likely each kills.
func swarm(rng *rand.Rand) string {
	labels := []string{"r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10"}
	var rules []string
	for _, label := range labels {
		if rng.IntN(3) == 0 {
			rules = append(rules, fmt.Sprintf("%s=kill@p%.3f", label, 0.001+0.02*rng.Float64()))
		}
	}
	return strings.Join(rules, "; ")
}
