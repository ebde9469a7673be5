// Command fencepost is the metering engine as one binary: it serves, records,
// shows and settles. Run "fencepost help" for the commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
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
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := exitCode(err)
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintln(s.err, "fencepost: "+describe(err))
	}
	if ctx.Err() != nil && err != nil {
		return exitInterrupted
	}
	return code
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
		Args:          cobra.NoArgs,
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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		serveCommand(a), demoCommand(a), recordCommand(a), usageCommand(a), outboxCommand(a),
		eventsCommand(a), subscriptionsCommand(a), migrateCommand(a), stripeDoubleCommand(a),
		versionCommand(a), exitCodesTopic(),
	)
	for _, c := range root.Commands() {
		wrapArgErrors(c)
	}
	return root
}

// wrapArgErrors makes a wrong number of arguments a usage error (exit 2).
func wrapArgErrors(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgErrors(sub)
	}
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
