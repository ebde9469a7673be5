package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/plugins/sdk"
)

func recoverCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "recover", Short: "Settle what nobody knows the fate of, and go on after a restore"}
	cmd.AddCommand(recoverList(a), recoverPlan(a), recoverApply(a), recoverRestore(a), recoverAdopt(a))
	return cmd
}

// planFlags select uncertain items.
type planFlags struct {
	filter api.PlanFilter
}

func (f *planFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.filter.Exporter, "exporter", "", "only this exporter")
	fl.StringVar(&f.filter.Tenant, "tenant", "", "only this tenant")
	fl.StringVar(&f.filter.Feature, "feature", "", "only this feature")
	fl.Int64Var(&f.filter.After, "after", 0, "only items after this id")
	fl.IntVar(&f.filter.Limit, "limit", 1000, "at most this many items, 1 to 1000")
}

func (a *app) plan(cmd *cobra.Command, f planFlags, use func(api.Plan) error) error {
	if f.filter.Limit < 1 || f.filter.Limit > 1000 {
		return usageError{errors.New("--limit: 1 to 1000")}
	}
	return a.withSettling(cmd, func(c *client) error {
		var p api.Plan
		if err := c.post(cmd.Context(), "/v1/recover/plan", f.filter, &p); err != nil {
			return err
		}
		if err := use(p); err != nil {
			return err
		}
		if p.Next != 0 {
			fmt.Fprintf(a.err, "there is more: go on with --after %d\n", p.Next)
		}
		return nil
	})
}

func recoverList(a *app) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List uncertain items, and what each may become", Args: noArgs,
		Example: "  fencepost recover list --exporter stripe",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.plan(cmd, f, func(p api.Plan) error {
				l := listing{columns: []string{"ID", "TOKEN", "TENANT", "FEATURE", "EXPORTER", "ATTEMPTS", "UNRESOLVED SINCE", "LAST ERROR", "MAY BECOME"}, data: p}
				for _, it := range p.Items {
					l.rows = append(l.rows, []string{
						strconv.FormatInt(it.ID, 10), strconv.FormatInt(it.LeaseToken, 10), it.About["tenant"], it.About["feature"], it.About["exporter"],
						it.About["attempts"], it.About["unresolved_since"], lastMet(it.About), mayBecome(it),
					})
					l.items = append(l.items, it)
				}
				return a.print(l)
			})
		},
	}
	f.add(cmd)
	return cmd
}

// lastMet is why an item is uncertain, and what its last attempt met.
func lastMet(about map[string]string) string {
	if about["last_attempt"] == "" {
		return about["last_error"]
	}
	return about["last_error"] + ": " + about["last_attempt"]
}

// mayBecome is what an item may be settled as now, or from when on it may.
func mayBecome(it api.PlanItem) string {
	may := make([]string, len(it.May))
	for i, s := range it.May {
		may[i] = string(s)
	}
	if len(may) == 0 && it.About["not_before"] != "" {
		return "nothing before " + it.About["not_before"]
	}
	return strings.Join(may, " ")
}

// planHead is what stands above the items of a plan file.
const planHead = `# Fill in "state" for each item: accepted or rejected, with evidence, pending to send it
# again, or quarantined to requeue it ("may" lists what it could become when this was written, "not_before" is when something
# may be decided). An empty state leaves it alone:
#   state: accepted
#   evidence: {kind: asserted, detail: "the provider's dashboard shows it"}
# "count" is the number of items, and "end" the last line: a file that was cut off is refused. If
# you take items out, correct "count" or take it out, too.
# Then, with reason and actor filled in: fencepost recover apply FILE --dry-run
`

func recoverPlan(a *app) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use: "plan", Short: "Write a file of uncertain items for you to decide about", Args: noArgs,
		Long:    "The file goes to standard output. It holds the state in which each item was found;\napply refuses what has moved since.",
		Example: "  fencepost recover plan --exporter stripe > plan.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.plan(cmd, f, func(p api.Plan) error {
				if a.output == "json" {
					return writeJSON(a.out, p)
				}
				body, err := yaml.Marshal(p)
				if err != nil {
					return fmt.Errorf("encode plan: %w", err)
				}
				if _, err := io.WriteString(a.out, planHead+string(body)); err != nil {
					return fmt.Errorf("write plan: %w", err)
				}
				return nil
			})
		},
	}
	f.add(cmd)
	return cmd
}

func recoverApply(a *app) *cobra.Command {
	var dryRun bool
	var actor, why string
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Settle the items of a plan as it says; refuse what has moved", Args: oneArg("FILE"),
		Long:    "FILE is a plan, or - for standard input. --reason and --actor stand in for those of\nthe plan. The exit code is 7 if an item was refused; the others are settled.",
		Example: "  fencepost recover apply plan.yaml --dry-run\n  fencepost recover apply plan.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := readPlan(cmd, args[0], a.in)
			if err != nil {
				return err
			}
			if why != "" {
				p.Reason = why
			}
			if actor != "" {
				p.Actor = actor
			}
			return a.withSettling(cmd, func(c *client) error { return a.applyPlan(cmd, c, p, dryRun) })
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and do nothing")
	cmd.Flags().StringVar(&why, "reason", "", "why, instead of the plan's")
	cmd.Flags().StringVar(&actor, "actor", "", "who, instead of the plan's")
	return cmd
}

