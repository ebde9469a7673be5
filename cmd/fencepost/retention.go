package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/api"
)

func retentionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "retention", Short: "Remove what is old"}
	cmd.AddCommand(retentionPrune(a))
	return cmd
}

func retentionPrune(a *app) *cobra.Command {
	var kind, age string
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Count what is older than an age, or remove it with --yes",
		Long: "Without --yes nothing is removed: what would be is counted, by the same rule.\n\n" +
			"  events      usage events and corrections, with their settled outbox items; totals keep them,\n" +
			"              and a repeat of a removed event is still a duplicate or a conflict\n" +
			"  tombstones  what is kept of removed events to know a repeat; a repeat after that is new usage\n" +
			"  receipts    the ids of counter batches that were applied",
		Example: "  fencepost retention prune --kind events --age 400d --dry-run\n  fencepost retention prune --kind events --age 400d --yes",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !slices.Contains([]string{"events", "tombstones", "receipts"}, kind):
				return usageError{errors.New("--kind: events, tombstones or receipts")}
			case dryRun && yes:
				return usageError{errors.New("--yes: not with --dry-run")}
			}
			if _, err := api.ParseAge(age); err != nil {
				return usageError{errors.New("--age: at most 36500d: a number of days such as 400d, or a duration such as 36h")}
			}
			body, err := json.Marshal(map[string]any{"kind": kind, "age": age, "dry_run": !yes})
			if err != nil {
				return fmt.Errorf("encode: %w", err)
			}
			return a.withAPI(cmd, func(c *client) error { return a.prune(cmd, c, body) })
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "events, tombstones or receipts (required)")
	cmd.Flags().StringVar(&age, "age", "", "least age, such as 400d or 36h, at most 36500d (required)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only count; this is what happens without --yes")
	cmd.Flags().BoolVar(&yes, "yes", false, "remove")
	return cmd
}

// prune asks until nothing is left: one request removes what it has time for.
func (a *app) prune(cmd *cobra.Command, c *client, body []byte) error {
	var removed int64
	for {
		var p api.PruneAnswer
		if err := c.do(cmd.Context(), request{method: "POST", path: "/v1/retention/prune", media: "application/json", body: body}, &p); err != nil {
			return err
		}
		n, err := strconv.ParseInt(p.Removed, 10, 64)
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
		removed += n
		if p.More && !p.DryRun && n > 0 {
			continue
		}
		p.Removed = strconv.FormatInt(removed, 10)
		count := "REMOVED"
		if p.DryRun {
			count = "WOULD REMOVE"
		}
		l := listing{columns: []string{"KIND", "AGE", "DRY RUN", count, "KEPT", "MORE"}, data: p, items: []any{p}}
		l.rows = [][]string{{string(p.Kind), p.Age, strconv.FormatBool(p.DryRun), p.Removed, p.Kept, strconv.FormatBool(p.More)}}
		if err := a.print(l); err != nil {
			return err
		}
		if p.DryRun {
			fmt.Fprintln(a.err, "nothing was removed; --yes removes")
		}
		return nil
	}
}
