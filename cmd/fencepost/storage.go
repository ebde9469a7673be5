package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest/conformance"
)

func storageCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "storage", Short: "Storage adapters: do they keep the contract?"}
	cmd.AddCommand(conformanceCommand(a))
	return cmd
}

// conformanceFlags are what a run is asked for.
type conformanceFlags struct {
	plugin, dsn, match string
	fresh, list        bool
	seed               uint64
	steps, rounds      int
}

func conformanceCommand(a *app) *cobra.Command {
	var f conformanceFlags
	cmd := &cobra.Command{
		Use: "conformance", Short: "Run the conformance suite over a storage adapter", Args: noArgs,
		Long: "Runs named cases over a storage adapter and says which requirements it keeps. Cases of\n" +
			"capabilities that it does not declare are skipped. Ends with 0 if nothing failed, with 9 otherwise.\n\n" +
			"The store is created or migrated if it is not there. What the cases write stays in it, under tenants\n" +
			"and an exporter of their own. Cases with effects on the whole store (projections, retention) run only\n" +
			"with --fresh: with it, everything in the store may be removed.\n\n" +
			conformance.Note,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.list {
				return a.print(caseListing())
			}
			return a.runConformance(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.plugin, "plugin", "", "the adapter: builtin:sqlite, builtin:postgres, builtin:mysql, exec:FILE for a program or wasm:FILE for a module")
	fl.StringVar(&f.dsn, "dsn", "", "its data source name, as in storage.dsn of the configuration")
	fl.BoolVar(&f.fresh, "fresh", false, "the store was made for this run: nobody else uses it and all of it may be removed")
	fl.StringVar(&f.match, "run", "", "run only the cases whose name matches this regular expression")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the random cases, to repeat a run (default: random)")
	fl.IntVar(&f.steps, "steps", 0, "steps of the model test (default 400)")
	fl.IntVar(&f.rounds, "rounds", 0, "rounds of the cases that look for races (default 30)")
	fl.BoolVar(&f.list, "list", false, "list the cases and run none")
	return cmd
}

func (a *app) runConformance(ctx context.Context, f conformanceFlags) error {
	opts, match, err := a.conformanceOptions(f)
	if err != nil {
		return err
	}
	var each func(conformance.Result)
	if a.output == "table" {
		each = func(res conformance.Result) { fmt.Fprintln(a.out, visibleLines(res.Line())) }
	}
	report, err := conformance.Run(ctx, opts, match, each)
	if err != nil {
		return err
	}
	if a.output == "table" {
		fmt.Fprintln(a.out, visibleLines(report.Summary()))
	} else if err := a.print(reportListing(&report)); err != nil {
		return err
	}
	if !report.OK() {
		return codeError{exitCheckFailed, errSilent}
	}
	return nil
}

func (a *app) conformanceOptions(f conformanceFlags) (conformance.Options, func(conformance.Case) bool, error) {
	var opts conformance.Options
	if f.plugin == "" || f.dsn == "" {
		return opts, nil, usageError{errors.New("--plugin and --dsn are required")}
	}
	if f.steps < 0 || f.rounds < 0 {
		return opts, nil, usageError{errors.New("--steps and --rounds: 0 or more")}
	}
	re, err := regexp.Compile(f.match)
	if err != nil {
		return opts, nil, usageError{errors.New("--run: a regular expression")}
	}
	match := func(c conformance.Case) bool { return re.MatchString(c.Name) }
	matches := 0
	for _, c := range conformance.Cases() {
		if match(c) {
			matches++
		}
	}
	if matches == 0 {
		return opts, nil, usageError{errors.New("--run: matches no case; --list shows them")}
	}
	open, err := judged(f.plugin)
	if err != nil {
		return opts, nil, err
	}
	again := func(ctx context.Context) (storage.Adapter, error) { return open(ctx, f.dsn, quietLogger(a.err)) }
	return conformance.Options{
		Open: again, Beside: again,
		Fresh: f.fresh, OneStore: true, Seed: f.seed, Steps: f.steps, Rounds: f.rounds,
	}, match, nil
}

// judged finds the adapter that is to be judged. A program is run as it is: who
// names its file trusts it, and it is not installed.
func judged(plugin string) (host.OpenStorage, error) {
	scheme, name, _ := strings.Cut(plugin, ":")
	if open := builtins(-1).Storage[name]; scheme == "builtin" && open != nil {
		return open, nil
	}
	if (scheme == "exec" || scheme == "wasm") && name != "" {
		p, err := namedStorage(name, scheme == "wasm")
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, dsn string, logger *slog.Logger) (storage.Adapter, error) {
			dsn, err := secretDSN(dsn)
			if err != nil {
				return nil, err
			}
			p.Logger = logger
			return p.Open(ctx, dsn)
		}, nil
	}
	return nil, &sdk.Error{
		Tag: sdk.TagUnsupported, Field: "plugin", Rule: "builtin:sqlite, builtin:postgres, builtin:mysql, exec:FILE for a program or wasm:FILE for a module",
		Hint: "an adapter of your own runs the suite in its tests, too: package plugins/sdk/storagetest",
	}
}

// namedStorage is an adapter by its file, with all that its manifest wants.
func namedStorage(name string, module bool) (host.StoragePlugin, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return host.StoragePlugin{}, &sdk.Error{Tag: sdk.TagInvalid, Field: "plugin", Rule: "a file that can be read", Err: err}
	}
	if grant.IsModule(content) != module {
		return host.StoragePlugin{}, sdk.Invalid("plugin", "wasm: for a module and exec: for a program")
	}
	p := host.StoragePlugin{
		Name: filepath.Base(name), Bytes: content, Isolation: grant.Process, Network: true, Database: openDatabase, Worker: []string{workerCommandName},
	}
	if module {
		p.Isolation = grant.InProcess
	}
	sidecar, err := os.ReadFile(name + grant.ManifestSuffix)
	if err != nil {
		sidecar = nil
	}
	m, err := grant.ReadManifest(content, sidecar)
	if err != nil && !errors.Is(err, grant.ErrNoManifest) {
		return host.StoragePlugin{}, err
	}
	p.Capabilities = m.Capabilities
	return p, nil
}

// visibleLines is visible text that may have several lines.
func visibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

func reportListing(report *conformance.Report) listing {
	l := listing{columns: []string{"CASE", "STATUS", "REQUIREMENTS", "MESSAGES"}, data: report}
	for _, res := range report.Results {
		l.rows = append(l.rows, []string{
			res.Name, string(res.Status), strings.Join(res.Requirements, " "), strings.Join(res.Messages, "; "),
		})
		l.items = append(l.items, res)
	}
	return l
}

func caseListing() listing {
	all := conformance.Cases()
	l := listing{columns: []string{"CASE", "REQUIREMENTS", "NEEDS", "FRESH"}, data: all}
	for _, c := range all {
		needs := make([]string, len(c.Needs))
		for i, n := range c.Needs {
			needs[i] = string(n)
		}
		isFresh := ""
		if c.Fresh {
			isFresh = "yes"
		}
		l.rows = append(l.rows, []string{c.Name, strings.Join(c.Requirements, " "), strings.Join(needs, " "), isFresh})
		l.items = append(l.items, c)
	}
	return l
}