const maxPlan = 1 << 20

func readPlan(cmd *cobra.Command, path string, stdin io.Reader) (api.Plan, error) {
	var p api.Plan
	in, _, err := openInput(cmd.Context(), path, stdin)
	if err != nil {
		return p, err
	}
	defer func() { _ = in.Close() }()
	body, err := io.ReadAll(io.LimitReader(in, maxPlan+1))
	if err != nil {
		return p, &sdk.Error{Tag: sdk.TagInvalid, Field: "FILE", Rule: "a readable file", Err: err}
	}
	if len(body) > maxPlan {
		return p, sdk.Invalid("FILE", "at most 1 MiB")
	}
	return p, config.Document(body, "FILE", &p)
}

func (a *app) applyPlan(cmd *cobra.Command, c *client, p api.Plan, dryRun bool) error {
	in := struct {
		api.Plan
		DryRun bool `json:"dry_run"`
	}{p, dryRun}
	var out api.AppliedAnswer
	if err := c.post(cmd.Context(), "/v1/recover/apply", in, &out); err != nil {
		return err
	}
	l := listing{columns: []string{"ID", "STATE", "OUTCOME", "WHY"}, data: out}
	for _, r := range out.Results {
		why := ""
		if e := r.Error; e != nil {
			why = strings.TrimSpace(e.Code + " " + strings.TrimPrefix(e.Field+": ", ": ") + e.Rule)
		}
		l.rows = append(l.rows, []string{r.ID, string(r.State), r.Outcome, why})
		l.items = append(l.items, r)
	}
	if err := a.print(l); err != nil {
		return err
	}
	if n := out.Summary["refused"]; n > 0 {
		return codeError{exitPartial, fmt.Errorf("%d of %d items were refused", n, len(out.Results))}
	}
	return nil
}

func recoverRestore(a *app) *cobra.Command {
	return restoring(a, "restore", &cobra.Command{
		Use: "restore", Short: "After the store was restored: what may have been sent since becomes uncertain", Args: noArgs,
		Long: "Delivery has stopped because the store is behind what this host remembers of it. This\n" +
			"makes everything uncertain that may have been sent after the backup was made, and lets\n" +
			"delivery go on with what is new. Then settle the uncertain items: fencepost recover plan.\n" +
			"Where nothing says that the store is behind, it is refused (no_restore_pending): on a\n" +
			"healthy store it would make everything uncertain that is open. --unnoticed insists.",
		Example: "  fencepost recover restore --reason 'backup of 03:00' --dry-run\n  fencepost recover restore --reason 'backup of 03:00' --yes",
	})
}

func recoverAdopt(a *app) *cobra.Command {
	return restoring(a, "adopt", &cobra.Command{
		Use: "adopt", Short: "Let a host deliver that remembers nothing of this store", Args: noArgs,
		Long:    "Say this only if you know that the store was not restored from a backup: this host has\nno memory by which to tell (a new disk, another state_dir).",
		Example: "  fencepost recover adopt --reason 'new machine, same database' --yes",
	})
}

// restoring completes one of the two commands, which want --yes.
func restoring(a *app, verb string, cmd *cobra.Command) *cobra.Command {
	var act actFlags
	var yes, unnoticed bool
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !yes && !act.dryRun {
			return codeError{exitConfirm, errors.New("--yes does it, --dry-run says what would be done")}
		}
		return a.withSettling(cmd, func(c *client) error {
			var out api.RestoreAnswer
			fields := map[string]any{"confirm": yes}
			if unnoticed {
				fields["unnoticed"] = true
			}
			if err := c.post(cmd.Context(), "/v1/recover/"+verb, act.body(fields), &out); err != nil {
				return err
			}
			l := listing{columns: []string{"UNCERTAIN"}, rows: [][]string{{out.Items}}, data: out, items: []any{out}}
			if out.DryRun {
				l.columns[0] = "WOULD BE UNCERTAIN"
			}
			if out.DryRun && verb == "restore" {
				var of []string
				for _, c := range out.Of {
					of = append(of, c.Items+" "+strings.TrimSpace(string(c.State)+" "+c.Reason))
				}
				l.columns, l.rows[0] = append(l.columns, "OF"), append(l.rows[0], strings.Join(of, ", "))
			}
			return a.print(l)
		})
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	if verb == "restore" {
		cmd.Flags().BoolVar(&unnoticed, "unnoticed", false, "insist: the store was restored though nobody noticed; everything that is open becomes uncertain")
	}
	act.add(cmd)
	return cmd
}
