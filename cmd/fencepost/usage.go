package main

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/api"
)

func usageCommand(a *app) *cobra.Command {
	params := map[string]*string{}
	var groupBy, filters []string
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "What a tenant used, by billing period or by windows of time",
		Example: "  fencepost usage --tenant acme\n" +
			"  fencepost usage --tenant acme --feature tokens --window day --timezone Europe/Paris --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z\n" +
			"  fencepost usage --tenant acme --feature tokens --group-by model --filter region=eu -o json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			for name, v := range params {
				if *v != "" {
					q.Set(name, *v)
				}
			}
			for _, name := range groupBy {
				q.Add("group_by", name)
			}
			for _, f := range filters {
				name, value, ok := strings.Cut(f, "=")
				if !ok || name == "" {
					return usageError{errors.New("--filter: NAME=VALUE")}
				}
				q.Add("filter["+name+"]", value)
			}
			return a.withAPI(cmd, func(c *client) error {
				var u api.UsageAnswer
				if err := c.do(cmd.Context(), request{method: "GET", path: "/v1/usage?" + q.Encode()}, &u); err != nil {
					return err
				}
				return a.print(usageListing(u, groupNames(groupBy)))
			})
		},
	}
	for name, usage := range map[string]string{
		"tenant": "tenant (required)", "feature": "only this feature; required unless the window is period",
		"from": "RFC 3339 time; of periods, only those that start at or after it", "to": "RFC 3339 time; of periods, only those that start before it",
		"window": "minute, hour, day, month or period (default period)", "timezone": "IANA zone whose clocks windows follow (default UTC; periods have the tenant's)",
		"aggregation": "sum, count, min, max, avg, latest or unique (default: that of the feature)",
	} {
		params[name] = cmd.Flags().String(name, "", usage)
	}
	cmd.Flags().StringArrayVar(&groupBy, "group-by", nil, "dimensions to group by; repeat it or separate them by commas")
	cmd.Flags().StringArrayVar(&filters, "filter", nil, "NAME=VALUE: only events with this dimension; repeat it for more")
	required(cmd, "tenant")
	return cmd
}

// groupNames are the dimensions of a list of flags, each perhaps several.
func groupNames(flags []string) []string {
	var names []string
	for _, f := range flags {
		names = append(names, strings.Split(f, ",")...)
	}
	return names
}

func usageListing(u api.UsageAnswer, groups []string) listing {
	l := listing{columns: []string{"FEATURE", "FROM", "TO", "VALUE", "COUNT"}, data: u}
	unflushed := slices.ContainsFunc(u.Data, func(r api.UsageRow) bool { return r.Unflushed != "" })
	if unflushed {
		l.columns = append(l.columns, "UNFLUSHED")
	}
	l.columns = append(l.columns, groups...)
	for _, r := range u.Data {
		value := string(r.Value)
		if r.Refused != "" { // not the same as no value
			value = r.Refused
		}
		row := []string{r.Feature, r.From, r.To, value, string(r.Count)}
		if unflushed {
			row = append(row, r.Unflushed)
		}
		for _, name := range groups {
			row = append(row, groupCell(r.Group[name]))
		}
		l.rows = append(l.rows, row)
		l.items = append(l.items, r)
	}
	return l
}
