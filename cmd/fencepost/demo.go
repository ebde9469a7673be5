package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// demoResult is what "demo --json" prints; its names are a contract.
type demoResult struct {
	Recorded      int              `json:"recorded"`
	Duplicates    int              `json:"duplicates"`
	RecordedTotal string           `json:"recorded_total"`
	ChargedTotal  string           `json:"charged_total"`
	DoubleCharges int              `json:"double_charges"`
	Lost          int              `json:"lost"`
	States        map[string]int64 `json:"states"`
	StaleWorkers  int64            `json:"stale_workers"`
	Restarts      int              `json:"restarts"`
	Seconds       float64          `json:"seconds"`
}

// ok reports whether the promises held.
func (r demoResult) ok() bool {
	return r.Recorded > 0 && r.RecordedTotal == r.ChargedTotal && r.DoubleCharges == 0 && r.Lost == 0 &&
		r.States["accepted"] == int64(r.Recorded)
}

// demoFlags are the flags of "demo".
type demoFlags struct {
	exit   bool
	events int
	dir    string
	seed   uint64
}

func demoCommand(a *app) *cobra.Command {
	f := demoFlags{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the main job on this machine, with crashes and a misbehaving provider",
		Long: "Starts a stand-in for Stripe that fails in several ways, a server on a SQLite file,\n" +
			"records realistic CloudEvents with repeats, kills the server with SIGKILL while it\n" +
			"delivers, starts it again, and compares what was recorded with what was charged.\n\n" +
			"Nothing leaves this machine. The exit code is 9 if a single unit is off.",
		Example: "  fencepost demo\n  fencepost demo --json --exit",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.demo(cmd.Context(), f)
		},
	}
	cmd.Flags().BoolVar(&f.exit, "exit", false, "end when the result is printed; otherwise the server stays up until interrupted")
	cmd.Flags().IntVar(&f.events, "events", 2000, "how many different events to record")
	cmd.Flags().StringVar(&f.dir, "dir", "", "folder for the store and the ledger (default a temporary one, removed at the end)")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the events and of the provider's faults")
	return cmd
}

// demoFaults is how the provider misbehaves: after the effect (the charge took
// place and the answer is lost or says otherwise) and before it.
const demoFaults = "after:500@p0.03; after:reset@p0.02; after:truncate@p0.02; after:empty@p0.01; before:503@p0.03; before:429(retry_after=1)@every400"

func (a *app) demo(ctx context.Context, f demoFlags) (err error) {
	if f.events < 10 || f.events > 1_000_000 {
		return usageError{errors.New("--events: 10 to 1000000")}
	}
	dir := f.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "fencepost-demo-"); err != nil {
			return fmt.Errorf("temporary folder: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	faults, err := stripedouble.ParseFaults(demoFaults)
	if err != nil {
		return fmt.Errorf("fault schedule: %w", err)
	}
	double, err := stripedouble.New(stripedouble.Config{
		Dir: filepath.Join(dir, "stripe"), Seed: f.seed, Faults: faults, Logger: quietLogger(a.err),
	})
	if err != nil {
		return fmt.Errorf("stripe double: %w", err)
	}
	if err := double.Start(ctx); err != nil {
		return fmt.Errorf("stripe double: %w", err)
	}
	defer func() { _ = double.Close() }()
	d := &demoRun{app: a, flags: f, dir: dir, double: double, started: time.Now()}
	defer d.stopServer()
	if err := d.run(ctx); err != nil {
		return err
	}
	return d.present(ctx)
}

// present prints the result and, unless told to exit, keeps the server up.
func (d *demoRun) present(ctx context.Context) error {
	r, a := d.result, d.app
	switch a.output {
	case "json", "jsonl":
		if err := writeJSON(a.out, r); err != nil {
			return err
		}
	default:
		fmt.Fprintf(a.out, "\nrecorded            %d events, total %s\n", r.Recorded, r.RecordedTotal)
		fmt.Fprintf(a.out, "charged             total %s\n", r.ChargedTotal)
		fmt.Fprintf(a.out, "duplicates refused  %d\n", r.Duplicates)
		fmt.Fprintf(a.out, "double charges      %d\n", r.DoubleCharges)
		fmt.Fprintf(a.out, "lost                %d\n", r.Lost)
		fmt.Fprintf(a.out, "server killed       %d times\n", r.Restarts)
		fmt.Fprintf(a.out, "seconds             %.1f\n", r.Seconds)
	}
	if !r.ok() {
		return codeError{exitCheckFailed, errors.New("demo: what was charged is not what was recorded")}
	}
	if d.flags.exit {
		return nil
	}
	fmt.Fprintf(a.err, "\nthe API is at %s until you press Ctrl-C; try\n  curl '%s/v1/outbox?limit=3'\n", d.base, d.base)
	<-ctx.Done()
	return nil
}
