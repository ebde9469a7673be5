package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// recordFlags are the flags of "record".
type recordFlags struct {
	format   string
	tenant   string
	idFrom   string
	idPrefix string
	timeFrom string
	mapping  []string
	shiftTo  string
}

func recordCommand(a *app) *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record FILE|-",
		Short: "Record events from a file or standard input",
		Long: "Record events, CloudEvents or the plain form: a JSON object per line or after each\n" +
			"other, or a JSON array; or CSV with a column for each feature. FILE is - for\n" +
			"standard input. With -o jsonl the outcome of every line is printed, with every\n" +
			"other format only lines that were refused; lines of an array are its elements.\n\n" +
			"Recording the same file again changes nothing: every line then is a duplicate.\n" +
			"Exit code 7 means that some lines were refused and the others are recorded.",
		Example: "  fencepost record usage.ndjson\n" +
			"  cat events.json | fencepost record - --format cloudevents\n" +
			"  fencepost record trace.csv --format csv --tenant acme --id-from row --id-prefix trace \\\n" +
			"    --time-from TIMESTAMP --map input_tokens=ContextTokens,output_tokens=GeneratedTokens --shift-to now",
		Args: oneArg("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.record(cmd, args[0], f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.format, "format", "", "cloudevents, ndjson or csv (default: by the file's ending, else by each line)")
	fl.StringVar(&f.tenant, "tenant", "", "csv: the tenant of every row")
	fl.StringVar(&f.idFrom, "id-from", "", "csv: row, or the column that holds a row's id")
	fl.StringVar(&f.idPrefix, "id-prefix", "", "csv: first part of every event id (required with --id-from row)")
	fl.StringVar(&f.timeFrom, "time-from", "", "csv: the column that holds a row's time (default: time of receipt)")
	fl.StringSliceVar(&f.mapping, "map", nil, "csv: FEATURE=COLUMN,… for each feature a row reports")
	fl.StringVar(&f.shiftTo, "shift-to", "", "csv: move all times so that the latest is at this RFC 3339 time, or now")
	return cmd
}

func (a *app) record(cmd *cobra.Command, path string, f recordFlags) error {
	in, size, err := openInput(cmd.Context(), path, a.in)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	bar := newProgress(a.err, size)
	src, err := newSource(path, bar.reader(in), f)
	if err != nil {
		return err
	}
	r := &recording{app: a, counts: map[string]int{}}
	if s, ok := src.(*csvSource); ok && s.shiftedTo != "" {
		r.shiftedTo = s.shiftedTo
		fmt.Fprintf(a.err, "shift: times end at %s; repeat exactly with --shift-to %s\n", s.shiftedTo, s.shiftedTo)
	}
	return a.withRecording(cmd, func(c *client) error {
		r.client = c
		err := r.run(cmd.Context(), src)
		bar.done(err == nil)
		return r.finish(err)
	})
}

// lineResult is the outcome of one line.
type lineResult struct {
	Line    int        `json:"line"`
	ID      string     `json:"id,omitempty"`
	Outcome string     `json:"outcome"`
	Error   *lineError `json:"error,omitempty"`
}

// lineError is the first rule that a line breaks.
type lineError struct {
	Tag   string `json:"tag"`
	Field string `json:"field,omitempty"`
	Rule  string `json:"rule,omitempty"`
}

// recordSummary is the answer of -o json.
type recordSummary struct {
	Summary  map[string]int `json:"summary"`
	Problems []lineResult   `json:"problems"`
	// ProblemsCut counts problems beyond those listed.
	ProblemsCut int `json:"problems_cut,omitempty"`
	// ShiftTo is the resolved --shift-to, with which the run can be repeated.
	ShiftTo string `json:"shift_to,omitempty"`
}

// problemsMax bounds what is kept of problems for -o json and tables.
const problemsMax = 1000

// recording sends lines in batches and keeps count.
type recording struct {
	client    *client
	app       *app
	shiftedTo string
	counts    map[string]int
	problems  []lineResult
	cut       int
	sent      int // lines answered for
}

// Bounds of one request, below the server's own.
const (
	batchLines = 500
	batchBytes = 900 << 10
)

// run sends everything that src yields. Lines that are no events travel with the
// batch that they stand in, so that outcomes come in the order of the input.
func (r *recording) run(ctx context.Context, src source) error {
	var b batch
	for {
		l, err := src.next()
		if errors.Is(err, io.EOF) {
			return r.send(ctx, &b)
		}
		if err != nil {
			return errors.Join(r.send(ctx, &b), err)
		}
		if !b.takes(l) {
			if err := r.send(ctx, &b); err != nil {
				return err
			}
		}
		b.add(l)
	}
}

// batch is the lines of one request, and those between them that are no events.
type batch struct {
	lines []line
	bytes int
	cloud bool
}

// takes reports whether l fits into what b holds.
func (b *batch) takes(l line) bool {
	switch {
	case len(b.lines) >= batchLines:
		return false
	case l.err != nil || b.bytes == 0:
		return true
	}
	return b.cloud == l.cloud && b.bytes+len(l.body) <= batchBytes
}

func (b *batch) add(l line) {
	b.lines = append(b.lines, l)
	if l.err == nil {
		b.cloud = l.cloud
		b.bytes += len(l.body) + 1
	}
}

// report counts one line's outcome and, where the format shows it, prints it.
func (r *recording) report(res lineResult) error {
	r.counts[res.Outcome]++
	r.sent++
	if r.app.output == "jsonl" {
		return r.app.print(listing{items: []any{res}})
	}
	if res.Error == nil {
		return nil
	}
	if len(r.problems) < problemsMax {
		r.problems = append(r.problems, res)
	} else {
		r.cut++
	}
	return nil
}

// finish prints the summary and turns it into the command's exit code.
func (r *recording) finish(err error) error {
	if perr := r.summary(); perr != nil {
		return perr
	}
	bad := r.counts["invalid"] + r.counts["conflict"]
	good := r.sent - bad
	switch {
	case err != nil:
		return r.broken(err, good)
	case bad == 0:
		return nil
	case good > 0:
		return codeError{exitPartial, fmt.Errorf("%w", errSilent)}
	case r.counts["conflict"] > 0:
		return codeError{exitConflict, fmt.Errorf("%w", errSilent)}
	}
	return codeError{exitRefused, fmt.Errorf("%w", errSilent)}
}

// broken says how to go on after what ended the run before the input did.
func (r *recording) broken(err error, good int) error {
	if sdk.TagOf(err) == sdk.TagUnavailable || errors.Is(err, context.Canceled) {
		again := "run the same command again"
		if r.shiftedTo != "" {
			again += " with --shift-to " + r.shiftedTo
		}
		fmt.Fprintf(r.app.err, "%d lines are answered for; %s, what is recorded counts once\n", r.sent, again)
		return err
	}
	if good > 0 { // the code of a refusal would say that nothing was written
		return codeError{exitPartial, err}
	}
	return err
}

var recordOutcomes = []string{"inserted", "duplicate", "unmatched", "conflict", "invalid"}

func (r *recording) summary() error {
	l := listing{columns: []string{"LINE", "ID", "OUTCOME", "FIELD", "RULE"}}
	for _, p := range r.problems {
		l.rows = append(l.rows, []string{strconv.Itoa(p.Line), p.ID, p.Outcome, p.Error.Field, p.Error.Rule})
	}
	counts := map[string]int{}
	for _, o := range recordOutcomes {
		counts[o] = r.counts[o]
	}
	switch r.app.output {
	case "json":
		if r.problems == nil {
			r.problems = []lineResult{}
		}
		return writeJSON(r.app.out, recordSummary{Summary: counts, Problems: r.problems, ProblemsCut: r.cut, ShiftTo: r.shiftedTo})
	case "jsonl":
		return nil
	case "csv":
		return r.app.print(l)
	}
	if len(l.rows) > 0 {
		if err := r.app.print(l); err != nil {
			return err
		}
		if r.cut > 0 {
			fmt.Fprintf(r.app.out, "… and %d more\n", r.cut)
		}
	}
	for i, o := range recordOutcomes {
		if i > 0 {
			fmt.Fprint(r.app.out, ", ")
		}
		fmt.Fprintf(r.app.out, "%s %d", o, counts[o])
	}
	fmt.Fprintln(r.app.out)
	return nil
}

func toLineError(err error) *lineError {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return &lineError{Tag: string(e.Tag), Field: e.Field, Rule: e.Rule}
	}
	return &lineError{Tag: string(sdk.TagInvalid), Rule: "a readable line"}
}

// decodeID finds the id of an event for messages; it need not be valid, and a
// long one is cut.
func decodeID(body []byte) string {
	var e struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(body, &e) // an unreadable id is simply not shown
	if text := []rune(e.ID); len(text) > meter.MaxID {
		return string(text[:meter.MaxID]) + "…"
	}
	return e.ID
}
