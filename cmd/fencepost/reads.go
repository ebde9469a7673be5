package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// withAPI runs f with a client for reading and closes it.
func (a *app) withAPI(cmd *cobra.Command, f func(*client) error) error {
	c, err := a.openAPI(cmd.Context(), toRead)
	return useAPI(c, err, f)
}

// withWriting runs f with a client that may create the store, and closes it.
func (a *app) withWriting(cmd *cobra.Command, f func(*client) error) error {
	c, err := a.openAPI(cmd.Context(), toWrite)
	return useAPI(c, err, f)
}

// withRecording runs f with a client for recording and closes it.
func (a *app) withRecording(cmd *cobra.Command, f func(*client) error) error {
	c, err := a.openAPI(cmd.Context(), toRecord)
	return useAPI(c, err, f)
}

func useAPI(c *client, err error, f func(*client) error) error {
	if err != nil {
		return err
	}
	err = f(c)
	if cerr := c.close(); err == nil {
		err = cerr
	}
	return err
}

func outboxCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "outbox", Short: "What is reported to providers, and where it stands"}
	cmd.AddCommand(outboxList(a), outboxGet(a), outboxStats(a), outboxActions(a), outboxResolve(a), outboxRequeue(a),
		outboxAbandon(a), outboxEvidence(a), outboxBackfill(a), outboxRoute(a))
	return cmd
}

// maxListed bounds a listing; what is beyond is said, never silently cut.
const maxListed = 100_000

func outboxList(a *app) *cobra.Command {
	params := map[string]*string{}
	limit := 100
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List items in the order in which they were made",
		Example: "  fencepost outbox list --state quarantined --reason timestamp_window\n  fencepost outbox list --state uncertain -o jsonl --limit 10000",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return a.withAPI(cmd, func(c *client) error {
				items, more, err := pages[api.ItemView](cmd.Context(), c, "/v1/outbox", params, limit)
				if err != nil {
					return err
				}
				l := listing{columns: []string{"ID", "STATE", "TENANT", "FEATURE", "EXPORTER", "ATTEMPTS", "NEXT", "REASON"}, data: api.Page[api.ItemView]{Data: items, Next: more}}
				for _, it := range items {
					l.rows = append(l.rows, []string{
						it.ID, it.State, it.Tenant, it.Feature, it.Exporter,
						strconv.Itoa(it.Attempts), text(it.NextAttemptAt), reason(it),
					})
					l.items = append(l.items, it)
				}
				return a.printMore(l, more)
			})
		},
	}
	for name, usage := range map[string]string{
		"state": "only this state", "tenant": "only this tenant", "exporter": "only this exporter", "feature": "only this feature",
		"reason": "only this reason of quarantine", "subject_ref": "only items of this event", "after": "only items after this id",
		"account": "only this account", "mode": "test or live: only this mode",
		"unconfirmed": "only accepted items that are not confirmed after this time, such as 24h",
	} {
		params[name] = cmd.Flags().String(flagName(name), "", usage)
	}
	open := cmd.Flags().Bool("open", false, "only items that nobody has settled")
	disputed := cmd.Flags().Bool("disputed", false, "only items with evidence against them")
	cmd.PreRun = func(*cobra.Command, []string) {
		for name, set := range map[string]bool{"open": *open, "disputed": *disputed} {
			if value := strconv.FormatBool(set); set {
				params[name] = &value
			}
		}
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this many items")
	return cmd
}

// printMore prints a listing and says on stderr if something was left out.
func (a *app) printMore(l listing, more string) error {
	if err := a.print(l); err != nil {
		return err
	}
	if more != "" {
		fmt.Fprintf(a.err, "there is more: go on with --after %s\n", visible(more))
	}
	return nil
}

func outboxGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show one item with its payload and every attempt", Args: oneArg("ID"),
		Example: "  fencepost outbox get 17\n  fencepost outbox get 17 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := strconv.ParseInt(args[0], 10, 64); err != nil {
				return usageError{errors.New("ID: the whole number that outbox list shows")}
			}
			return a.withAPI(cmd, func(c *client) error {
				var it api.ItemView
				if err := c.get(cmd.Context(), "/v1/outbox/"+args[0], nil, &it); err != nil {
					return notFound(err, "fencepost outbox list shows the items")
				}
				l := listing{columns: []string{"FIELD", "VALUE"}, data: it, items: []any{it}}
				l.rows = [][]string{
					{"id", it.ID},
					{"state", it.State},
					{"tenant", it.Tenant},
					{"subject", it.SubjectKind + " " + it.SubjectRef},
					{"destination", it.Exporter + " " + it.Account + " " + it.Mode},
					{"identifier", it.Identifier},
					{"mapping version", it.MappingVersion},
					{"attempts", fmt.Sprintf("%d of %d", it.Attempts, it.AttemptBudget)},
					{"unresolved", strconv.FormatBool(it.Unresolved)},
					{"next attempt", text(it.NextAttemptAt)},
					{"provider ref", text(it.ProviderRef)},
					{"reason", reason(it)},
					{"last error", lastError(it)},
					{"disputed", text(it.Disputed)},
					{"settled", text(it.SettledAt)},
					{"lease token", strconv.FormatInt(it.LeaseToken, 10)},
					{"depends on", text(it.DependsOn)},
					{"waits for", waitsFor(it)},
					{"method", it.Method},
					{"superseded by", text(it.SupersededBy)},
					{"payload", string(it.Payload)},
				}
				for i, at := range it.AttemptsLog {
					l.rows = append(l.rows, []string{"attempt " + strconv.Itoa(i+1), attemptLine(at)})
				}
				for _, x := range it.Actions {
					l.rows = append(l.rows, []string{string(x.Kind), fmt.Sprintf("%s %s: %s", x.At, x.Actor, x.Reason)})
				}
				return a.print(l)
			})
		},
	}
}

