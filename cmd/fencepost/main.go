// Command fencepost is the metering engine as one binary: it serves, records,
// shows and settles. Run "fencepost help" for the commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	// Go's HTTP client writes what a misbehaving server sends, which may be
	// anything it was told, to the global log. This program logs for itself.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// streams are what a command reads and writes. Data goes to out, everything
// else to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// run executes one command line and returns its exit code. The first interrupt
// asks the command to drain; a second one ends the process at once.
func run(args []string, s streams) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal has its default effect
	out := &sink{w: s.out}
	s.out = out
	root := newRoot(s)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("write output: %w", out.err)
	}
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintln(s.err, "fencepost: "+describe(err, cmd.CommandPath()))
	}
	if ctx.Err() != nil && err != nil {
		return exitInterrupted
	}
	return exitCode(err)
}

// sink remembers that something could not be written: a summary that nobody
// can read must not look like success.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err //nolint:wrapcheck // a writer passes errors on as they are
}

// app carries the global flags to every command.
type app struct {
	streams
	configPath string
	server     string
	output     string
	json       bool
	noInput    bool
}

func newRoot(s streams) *cobra.Command {
	a := &app{streams: s}
	root := &cobra.Command{
		Use:   "fencepost",
		Short: "Usage metering that bills once and loses nothing",
		Long: "Fencepost records what customers used, exactly once, and reports it to a billing\n" +
			"provider without billing twice or losing a unit.",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return a.checkOutput()
		},
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	f := root.PersistentFlags()
	f.StringVar(&a.configPath, "config", os.Getenv("FENCEPOST_CONFIG"), "configuration file (default ./fencepost.yaml if it exists; env FENCEPOST_CONFIG)")
	f.StringVar(&a.server, "server", os.Getenv("FENCEPOST_SERVER"), "talk to a running server, such as http://127.0.0.1:8787, instead of opening the store (env FENCEPOST_SERVER)")
	f.StringVarP(&a.output, "output", "o", "table", "output format: table, json, jsonl or csv")
	f.BoolVar(&a.json, "json", false, "same as -o json")
	f.BoolVar(&a.noInput, "no-input", false, "never ask; fail and name the missing flag")
	root.AddCommand(
		serveCommand(a), demoCommand(a), recordCommand(a), correctCommand(a), usageCommand(a), outboxCommand(a), recoverCommand(a), reconcileCommand(a),
		eventsCommand(a), subscriptionsCommand(a), creditsCommand(a), migrateCommand(a), stripeDoubleCommand(a), replayCommand(a), retentionCommand(a), storageCommand(a), pluginCommand(a), journalCommand(a),
		versionCommand(a), pluginWorkerCommand(), exitCodesTopic(),
	)
	finishTree(root)
	return root
}

func (a *app) checkOutput() error {
	if a.json {
		a.output = "json"
	}
	switch a.output {
	case "table", "json", "jsonl", "csv":
		return nil
	}
	return usageError{errors.New("-o: table, json, jsonl or csv")}
}
