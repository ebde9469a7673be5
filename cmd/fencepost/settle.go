package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// actFlags say who does something and why; every command that settles has them.
type actFlags struct {
	actor, reason string
	dryRun        bool
}

func (f *actFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.reason, "reason", "", "why, for people who read the log of actions (required)")
	fl.StringVar(&f.actor, "actor", operator(), "who")
	fl.BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and do nothing")
	required(cmd, "reason")
}

// operator is who runs this command, as the system knows.
func operator() string {
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// body is a request's content with who and why.
func (f *actFlags) body(fields map[string]any) map[string]any {
	if fields == nil {
		fields = map[string]any{}
	}
	fields["reason"], fields["dry_run"] = f.reason, f.dryRun
	if f.actor != "" {
		fields["actor"] = f.actor
	}
	return fields
}

// post sends an object and decodes the answer.
func (c *client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return c.do(ctx, request{method: http.MethodPost, path: path, media: "application/json", body: body}, out)
}

// withSettling runs f with a client for settling items: exporters say what they
// admit and what can be expressed.
func (a *app) withSettling(cmd *cobra.Command, f func(*client) error) error {
	c, err := a.openAPI(cmd.Context(), toSettle)
	return useAPI(c, err, f)
}

// withReplacing runs f with a client for making items anew.
func (a *app) withReplacing(cmd *cobra.Command, f func(*client) error) error {
	c, err := a.openAPI(cmd.Context(), toReplace)
	return useAPI(c, err, f)
}

func itemArgument(_ *cobra.Command, args []string) error {
	if err := oneArg("ID")(nil, args); err != nil {
		return err
	}
	return checkItem(args[0])
}

func checkItem(id string) error {
	if _, err := strconv.ParseInt(id, 10, 64); err != nil {
		return usageError{errors.New("ID: the whole number that outbox list shows")}
	}
	return nil
}

// tokenFlag is the lease token that somebody saw.
func tokenFlag(cmd *cobra.Command) func() map[string]any {
	token := cmd.Flags().Int64("lease-token", 0, "refuse if the item's token is another one: it has moved since you looked")
	return func() map[string]any {
		if !cmd.Flags().Changed("lease-token") {
			return map[string]any{}
		}
		return map[string]any{"lease_token": *token}
	}
}

// evidenceFlags are what is known of an item.
type evidenceFlags struct{ kind, source, detail string }

func (f *evidenceFlags) add(cmd *cobra.Command, prefix string) {
	fl := cmd.Flags()
	fl.StringVar(&f.kind, prefix+"kind", "asserted", "asserted (a person's statement) or provider")
	fl.StringVar(&f.source, prefix+"source", "", "of the provider's: one that the exporter admits, such as sum_present")
}

func (f *evidenceFlags) fields() map[string]any {
	out := map[string]any{"kind": f.kind, "detail": f.detail}
	if f.source != "" {
		out["source"] = f.source
	}
	return out
}

func outboxResolve(a *app) *cobra.Command {
	var act actFlags
	var ev evidenceFlags
	var state, ref string
	attempts := 0
	var expect func() map[string]any
	cmd := &cobra.Command{
		Use:   "resolve ID",
		Short: "Settle an uncertain item: accepted, rejected, or to be sent again",
		Long: "accepted and rejected want evidence. pending sends the item again under the same\n" +
			"identifier: only while the provider still knows it and nothing can be on its way.",
		Example: "  fencepost outbox resolve 17 --state accepted --evidence 'seen in the dashboard' --reason 'timeout on Monday'\n" +
			"  fencepost outbox resolve 17 --state pending --reason 'provider was down' --dry-run",
		Args: itemArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			fields := map[string]any{"state": state, "expect": expect()}
			if ev.detail != "" {
				fields["evidence"] = ev.fields()
			}
			if ref != "" {
				fields["provider_ref"] = ref
			}
			if attempts != 0 {
				fields["attempts"] = attempts
			}
			return a.settleOne(cmd, args[0], "resolve", act.body(fields))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&state, "state", "", "accepted, pending or rejected (required)")
	fl.StringVar(&ev.detail, "evidence", "", "what shows it, for accepted and rejected")
	ev.add(cmd, "evidence-")
	fl.StringVar(&ref, "provider-ref", "", "the provider's name for it, of accepted")
	fl.IntVar(&attempts, "attempts", 0, "how many more it gets, of pending; 0: the usual number")
	expect = tokenFlag(cmd)
	act.add(cmd)
	required(cmd, "state")
	return cmd
}

func outboxEvidence(a *app) *cobra.Command {
	var act actFlags
	var ev evidenceFlags
	var finding string
	cmd := &cobra.Command{
		Use:   "evidence ID",
		Short: "Store what is known of an item beside its state, which stays",
		Example: "  fencepost outbox evidence 17 --finding refused --detail 'missing on the invoice' --reason 'customer asked'\n" +
			"  fencepost outbox evidence 17 --finding taken --detail 'sum of May shows it' --reason 'checked again'",
		Args: itemArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			fields := ev.fields()
			fields["finding"] = finding
			return a.settleOne(cmd, args[0], "evidence", act.body(fields))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&finding, "finding", "", "taken or refused (required)")
	fl.StringVar(&ev.detail, "detail", "", "what shows it (required)")
	ev.add(cmd, "")
	act.add(cmd)
	required(cmd, "finding", "detail")
	return cmd
}

// settleOne posts to one item and prints it as it is then.
func (a *app) settleOne(cmd *cobra.Command, id, verb string, fields map[string]any) error {
	return a.withSettling(cmd, func(c *client) error {
		var v api.SettledView
		if err := c.post(cmd.Context(), "/v1/outbox/"+id+"/"+verb, fields, &v); err != nil {
			return notFound(err, "fencepost outbox list shows the items")
		}
		return a.print(settledListing(v))
	})
}

func settledListing(list ...api.SettledView) listing {
	l := listing{columns: []string{"ID", "STATE", "WOULD BE", "NEW ID", "DISPUTED", "SETTLED", "REASON"}}
	for _, v := range list {
		l.rows = append(l.rows, []string{v.ID, v.State, v.Would, text(v.NewItemID), text(v.Disputed), text(v.SettledAt), reason(v.ItemView)})
		l.items = append(l.items, v)
	}
	if len(list) == 1 {
		l.data = list[0]
	} else {
		l.data = api.Page[api.SettledView]{Data: list}
	}
	return l
}

// manyFlags select items by what is wrong with them, for the commands that make
// sense for many.
type manyFlags struct {
	quarantined, exporter, tenant string
	yes                           bool
}

func (f *manyFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.quarantined, "quarantined", "", "all open items quarantined for this reason, instead of IDs")
	fl.StringVar(&f.exporter, "exporter", "", "of --quarantined: only this exporter")
	fl.StringVar(&f.tenant, "tenant", "", "of --quarantined: only this tenant")
	fl.BoolVar(&f.yes, "yes", false, "of --quarantined: do it, instead of counting")
}

