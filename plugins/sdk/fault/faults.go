//go:build faults && unix

package fault

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether this build can inject faults.
const Enabled = true

// pollEvery is how often block looks for its file.
const pollEvery = 5 * time.Millisecond

// fromEnvironment is the plan of this process, read once. A fault belongs to
// the process that it kills, so the plan does too.
var fromEnvironment = sync.OnceValues(func() (*Plan, error) {
	var seed *uint64
	if s := os.Getenv("FENCEPOST_FAULTS_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, errors.New("FENCEPOST_FAULTS_SEED: want a whole number from 0")
		}
		seed = &n
	}
	p, err := NewPlan(os.Getenv("FENCEPOST_FAULTS"), seed)
	if err != nil {
		return nil, fmt.Errorf("FENCEPOST_FAULTS: %w", err)
	}
	p.logFile = os.Getenv("FENCEPOST_FAULTS_LOG")
	return p, nil
})

// Check reports whether the environment's rules and seed can be read. A host
// calls it at start; a build without faults has nothing to check.
func Check() error {
	_, err := fromEnvironment()
	return err
}

// Point marks the step called label. It does what the rules for that label say:
// those of the plan in ctx (see [With]), or else those of the environment. It
// returns nil unless an error rule fired or ctx ended while it waited. It is
// safe for concurrent use.
//
// Point panics when the environment's rules cannot be read: a test whose faults
// are ignored would prove nothing.
func Point(ctx context.Context, label string) error {
	if p, ok := ctx.Value(planKey{}).(*Plan); ok {
		return p.reach(ctx, label)
	}
	p, err := fromEnvironment()
	if err != nil {
		panic(err)
	}
	return p.reach(ctx, label)
}

type planKey struct{}

// With returns a context whose points follow p and not the environment, so that
// tests in one process can run side by side. It exists in faults builds only.
func With(ctx context.Context, p *Plan) context.Context {
	return context.WithValue(ctx, planKey{}, p)
}

// Plan is a set of rules with their counters. Use [NewPlan]; it is safe for
// concurrent use.
type Plan struct {
	seed    uint64
	logFile string
	stderr  io.Writer

	mu    sync.Mutex // guards the counters and generators in rules
	rules []*counted
}

// counted is a rule with its state.
type counted struct {
	rule
	hits, fired uint64
	rng         *rand.Rand
}

// NewPlan parses spec, in the form of FENCEPOST_FAULTS. A nil seed is drawn at
// random. The error names the rule that spec breaks.
func NewPlan(spec string, seed *uint64) (*Plan, error) {
	rules, err := parse(spec)
	if err != nil {
		return nil, err
	}
	p := &Plan{stderr: os.Stderr}
	if seed != nil {
		p.seed = *seed
	} else {
		var b [8]byte
		if _, err := crand.Read(b[:]); err != nil {
			return nil, fmt.Errorf("draw a seed: %w", err)
		}
		p.seed = binary.LittleEndian.Uint64(b[:])
	}
	for i, r := range rules {
		// A generator for each rule: how often one point is reached does not
		// change what another draws.
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %s", i, r.label)
		rng := rand.New(rand.NewPCG(p.seed, h.Sum64())) //nolint:gosec // a schedule is to be repeatable, not secret
		p.rules = append(p.rules, &counted{rule: r, rng: rng})
	}
	return p, nil
}

// Fired returns how often rules for label have fired.
func (p *Plan) Fired(label string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var n uint64
	for _, c := range p.rules {
		if c.label == label {
			n += c.fired
		}
	}
	return n
}

func (p *Plan) reach(ctx context.Context, label string) error {
	for _, r := range p.due(label) {
		if err := r.act(ctx); err != nil {
			return fmt.Errorf("fault %s: %w", label, err)
		}
	}
	return nil
}

// due counts the hit, and returns the rules that fire on it after reporting
// each: what kills the process must be on record before.
func (p *Plan) due(label string) []rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due []rule
	for _, c := range p.rules {
		if c.label != label {
			continue
		}
		c.hits++
		if !c.fires() {
			continue
		}
		c.fired++
		p.report(c)
		due = append(due, c.rule)
	}
	return due
}

func (c *counted) fires() bool {
	switch {
	case c.prob > 0:
		return c.rng.Float64() < c.prob
	case c.repeats:
		return c.hits%c.nth == 0
	case c.nth > 0:
		return c.hits == c.nth
	default:
		return true
	}
}

// report writes one line to standard error and to the log file. A log that
// cannot be written panics: the test that asked for it would wait in vain.
func (p *Plan) report(c *counted) {
	line := fmt.Sprintf("fault label=%s action=%s hit=%d fired=%d pid=%d seed=%d\n",
		c.label, c.action(), c.hits, c.fired, os.Getpid(), p.seed)
	_, _ = io.WriteString(p.stderr, line) // a closed stderr must not change the run
	if p.logFile == "" {
		return
	}
	f, err := os.OpenFile(p.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line)
		err = joinClose(f, err)
	}
	if err != nil {
		panic(fmt.Errorf("FENCEPOST_FAULTS_LOG: %w", err))
	}
}

func joinClose(c io.Closer, err error) error {
	if cerr := c.Close(); err == nil {
		return cerr
	}
	return err
}

func (r rule) act(ctx context.Context) error {
	switch r.name {
	case "kill":
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill: %w", err)
		}
		select {} // nothing after the point may run
	case "stop":
		return stop(r.wait)
	case "panic":
		panic("fault " + r.label)
	case "error":
		return r.err
	case "sleep":
		return wait(ctx, r.wait)
	default: // block; the parser lets nothing else through
		for {
			if _, err := os.Stat(r.arg); err == nil {
				return nil
			}
			if err := wait(ctx, pollEvery); err != nil {
				return err
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop has a child send both signals, in order: were we to stop ourselves, a
// slow machine could deliver the child's SIGCONT first and leave us stopped.
func stop(d time.Duration) error {
	const script = `kill -STOP "$1"; sleep "$2"; kill -CONT "$1"`
	seconds := strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
	cmd := exec.Command("/bin/sh", "-c", script, "sh", strconv.Itoa(os.Getpid()), seconds) //nolint:gosec,noctx // two numbers of ours; a context that ends must not leave us stopped
	// A group of its own: a signal to our group must not stop the one that wakes us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}
