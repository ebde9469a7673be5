package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/api"
)

var errLimit = errors.New("--limit: 1 to 100000")

func subscriptionsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "subscriptions", Short: "Tenants: their billing calendar and who they are at each exporter"}
	cmd.AddCommand(subscriptionsPut(a), subscriptionsGet(a), subscriptionsList(a))
	return cmd
}

func subscriptionsPut(a *app) *cobra.Command {
	var body api.SubscriptionBody
	var customers []string
	var interval string
	cmd := &cobra.Command{
		Use: "put TENANT", Short: "Create or replace a tenant's subscription", Args: oneArg("TENANT"),
		Long: "Creates a tenant's subscription, or replaces all of it: plan, anchor, interval, time zone and\n" +
			"customers that are not given here are what their defaults say, whatever they were before.",
		Example: "  fencepost subscriptions put acme --customer stripe=cus_1 --anchor 2026-01-31T00:00:00-05:00 --timezone America/New_York",
		RunE: func(cmd *cobra.Command, args []string) error {
			body.Customers = map[string]string{}
			for _, c := range customers {
				name, id, ok := strings.Cut(c, "=")
				if !ok {
					return usageError{errors.New("--customer: EXPORTER=CUSTOMER")}
				}
				if _, twice := body.Customers[name]; twice {
					return usageError{errors.New("--customer: each exporter once")}
				}
				body.Customers[name] = id
			}
			input := map[string]any{
				"tenant": args[0], "plan": body.Plan, "plan_version": body.PlanVersion, "anchor": body.Anchor,
				"interval": interval, "timezone": body.Timezone, "customers": body.Customers,
			}
			raw, err := json.Marshal(input)
			if err != nil {
				return fmt.Errorf("encode subscription: %w", err)
			}
			return a.withWriting(cmd, func(c *client) error {
				var out api.SubscriptionBody
				r := request{method: http.MethodPut, path: "/v1/subscriptions/" + pathEscape(args[0]), media: "application/json", body: raw}
				if err := c.do(cmd.Context(), r, &out); err != nil {
					return err
				}
				a.noteUnknownExporters(body.Customers)
				return a.print(subscriptionListing([]api.SubscriptionBody{out}, out))
			})
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&customers, "customer", nil, "EXPORTER=CUSTOMER, the tenant's id at an exporter; may be repeated")
	f.StringVar(&body.Plan, "plan", "", "plan")
	f.StringVar(&body.PlanVersion, "plan-version", "", "version of the plan")
	f.StringVar(&body.Anchor, "anchor", "", "RFC 3339 time at which a billing period begins; day and hour count in --timezone (default the first of the month)")
	f.StringVar(&interval, "interval", "month", "day, week, month or year")
	f.StringVar(&body.Timezone, "timezone", "UTC", "IANA time zone of the billing calendar")
	return cmd
}

// noteUnknownExporters says which customers are of no exporter that the
// configuration has. An exporter may be added later, so this is no error; of a
// server that was named the configuration is not known here.
func (a *app) noteUnknownExporters(customers map[string]string) {
	if a.server != "" {
		return
	}
	cfg, err := a.loadConfig()
	if err != nil || len(cfg.Exporters) == 0 {
		return
	}
	var known []string
	for _, e := range cfg.Exporters {
		known = append(known, e.Name)
	}
	for _, name := range sortedKeys(customers) {
		if !slices.Contains(known, name) {
			fmt.Fprintf(a.err, "note: no exporter is named %s; the configuration has %s\n", visible(name), visible(strings.Join(known, ", ")))
		}
	}
}

func subscriptionsGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get TENANT", Short: "Show a tenant's subscription", Args: oneArg("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAPI(cmd, func(c *client) error {
				var out api.SubscriptionBody
				if err := c.get(cmd.Context(), "/v1/subscriptions/"+pathEscape(args[0]), nil, &out); err != nil {
					return notFound(err, "fencepost subscriptions list shows them; without one a tenant has calendar months in UTC")
				}
				return a.print(subscriptionListing([]api.SubscriptionBody{out}, out))
			})
		},
	}
}

func subscriptionsList(a *app) *cobra.Command {
	params := map[string]*string{}
	limit := 100
	cmd := &cobra.Command{
		Use: "list", Short: "List subscriptions by tenant", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return a.withAPI(cmd, func(c *client) error {
				subs, more, err := pages[api.SubscriptionBody](cmd.Context(), c, "/v1/subscriptions", params, limit)
				if err != nil {
					return err
				}
				return a.printMore(subscriptionListing(subs, api.Page[api.SubscriptionBody]{Data: subs, Next: more}), more)
			})
		},
	}
	params["after"] = cmd.Flags().String("after", "", "only tenants after this one")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this many subscriptions")
	return cmd
}

func subscriptionListing(subs []api.SubscriptionBody, data any) listing {
	l := listing{columns: []string{"TENANT", "PLAN", "ANCHOR", "INTERVAL", "TIMEZONE", "CUSTOMERS"}, data: data}
	for _, s := range subs {
		l.rows = append(l.rows, []string{s.Tenant, s.Plan, s.Anchor, string(s.Interval), s.Timezone, compact(s.Customers)})
		l.items = append(l.items, s)
	}
	return l
}