func (f *manyFlags) check(args []string) error {
	switch {
	case f.quarantined == "" && len(args) == 0:
		return usageError{errors.New("an ID, or --quarantined REASON")}
	case f.quarantined != "" && len(args) > 0:
		return usageError{errors.New("IDs or --quarantined, not both")}
	case f.quarantined == "" && (f.exporter != "" || f.tenant != "" || f.yes):
		return usageError{errors.New("--exporter, --tenant and --yes: with --quarantined")}
	}
	for _, id := range args {
		if err := checkItem(id); err != nil {
			return err
		}
	}
	return nil
}

func outboxRequeue(a *app) *cobra.Command {
	var act actFlags
	var many manyFlags
	var version string
	cmd := &cobra.Command{
		Use:   "requeue [ID…]",
		Short: "Send quarantined items after what was wrong with them was mended",
		Example: "  fencepost outbox requeue 17 18 --reason 'customers added'\n" +
			"  fencepost outbox requeue --quarantined no_customer --exporter stripe --reason 'customers added' --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := many.check(args); err != nil {
				return err
			}
			expect := map[string]any{}
			if version != "" {
				expect["mapping_version"] = version
			}
			return a.settleMany(cmd, args, many, verbRequeue, act.body(map[string]any{"expect": expect}))
		},
	}
	cmd.Flags().StringVar(&version, "mapping-version", "", "refuse if the mapping in force is another one")
	many.add(cmd)
	act.add(cmd)
	return cmd
}

