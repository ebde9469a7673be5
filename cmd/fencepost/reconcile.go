package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk"
)

func reconcileCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "reconcile", Short: "Compare what was reported with what a provider says"}
	cmd.AddCommand(reconcileRun(a), reconcileList(a), reconcileShow(a))
	return cmd
}

func reconcileRun(a *app) *cobra.Command {
	var from, to string
	var exporter, customer, feature, actor, why string
	var whole, dryRun bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Compare the sums of a stretch of time, confirm what agrees, and print what differs",
		Long: "For each customer and feature: what was recorded, what was reported, what the provider\n" +
			"counts, the difference and its cause. Items of sums that agree are confirmed. Nothing\n" +
			"is ever sent again by it. The exit code is 9 if a sum differs.",
		Example: "  fencepost reconcile run --exporter stripe --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name, v := range map[string]string{"from": from, "to": to} {
				if _, err := time.Parse(time.RFC3339, v); err != nil {
					return usageError{errors.New("--" + name + ": an RFC 3339 time such as 2026-11-01T00:00:00Z")}
				}
			}
			in := map[string]any{
				"exporter": exporter, "from": from, "to": to, "customer": customer, "feature": feature, "whole": whole, "actor": actor, "reason": why, "dry_run": dryRun,
			}
			return a.withSettling(cmd, func(c *client) error { return a.reconcileAndShow(cmd.Context(), c, in) })
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&exporter, "exporter", "", "the exporter (required)")
	fl.StringVar(&from, "from", "", "start of the usage, RFC 3339 (required)")
	fl.StringVar(&to, "to", "", "its end, not included (required)")
	fl.StringVar(&customer, "customer", "", "only this customer of the provider")
	fl.StringVar(&feature, "feature", "", "only this feature")
	fl.BoolVar(&whole, "whole", false, "the stretch as one, instead of day by day")
	fl.BoolVar(&dryRun, "dry-run", false, "compare, confirm nothing and store no evidence; the run and its lines are kept, as of every comparison")
	fl.StringVar(&actor, "actor", operator(), "who")
	fl.StringVar(&why, "reason", "", "why, for people who read the log of actions")
	required(cmd, "exporter", "from", "to")
	return cmd
}

// reconcilePoll is the pause between two looks at a run that a server makes.
const reconcilePoll = 500 * time.Millisecond

func (a *app) reconcileAndShow(ctx context.Context, c *client, in map[string]any) error {
	var started api.ReconciliationStarted
	if err := c.post(ctx, "/v1/reconciliations", in, &started); err != nil {
		return err
	}
	for {
		var run api.ReconciliationView
		err := c.get(ctx, "/v1/reconciliations/"+pathEscape(started.ID), nil, &run)
		// It is stored with its first lines. A server that has died stores none.
		if unseen := errors.Is(err, sdk.ErrNotFound) && !started.Done; err != nil && !unseen {
			return err
		}
		if run.FinishedAt != nil || run.Error != "" || started.Done {
			return a.showReconciliation(ctx, c, run, maxListed)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconcilePoll):
		}
	}
}

func reconcileList(a *app) *cobra.Command {
	limit, exporter := 20, ""
	cmd := &cobra.Command{
		Use: "list", Short: "List comparisons, the latest first", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 1000 {
				return usageError{errors.New("--limit: 1 to 1000")}
			}
			return a.withAPI(cmd, func(c *client) error {
				var page api.Page[api.ReconciliationView]
				params := map[string]string{"exporter": exporter, "limit": strconv.Itoa(limit)}
				if err := c.get(cmd.Context(), "/v1/reconciliations", params, &page); err != nil {
					return err
				}
				l := listing{columns: []string{"ID", "EXPORTER", "FROM", "TO", "STARTED", "FINISHED", "LINES", "DIFFERING", "CONFIRMED", "ERROR"}, data: page}
				for _, r := range page.Data {
					l.rows = append(l.rows, []string{r.ID, r.Exporter, r.From, r.To, r.StartedAt, text(r.FinishedAt), r.Lines, r.Differing, r.Confirmed, r.Error})
					l.items = append(l.items, r)
				}
				return a.print(l)
			})
		},
	}
	cmd.Flags().StringVar(&exporter, "exporter", "", "only this exporter")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this many")
	return cmd
}

func reconcileShow(a *app) *cobra.Command {
	limit := 1000
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show the sums of a comparison; exit code 9 if one differs", Args: oneArg("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return a.withAPI(cmd, func(c *client) error {
				var run api.ReconciliationView
				if err := c.get(cmd.Context(), "/v1/reconciliations/"+pathEscape(args[0]), nil, &run); err != nil {
					return notFound(err, "fencepost reconcile list shows them")
				}
				return a.showReconciliation(cmd.Context(), c, run, limit)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this many sums")
	return cmd
}

func (a *app) showReconciliation(ctx context.Context, c *client, run api.ReconciliationView, limit int) error {
	lines, more, err := pages[api.ReconciliationLineView](ctx, c, "/v1/reconciliations/"+pathEscape(run.ID)+"/lines", nil, limit)
	if err != nil {
		return err
	}
	data := struct {
		api.ReconciliationView
		Data []api.ReconciliationLineView `json:"data"`
		Next string                       `json:"next,omitempty"`
	}{run, lines, more}
	l := listing{columns: []string{"CUSTOMER", "FEATURE", "METER", "FROM", "TO", "RECORDED", "REPORTED", "PROVIDER", "DIFFERENCE", "CAUSE", "CONFIRMED"}, data: data}
	for _, x := range lines {
		l.rows = append(l.rows, []string{
			x.Customer, x.Feature, x.Meter, x.From, x.To, x.Recorded, x.Reported, text(x.Provider), text(x.Difference), x.Cause, x.Confirmed,
		})
		l.items = append(l.items, x)
	}
	if err := a.printMore(l, more); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "reconciliation %s: %s sums, %s differ, %s items confirmed\n", visible(run.ID), run.Lines, run.Differing, run.Confirmed)
	switch {
	case run.Error != "":
		return fmt.Errorf("not all was compared: %s", visible(run.Error))
	case run.Differing != "0":
		return codeError{exitCheckFailed, errors.New("a sum differs from the provider's")}
	}
	return nil
}
