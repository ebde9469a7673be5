package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/journal"
	"github.com/fencepost/fencepost/plugins/sdk"
)

func journalCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "The files of the ndjson exporter",
	}
	cmd.AddCommand(journalVerifyCommand(a))
	return cmd
}

func journalVerifyCommand(a *app) *cobra.Command {
	var unique bool
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check the chain of hashes of a file of lines",
		Long: "Reads the file from its first line and checks that the numbers follow each other and\n" +
			"that each line has the hash of the one before. A line that was changed, removed or put\n" +
			"in between is named. The end can still be cut off, or the last line changed, without\n" +
			"that: keep the head that is printed, and compare.\n\n" +
			"An unfinished last line is what a crash leaves; the next writer takes it away.",
		Example: "  fencepost journal verify ./usage.ndjson\n  fencepost journal verify --unique ./usage.ndjson",
		Args:    oneArg("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.verifyJournal(args[0], unique)
		},
	}
	cmd.Flags().BoolVar(&unique, "unique", false, "check also that no identifier occurs twice (some 50 bytes of memory a line)")
	return cmd
}

// wholeLines says how much of a journal is not in doubt.
func wholeLines(n int64) string {
	switch n {
	case 0:
		return "no line is known to be as it was written; compare the file with a copy"
	case 1:
		return "line 1 is as it was written; compare the rest with a copy"
	}
	return fmt.Sprintf("lines 1 to %d are as they were written; compare the rest with a copy", n)
}

func (a *app) verifyJournal(path string, unique bool) error {
	f, err := os.Open(path)
	if err != nil {
		return &sdk.Error{Tag: sdk.TagInvalid, Field: "FILE", Rule: "a file that can be read", Err: err}
	}
	defer func() { _ = f.Close() }()
	v, err := journal.Verify(f, unique)
	var broken *journal.Broken
	switch {
	case errors.As(err, &broken):
		return codeError{exitCheckFailed, fmt.Errorf("the chain does not hold: %w (%s)", broken, wholeLines(broken.Whole))}
	case err != nil:
		return fmt.Errorf("read the journal: %w", err)
	}
	if a.output == "json" || a.output == "jsonl" {
		return json.NewEncoder(a.out).Encode(map[string]any{"lines": v.Lines, "head": v.Head, "torn_bytes": v.Torn})
	}
	fmt.Fprintf(a.out, "lines: %d\nhead: %s\n", v.Lines, v.Head)
	if v.Torn > 0 {
		fmt.Fprintf(a.out, "unfinished: %d bytes at the end, which the next writer takes away\n", v.Torn)
	}
	return nil
}