func outboxAbandon(a *app) *cobra.Command {
	var act actFlags
	var many manyFlags
	var disposition string
	cmd := &cobra.Command{
		Use:   "abandon [ID…]",
		Short: "Give items up: they stay what they are, and are settled",
		Example: "  fencepost outbox abandon 17 --reason 'credited by hand'\n" +
			"  fencepost outbox abandon 18 --disposition write_off --reason 'meter is gone'   # a usage window",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := many.check(args); err != nil {
				return err
			}
			fields := map[string]any{}
			if disposition != "" {
				fields["disposition"] = disposition
			}
			return a.settleMany(cmd, args, many, "abandon", act.body(fields))
		},
	}
	cmd.Flags().StringVar(&disposition, "disposition", "", "of a usage window: write_off, or restage after a refusal")
	many.add(cmd)
	act.add(cmd)
	return cmd
}

const verbRequeue = "requeue"

// settleMany posts to each item; what is refused is said, and the others go on.
func (a *app) settleMany(cmd *cobra.Command, ids []string, many manyFlags, verb string, fields map[string]any) error {
	with := a.withSettling
	if verb == verbRequeue {
		with = a.withReplacing
	}
	return with(cmd, func(c *client) error {
		if many.quarantined != "" {
			found, err := quarantined(cmd.Context(), c, many)
			if err != nil {
				return err
			}
			if ids = found; !many.yes && fields["dry_run"] != true {
				return codeError{exitConfirm, fmt.Errorf("%d items: --yes does it, --dry-run says what would become of each", len(ids))}
			}
		}
		done, refused := []api.SettledView{}, 0
		for _, id := range ids {
			var v api.SettledView
			err := c.post(cmd.Context(), "/v1/outbox/"+id+"/"+verb, fields, &v)
			switch {
			case err == nil:
				done = append(done, v)
			case len(ids) == 1 || sdk.TagOf(err) == sdk.TagUnavailable || cmd.Context().Err() != nil:
				return notFound(err, "fencepost outbox list shows the items")
			default:
				refused++
				fmt.Fprintf(a.err, "item %s: %s\n", id, visible(err.Error()))
			}
		}
		if err := a.print(settledListing(done...)); err != nil {
			return err
		}
		if refused > 0 {
			return codeError{exitPartial, fmt.Errorf("%d of %d items were refused", refused, len(ids))}
		}
		return nil
	})
}

// quarantined lists the ids of open items with one reason.
func quarantined(ctx context.Context, c *client, many manyFlags) ([]string, error) {
	state, open := "quarantined", "true"
	params := map[string]*string{"state": &state, "open": &open, "reason": &many.quarantined, "exporter": &many.exporter, "tenant": &many.tenant}
	items, _, err := pages[api.ItemView](ctx, c, "/v1/outbox", params, maxListed)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.ID
	}
	return ids, nil
}

func outboxActions(a *app) *cobra.Command {
	params := map[string]*string{}
	limit := 100
	cmd := &cobra.Command{
		Use: "actions", Short: "List what was done by hand, by whom and why", Args: noArgs,
		Example: "  fencepost outbox actions --item 17\n  fencepost outbox actions --kind resolve -o jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return a.withAPI(cmd, func(c *client) error {
				list, more, err := pages[api.ActionView](cmd.Context(), c, "/v1/actions", params, limit)
				if err != nil {
					return err
				}
				l := listing{columns: []string{"ID", "AT", "ITEM", "KIND", "FROM", "TO", "ACTOR", "REASON"}, data: api.Page[api.ActionView]{Data: list, Next: more}}
				for _, x := range list {
					l.rows = append(l.rows, []string{x.ID, x.At, x.Item, string(x.Kind), string(x.From), string(x.To), x.Actor, x.Reason})
					l.items = append(l.items, x)
				}
				return a.printMore(l, more)
			})
		},
	}
	params["item"] = cmd.Flags().String("item", "", "only of this item")
	params["kind"] = cmd.Flags().String("kind", "", "only of this kind: resolve, requeue, supersede, abandon, evidence, confirm, restore, adopt, backfill or route")
	params["after"] = cmd.Flags().String("after", "", "only actions after this id")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this many actions")
	return cmd
}
