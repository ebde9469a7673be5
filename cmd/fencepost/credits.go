package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/api"
)

func creditsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "credits", Short: "What tenants may use of a meter, and what is left of it"}
	cmd.AddCommand(
		creditsAdd(a, "grant", "Add to a tenant's credit", "A negative AMOUNT takes back: put -- before the three arguments."),
		creditsAdd(a, "reset", "Replace a tenant's credit", "What was granted before counts no more; what was used does."),
		creditsList(a), creditsBalance(a),
	)
	return cmd
}

func creditsAdd(a *app, kind, short, long string) *cobra.Command {
	var id, reason string
	var untilRenewal bool
	cmd := &cobra.Command{
		Use: kind + " TENANT METER AMOUNT", Short: short, Args: cobra.ExactArgs(3),
		Long:    short + ". " + long + "\nThe same --id again changes nothing, so the command may be repeated.",
		Example: "  fencepost credits " + kind + " acme tokens 1000 --id invoice_17 --reason 'paid in advance'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if id == "" {
				return usageError{errors.New("--id: a name of your own for this credit, so that the command may be repeated")}
			}
			raw, err := json.Marshal(map[string]any{
				"tenant": args[0], "meter": args[1], "amount": args[2], "id": id, "kind": kind, "reason": reason, "until_renewal": untilRenewal,
			})
			if err != nil {
				return fmt.Errorf("encode credit: %w", err)
			}
			return a.withWriting(cmd, func(c *client) error {
				var out api.CreditBody
				r := request{method: http.MethodPost, path: "/v1/credits", media: "application/json", body: raw}
				if err := c.do(cmd.Context(), r, &out); err != nil {
					return err
				}
				return a.print(creditListing([]api.CreditBody{out}, out))
			})
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "a name of your own for this credit: an invoice, a ticket (required)")
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	if kind == "grant" {
		cmd.Flags().BoolVar(&untilRenewal, "until-renewal", false, "of a meter that renews: this is gone when the next period begins")
	}
	return cmd
}

func creditsList(a *app) *cobra.Command {
	params := map[string]*string{}
	limit := 100
	cmd := &cobra.Command{
		Use: "list TENANT", Short: "List a tenant's credits, oldest first", Args: oneArg("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			params["tenant"] = &args[0]
			return a.withAPI(cmd, func(c *client) error {
				list, more, err := pages[api.CreditBody](cmd.Context(), c, "/v1/credits", params, limit)
				if err != nil {
					return err
				}
				return a.printMore(creditListing(list, api.Page[api.CreditBody]{Data: list, Next: more}), more)
			})
		},
	}
	params["meter"] = cmd.Flags().String("meter", "", "only of this meter")
	params["after"] = cmd.Flags().String("after", "", "only credits after this seq")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this many credits")
	return cmd
}

func creditListing(list []api.CreditBody, data any) listing {
	l := listing{columns: []string{"SEQ", "METER", "ID", "KIND", "AMOUNT", "CREATED", "REASON"}, data: data}
	for _, c := range list {
		l.rows = append(l.rows, []string{c.Seq, c.Meter, c.ID, string(c.Kind), c.Amount.String(), c.CreatedAt, c.Reason})
		l.items = append(l.items, c)
	}
	return l
}

func creditsBalance(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "balance TENANT [METER]", Short: "What is left of a tenant's meters", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			params := map[string]string{"tenant": args[0]}
			if len(args) == 2 {
				params["meter"] = args[1]
			}
			return a.withAPI(cmd, func(c *client) error {
				var page api.Page[api.BalanceBody]
				if err := c.get(cmd.Context(), "/v1/balances", params, &page); err != nil {
					return err
				}
				l := listing{columns: []string{"METER", "CREDITED", "CONSUMED", "BALANCE", "SINCE"}, data: page}
				for _, b := range page.Data {
					l.rows = append(l.rows, []string{b.Meter, b.Credited.String(), b.Consumed.String(), b.Balance.String(), b.Since})
					l.items = append(l.items, b)
				}
				return a.print(l)
			})
		},
	}
}
