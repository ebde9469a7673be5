package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/api"
)

func outboxBackfill(a *app) *cobra.Command {
	var act actFlags
	var exporter, feature, tenant, after string
	cmd := &cobra.Command{
		Use:   "backfill",
		Short: "Make items for events that were recorded before a route was there",
		Long: "An event that has, or had, an item for the same place is skipped and reported: it\n" +
			"may have been billed. The same command again makes nothing twice.\n\n" +
			"SCANNED counts the events and corrections that were looked at. Of these MADE got an\n" +
			"item, QUARANTINED of which cannot be sent as things are; SKIPPED had one; and for the\n" +
			"rest NOTHING DUE: the quantity is zero, the feature has no route there, or is ignored\n" +
			"by it, or it is a correction that has its item or, in a dry run, whose event has none\n" +
			"yet. Which events were skipped, and because of which item: -o json.",
		Example: "  fencepost outbox backfill --exporter stripe --reason 'added in March' --dry-run",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withReplacing(cmd, func(c *client) error {
				fields := act.body(map[string]any{"exporter": exporter, "feature": feature, "tenant": tenant, "limit": 1000})
				return a.backfill(cmd, c, fields, after)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&exporter, "exporter", "", "the exporter, with routes in force (required)")
	fl.StringVar(&feature, "feature", "", "only this feature")
	fl.StringVar(&tenant, "tenant", "", "only this tenant")
	fl.StringVar(&after, "after", "0", "only events after this seq")
	act.add(cmd)
	required(cmd, "exporter")
	return cmd
}

// backfill asks for page after page and adds up.
func (a *app) backfill(cmd *cobra.Command, c *client, fields map[string]any, after string) error {
	total := api.BackfillAnswer{Skipped: []api.SkippedView{}}
	for {
		fields["after"] = after
		var page api.BackfillAnswer
		if err := c.post(cmd.Context(), "/v1/outbox/backfill", fields, &page); err != nil {
			if total.Scanned > 0 {
				fmt.Fprintf(a.err, "events up to seq %s are done: go on with --after %s\n", visible(after), visible(after))
			}
			return err
		}
		total.DryRun, total.Scanned = page.DryRun, total.Scanned+page.Scanned
		total.Made, total.Quarantined = total.Made+page.Made, total.Quarantined+page.Quarantined
		total.Skipped, total.NothingDue = append(total.Skipped, page.Skipped...), total.NothingDue+page.NothingDue
		if !page.More {
			break
		}
		after = page.Next
	}
	made := "MADE"
	if total.DryRun {
		made = "WOULD MAKE"
	}
	l := listing{columns: []string{"SCANNED", made, "QUARANTINED", "SKIPPED", "NOTHING DUE"}, data: total, items: []any{total}}
	l.rows = [][]string{{
		strconv.Itoa(total.Scanned), strconv.Itoa(total.Made), strconv.Itoa(total.Quarantined), strconv.Itoa(len(total.Skipped)),
		strconv.Itoa(total.NothingDue),
	}}
	return a.print(l)
}

func outboxRoute(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "route", Short: "Where usage goes"}
	cmd.AddCommand(routeList(a), routeRename(a), routeRetire(a))
	return cmd
}

func routeList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List every route, retired ones included", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withAPI(cmd, func(c *client) error {
				var page api.Page[api.RouteView]
				if err := c.get(cmd.Context(), "/v1/routes", nil, &page); err != nil {
					return err
				}
				l := listing{columns: []string{"ID", "EXPORTER", "ACCOUNT", "MODE", "FEATURE", "DISPOSITION", "MAPPING", "AFTER SEQ", "RETIRED"}, data: page}
				for _, r := range page.Data {
					mapping := strings.TrimSpace(r.MappingLabel + " " + string(r.Mapping))
					l.rows = append(l.rows, []string{r.ID, r.Exporter, r.Account, r.Mode, r.Feature, r.Disposition, mapping, r.AppliesAfter, text(r.RetiredAt)})
					l.items = append(l.items, r)
				}
				return a.print(l)
			})
		},
	}
}

func routeRename(a *app) *cobra.Command {
	var act actFlags
	cmd := &cobra.Command{
		Use:   "rename FROM TO",
		Short: "Give an exporter another name",
		Long: "What is on its way keeps its identity, so nothing is reported twice. The new name\n" +
			"then belongs into the configuration, in place of the old one.",
		Example: "  fencepost outbox route rename stripe billing --reason 'a second account comes'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] == "" || args[1] == "" {
				return usageError{errors.New("FROM and TO: two names")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeRoutes(cmd, "rename", act.body(map[string]any{"from": args[0], "to": args[1]}))
		},
	}
	act.add(cmd)
	return cmd
}

func routeRetire(a *app) *cobra.Command {
	var act actFlags
	var feature string
	cmd := &cobra.Command{
		Use: "retire EXPORTER", Short: "End an exporter's routes; refused while items are open",
		Example: "  fencepost outbox route retire stripe --reason 'moved away' --dry-run",
		Args:    oneArg("EXPORTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeRoutes(cmd, "retire", act.body(map[string]any{"exporter": args[0], "feature": feature}))
		},
	}
	cmd.Flags().StringVar(&feature, "feature", "", "only the route of this feature")
	act.add(cmd)
	return cmd
}

// changeRoutes needs no exporter and must not bring the configured routes back:
// nothing of the configuration but the store is used.
func (a *app) changeRoutes(cmd *cobra.Command, verb string, fields map[string]any) error {
	return a.withAPI(cmd, func(c *client) error {
		var done api.RouteChanged
		if err := c.post(cmd.Context(), "/v1/routes/"+verb, fields, &done); err != nil {
			return notFound(err, "fencepost outbox route list shows the routes")
		}
		l := listing{columns: []string{"DRY RUN", "ROUTES", "TENANTS"}, data: done, items: []any{done}}
		l.rows = [][]string{{strconv.FormatBool(done.DryRun), strconv.Itoa(done.Routes), strconv.Itoa(done.Tenants)}}
		return a.print(l)
	})
}