// lastError is what the provider or the host said last, in words.
func lastError(it api.ItemView) string {
	if it.LastError == nil {
		return ""
	}
	return strings.TrimSpace(it.LastError.Code + " " + it.LastError.Message)
}

func attemptLine(at storage.Attempt) string {
	s := fmt.Sprintf("%s token %d: host saw %s, plugin said %s",
		at.StartedAt.UTC().Format("2006-01-02T15:04:05.000000Z"), at.LeaseToken, at.HostClass, at.Outcome)
	if at.Status != 0 {
		s += ", status " + strconv.Itoa(at.Status)
	}
	if at.Code != "" {
		s += ", " + at.Code
	}
	if at.Message != "" {
		s += ", " + at.Message
	}
	s += " → " + string(at.Decided)
	if at.Fenced {
		s += " (came too late: fenced)"
	}
	return s
}

func outboxStats(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "stats", Short: "Count items by exporter and state", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withAPI(cmd, func(c *client) error {
				var st api.StatsAnswer
				if err := c.get(cmd.Context(), "/v1/outbox/stats", nil, &st); err != nil {
					return err
				}
				l := listing{columns: []string{"EXPORTER", "STATE", "ITEMS", "OPEN"}, data: st, items: []any{st}}
				for _, e := range sortedKeys(st.Exporters) {
					for _, state := range storage.ItemStates {
						n := st.Exporters[e][string(state)]
						l.rows = append(l.rows, []string{e, string(state), strconv.FormatInt(n.Items, 10), strconv.FormatInt(n.Open, 10)})
					}
				}
				return a.print(l)
			})
		},
	}
}

func eventsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "events", Short: "What was recorded"}
	cmd.AddCommand(eventsList(a), eventsGet(a))
	return cmd
}

func eventsList(a *app) *cobra.Command {
	params := map[string]*string{}
	limit := 100
	cmd := &cobra.Command{
		Use: "list", Short: "List events in the order in which they were recorded", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return a.withAPI(cmd, func(c *client) error {
				events, more, err := pages[api.EventView](cmd.Context(), c, "/v1/events", params, limit)
				if err != nil {
					return err
				}
				l := listing{columns: []string{"SEQ", "TIME", "TENANT", "FEATURE", "QUANTITY", "ID"}, data: api.Page[api.EventView]{Data: events, Next: more}}
				for _, e := range events {
					l.rows = append(l.rows, []string{e.Seq, e.Time, e.Tenant, e.Feature, e.Quantity, e.ID})
					l.items = append(l.items, e)
				}
				return a.printMore(l, more)
			})
		},
	}
	params["tenant"] = cmd.Flags().String("tenant", "", "only this tenant")
	params["feature"] = cmd.Flags().String("feature", "", "only this feature")
	params["after"] = cmd.Flags().String("after", "", "only events after this seq")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this many events")
	return cmd
}

func eventsGet(a *app) *cobra.Command {
	var tenant, source string
	cmd := &cobra.Command{
		Use: "get ID", Short: "Show one event", Args: oneArg("ID"),
		Example: "  fencepost events get req_1 --tenant acme\n  fencepost events get 42 --tenant acme --source /gateway   # a CloudEvent\n  fencepost events get --tenant acme -- -7   # an id that begins with a dash",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAPI(cmd, func(c *client) error {
				var e map[string]any
				path := "/v1/events/" + pathEscape(args[0])
				if err := c.get(cmd.Context(), path, map[string]string{"tenant": tenant, "source": source}, &e); err != nil {
					hint := "what came as a CloudEvent is found by --source and its id"
					if source != "" {
						hint = "what came in the plain form is found by its id without --source"
					}
					return notFound(err, hint)
				}
				l := listing{columns: []string{"FIELD", "VALUE"}, data: e, items: []any{e}}
				for _, k := range sortedKeys(e) {
					l.rows = append(l.rows, []string{k, compact(e[k])})
				}
				return a.print(l)
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "tenant (required)")
	cmd.Flags().StringVar(&source, "source", "", "source, if the event is a CloudEvent")
	required(cmd, "tenant")
	return cmd
}
