package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/plugins/workbench"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// printBody shows the content of a request or an answer, a line of it at a time.
func printBody(w io.Writer, c workbench.Content) {
	switch {
	case c.BodyBase64 != "":
		fmt.Fprintln(w, "  base64: "+c.BodyBase64)
	case c.Body != "":
		for line := range strings.Lines(c.Body) {
			fmt.Fprintln(w, "  "+visible(strings.TrimRight(line, "\r\n")))
		}
	}
}

func pluginTest(a *app) *cobra.Command {
	var testdata string
	var update bool
	cmd := &cobra.Command{
		Use: "test [FILE|DIR]", Short: "Run an exporter's own tests: recorded conversations and what has to come of them", Args: optionalDir,
		Long: "Each folder of testdata has input.json, conversation.json and expected.json. The input is delivered,\n" +
			"answered from the conversation, inside this process and without a network; the requests must be\n" +
			"those recorded and the outcomes those expected. Ends with 9 if something is otherwise.",
		Example: "  fencepost plugin test\n  fencepost plugin test ./meterline.wasm --testdata ./testdata --update",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := workbench.Load(dirOf(args))
			if err != nil {
				return err
			}
			m, err := a.machine()
			if err != nil {
				return err
			}
			if testdata == "" {
				testdata = filepath.Join(filepath.Dir(p.Path), "testdata")
			}
			results, err := m.Fixtures(cmd.Context(), p, testdata, update)
			if err != nil {
				return err
			}
			return a.printFixtures(results)
		},
	}
	cmd.Flags().StringVar(&testdata, "testdata", "", "the folder of the tests (default testdata beside the plugin)")
	cmd.Flags().BoolVar(&update, "update", false, "write the outcomes found as those expected")
	return cmd
}

func (a *app) printFixtures(results []workbench.FixtureResult) error {
	l := listing{columns: []string{"TEST", "STATUS", "MESSAGES"}, data: map[string]any{"data": results}}
	failed := 0
	for _, r := range results {
		status := string(conformance.Passed)
		if !r.Passed {
			status = string(conformance.Failed)
			failed++
		}
		l.rows = append(l.rows, []string{r.Name, status, strings.Join(r.Messages, "; ")})
		l.items = append(l.items, r)
	}
	if err := a.print(l); err != nil {
		return err
	}
	if failed > 0 {
		return codeError{exitCheckFailed, fmt.Errorf("%d of %d tests failed", failed, len(results))}
	}
	return nil
}

// judgeFlags are what the suite is asked for.
type judgeFlags struct {
	provider, match, dsn string
	isolations           []string
	list, fresh          bool
}

func pluginConformance(a *app) *cobra.Command {
	var f judgeFlags
	cmd := &cobra.Command{
		Use: "conformance [FILE|DIR]", Short: "Run the conformance suite over a plugin, wherever it can run", Args: optionalDir,
		Long: "An exporter is judged by what it sends and answers, over a double of the host that speaks as\n" +
			"provider.json says: a module in a worker and in this process, a program as a process. A storage\n" +
			"adapter is judged by the suite of storage, over the store that --dsn names. Ends with 9 if a case failed.\n\n" +
			"Passing is necessary and not sufficient: that provider.json says what the provider says, nobody checks.",
		Example: "  fencepost plugin conformance\n  fencepost plugin conformance ./meterline.wasm --isolation worker --run 'outcome' -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.list {
				return a.print(exporterCases())
			}
			return a.judgePlugin(cmd.Context(), dirOf(args), f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.provider, "provider", "", "the provider's answers (default provider.json beside the plugin)")
	fl.StringSliceVar(&f.isolations, "isolation", nil, "inproc, worker or process; may be repeated (default all that this file can)")
	fl.StringVar(&f.match, "run", "", "run only the cases whose name matches this regular expression")
	fl.StringVar(&f.dsn, "dsn", "", "of a storage adapter: the data source name")
	fl.BoolVar(&f.fresh, "fresh", false, "of a storage adapter: everything in the store may be removed")
	fl.BoolVar(&f.list, "list", false, "list the cases of exporters and run none")
	return cmd
}

func exporterCases() listing {
	l := listing{columns: []string{"CASE", "RULE"}}
	type row struct {
		Case string `json:"case"`
		Rule string `json:"rule"`
	}
	data := []row{}
	for _, c := range conformance.Cases() {
		r := row{c.Name, c.Rule}
		data = append(data, r)
		l.items = append(l.items, r)
		l.rows = append(l.rows, []string{c.Name, c.Rule})
	}
	l.data = map[string]any{"data": data}
	return l
}

func (a *app) judgePlugin(ctx context.Context, path string, f judgeFlags) error {
	re, err := regexp.Compile(f.match)
	if err != nil {
		return usageError{errors.New("--run: a regular expression")}
	}
	p, err := workbench.Load(path)
	if err != nil {
		return err
	}
	if p.Manifest.Kind == grant.KindStorage {
		return a.judgeStorage(ctx, p, f)
	}
	provider, err := readProvider(p, f.provider)
	if err != nil {
		return err
	}
	m, err := a.machine()
	if err != nil {
		return err
	}
	j := workbench.Judging{Artifact: p, Provider: provider.Provider, Match: re.MatchString}
	for _, i := range f.isolations {
		j.Isolations = append(j.Isolations, grant.Isolation(i))
	}
	if a.output == "table" {
		j.Each = func(r workbench.CaseResult) { fmt.Fprintln(a.out, visibleLines(caseLine(r))) }
	}
	results, err := m.Judge(ctx, j)
	if err != nil {
		return err
	}
	return a.printCases(results)
}

func caseLine(r workbench.CaseResult) string {
	head := fmt.Sprintf("%-8s %-7s %s", r.Isolation, r.Status, r.Case)
	return strings.Join(append([]string{head}, r.Messages...), "\n                 ")
}

func (a *app) printCases(results []workbench.CaseResult) error {
	count := map[conformance.Status]int{}
	l := listing{columns: []string{"ISOLATION", "CASE", "STATUS", "MESSAGES"}, data: map[string]any{"data": results}}
	for _, r := range results {
		count[r.Status]++
		l.rows = append(l.rows, []string{string(r.Isolation), r.Case, string(r.Status), strings.Join(r.Messages, "; ")})
		l.items = append(l.items, r)
	}
	if len(results) == 0 {
		return usageError{errors.New("--run: matches no case; --list shows them")}
	}
	if a.output == "table" {
		fmt.Fprintln(a.out, strconv.Itoa(count[conformance.Passed])+" passed, "+strconv.Itoa(count[conformance.Failed])+" failed, "+strconv.Itoa(count[conformance.Skipped])+" skipped")
	} else if err := a.print(l); err != nil {
		return err
	}
	if count[conformance.Failed] > 0 {
		return codeError{exitCheckFailed, errSilent}
	}
	return nil
}

// judgeStorage runs the suite of storage adapters.
func (a *app) judgeStorage(ctx context.Context, p workbench.Artifact, f judgeFlags) error {
	if f.dsn == "" {
		return usageError{errors.New("--dsn: required for a storage adapter")}
	}
	scheme := "wasm:"
	if p.Native {
		scheme = "exec:"
	}
	return a.runConformance(ctx, conformanceFlags{plugin: scheme + p.Path, dsn: f.dsn, match: f.match, fresh: f.fresh})
}
