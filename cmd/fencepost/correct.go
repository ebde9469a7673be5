package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// correctFlags are the flags of "correct".
type correctFlags struct {
	tenant, id, reason string
	source, feature    string
	replace            string
	remaining, dryRun  bool
}

func correctCommand(a *app) *cobra.Command {
	var f correctFlags
	cmd := &cobra.Command{
		Use:   "correct EVENT_ID [QUANTITY]",
		Short: "Take back usage of one event, a part or all of it",
		Long: "Take back QUANTITY of an event, or with --remaining what is left of it, or with\n" +
			"--replace what is left of it with another event in its place. Nothing that was\n" +
			"recorded changes: the correction is an event of its own, in the billing period\n" +
			"of the one it corrects, and all of them never take back more than it was.\n\n" +
			"The same command again changes nothing: --id says which correction it is.",
		Example: "  fencepost correct req_1 2.5 --tenant acme --id cor_1 --reason 'counted twice'\n" +
			"  fencepost correct req_1 --remaining --tenant acme --id cor_2 --dry-run\n" +
			"  fencepost correct req_1 --replace right.json --tenant acme --id cor_3\n" +
			"  fencepost correct 42 1 --source /gateway --feature tokens --tenant acme --id cor_4   # a CloudEvent",
		Args: correctArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.correct(cmd, args, f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.tenant, "tenant", "", "tenant (required)")
	fl.StringVar(&f.id, "id", "", "id of the correction, the same when the command is repeated (required)")
	fl.StringVar(&f.reason, "reason", "", "why, for people: at most 1024 bytes")
	fl.BoolVar(&f.remaining, "remaining", false, "take back all that is left")
	fl.StringVar(&f.replace, "replace", "", "file with the event to record instead, in the plain form, or - for standard input")
	fl.BoolVar(&f.dryRun, "dry-run", false, "say what would be taken back, and write nothing")
	fl.StringVar(&f.source, "source", "", "source, if the event is a CloudEvent (with --feature)")
	fl.StringVar(&f.feature, "feature", "", "feature that the CloudEvent fed")
	required(cmd, "tenant", "id")
	cmd.AddCommand(correctList(a))
	return cmd
}

func correctArgs(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usageError{errors.New("EVENT_ID is missing")}
	case len(args) > 2:
		return usageError{fmt.Errorf("EVENT_ID and at most a QUANTITY, not %d arguments", len(args))}
	case args[0] == "":
		return usageError{errors.New("EVENT_ID: required, not empty")}
	}
	return nil
}

// body is the request, or what is wrong with the command line.
func (f correctFlags) body(a *app, cmd *cobra.Command, args []string) ([]byte, error) {
	ways := 0
	for _, given := range []bool{len(args) == 2, f.remaining, f.replace != ""} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, usageError{errors.New("one of QUANTITY, --remaining and --replace must be given")}
	}
	if (f.source == "") != (f.feature == "") {
		return nil, usageError{errors.New("--source and --feature: both, for a CloudEvent")}
	}
	in := map[string]any{"id": f.id, "tenant": f.tenant, "event_id": args[0], "reason": f.reason}
	if f.source != "" {
		in["event_id"] = canon.EventID(f.source, args[0], f.feature)
	}
	if f.reason == "" {
		delete(in, "reason")
	}
	if f.dryRun {
		in["dry_run"] = true
	}
	switch {
	case f.remaining:
		in["remaining"] = true
	case f.replace != "":
		event, err := readEvent(cmd, f.replace, a.in)
		if err != nil {
			return nil, err
		}
		in["replace"] = event
	default:
		in["quantity"] = args[1]
	}
	b, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode correction: %w", err)
	}
	return b, nil
}

// readEvent reads one event of the plain form. Its rules are the server's to
// check; here it need only be JSON.
func readEvent(cmd *cobra.Command, path string, stdin io.Reader) (json.RawMessage, error) {
	in, _, err := openInput(cmd.Context(), path, stdin)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	b, err := io.ReadAll(io.LimitReader(in, meter.MaxBatchBytes+1))
	if err != nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "--replace", Rule: "a readable file", Err: err}
	}
	if len(b) > meter.MaxBatchBytes || canon.Check(b) != nil {
		return nil, sdk.Invalid("--replace", "one event in JSON, at most 1 MiB")
	}
	return b, nil
}

func (a *app) correct(cmd *cobra.Command, args []string, f correctFlags) error {
	body, err := f.body(a, cmd, args)
	if err != nil {
		return err
	}
	use := toRead
	if f.replace != "" {
		use = toReplace
	}
	c, err := a.openAPI(cmd.Context(), use)
	return useAPI(c, err, func(c *client) error {
		var out api.CorrectionAnswer
		r := request{method: http.MethodPost, path: "/v1/corrections", media: "application/json", body: body}
		if err := c.do(cmd.Context(), r, &out); err != nil {
			return notFound(err, "fencepost events list shows the events; what came as a CloudEvent needs --source and --feature")
		}
		if len(out.Results) != 1 {
			return sdk.Unavailable("bad_answer", errors.New("the server answered for another number of corrections"))
		}
		res := out.Results[0]
		if e := res.Error; e != nil {
			return &sdk.Error{Tag: e.Tag, Code: e.Code, Field: e.Field, Rule: e.Rule}
		}
		outcome := "OUTCOME"
		if res.DryRun {
			outcome = "WOULD BE"
		}
		l := listing{columns: []string{"ID", outcome, "QUANTITY", "REMAINING", "SEQ"}, data: res, items: []any{res}}
		l.rows = [][]string{{res.ID, string(res.Outcome), res.Quantity, res.Remaining, res.Seq}}
		if r := res.Replacement; r != nil {
			l.columns = append(l.columns, "REPLACEMENT", "ITS OUTCOME", "ITS SEQ")
			// It is recorded with the correction or not at all.
			l.rows[0] = append(l.rows[0], r.ID, string(res.Outcome), r.Seq)
		}
		return a.print(l)
	})
}

// correctList lists what was taken back of one event.
func correctList(a *app) *cobra.Command {
	params := map[string]*string{}
	limit := 100
	cmd := &cobra.Command{
		Use: "list EVENT_ID", Short: "List the corrections of one event", Args: oneArg("EVENT_ID"),
		Example: "  fencepost correct list req_1 --tenant acme",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			params["event"] = &args[0]
			return a.withAPI(cmd, func(c *client) error {
				events, more, err := pages[api.EventView](cmd.Context(), c, "/v1/corrections", params, limit)
				if err != nil {
					return notFound(err, "fencepost events list shows the events; the id of a CloudEvent is that of the list")
				}
				l := listing{columns: []string{"SEQ", "RECORDED", "QUANTITY", "EFFECT", "ID"}, data: api.Page[api.EventView]{Data: events, Next: more}}
				for _, e := range events {
					l.rows = append(l.rows, []string{e.Seq, e.RecordedAt, e.Quantity, e.Effect, e.ID})
					l.items = append(l.items, e)
				}
				return a.printMore(l, more)
			})
		},
	}
	params["tenant"] = cmd.Flags().String("tenant", "", "tenant (required)")
	params["after"] = cmd.Flags().String("after", "", "only corrections after this seq")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this many corrections")
	required(cmd, "tenant")
	return cmd
}
