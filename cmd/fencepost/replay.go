package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk"
)

func replayCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay", Short: "Rebuild totals and buckets from the recorded events",
		Long: "A replay adds up every recorded event anew, beside the totals in use and while recording\n" +
			"goes on, compares the two, and puts the rebuilt ones in use. It can be ended at any time,\n" +
			"by a kill too, and resumed. It reports nothing to anybody.",
	}
	cmd.AddCommand(
		replayRun(a, "start", "/v1/replays", "Rebuild, compare and activate"),
		replayRun(a, "resume", "/v1/replays/resume", "Go on with a replay that was paused or interrupted"),
		replayRun(a, "activate", "/v1/replays/activate", "Put the totals of a replay in use that was started with --activate=false"),
		replayStatus(a), replayPause(a), replayPrune(a),
	)
	return cmd
}

// replayFlags are the options of a replay as they are sent.
type replayFlags struct {
	BatchSize  *int   `json:"batch_size,omitempty"`
	Compare    string `json:"compare,omitempty"`
	Activate   bool   `json:"activate"`
	Resume     bool   `json:"resume,omitempty"`
	MaxBatches int    `json:"max_batches,omitempty"`
	Timeout    string `json:"timeout,omitempty"`
}

func replayRun(a *app, name, path, short string) *cobra.Command {
	in := replayFlags{Activate: true}
	var size int
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: name, Short: short, Args: noArgs,
		Example: "  fencepost replay " + name + "\n  fencepost replay " + name + " --compare report -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("batch-size") {
				in.BatchSize = &size
			}
			if cmd.Flags().Changed("timeout") {
				in.Timeout = timeout.String()
			}
			body, err := json.Marshal(in)
			if err != nil {
				return fmt.Errorf("encode: %w", err)
			}
			return a.withAPI(cmd, func(c *client) error {
				var st api.ReplayStatus
				if err := c.do(cmd.Context(), request{method: "POST", path: path, media: "application/json", body: body}, &st); err != nil {
					return err
				}
				return a.follow(cmd.Context(), c)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&size, "batch-size", 0, "events in one transaction, 1 to 5000 (default 5000)")
	f.StringVar(&in.Compare, "compare", "", "require_match refuses totals that differ, report activates them (default require_match)")
	f.DurationVar(&timeout, "timeout", 0, "bound of each step (default 1m)")
	if name != "activate" {
		f.BoolVar(&in.Activate, "activate", true, "put the rebuilt totals in use")
		f.IntVar(&in.MaxBatches, "max-batches", 0, "end after so many transactions; replay resume goes on (default no bound)")
	}
	if name == "start" {
		f.BoolVar(&in.Resume, "resume", false, "go on with a replay that exists")
	}
	return cmd
}

// replayPoll is how often a running replay is looked at.
const replayPoll = 200 * time.Millisecond

// follow shows how a replay gets on until it ends. Where the replay runs in a
// server, an interrupt leaves it running.
func (a *app) follow(ctx context.Context, c *client) error {
	tick := time.NewTicker(replayPoll)
	defer tick.Stop()
	line := &statusLine{w: a.err, live: terminal(a.err)}
	for {
		var st api.ReplayStatus
		if err := c.get(ctx, "/v1/replays", nil, &st); err != nil {
			line.end()
			return err
		}
		if st.Run == nil || st.Run.State != "running" {
			line.end()
			return a.replayEnded(st)
		}
		line.show(replayLine(st))
		select {
		case <-ctx.Done():
			line.end()
			if !strings.HasPrefix(c.base, "http://local") {
				fmt.Fprintln(a.err, "the server goes on with the replay: fencepost replay status, fencepost replay pause")
			} else {
				fmt.Fprintln(a.err, "the replay is interrupted; fencepost replay resume goes on with it")
			}
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func terminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// statusLine rewrites one line of a terminal, and is silent anywhere else.
type statusLine struct {
	w     io.Writer
	live  bool
	shown int
}

func (l *statusLine) show(text string) {
	if l.live {
		fmt.Fprintf(l.w, "\r%-*s", l.shown, text)
		l.shown = max(l.shown, len(text))
	}
}

func (l *statusLine) end() {
	if l.live && l.shown > 0 {
		fmt.Fprintln(l.w)
	}
}

func replayLine(st api.ReplayStatus) string {
	run := st.Run
	text := fmt.Sprintf("%s: generation %s, %s events", run.Phase, run.Generation, run.Scanned)
	at, err1 := strconv.ParseInt(st.Cursor, 10, 64)
	to, err2 := strconv.ParseInt(st.Watermark, 10, 64)
	if err1 == nil && err2 == nil && to > 0 {
		text += fmt.Sprintf(", %d%%", at*100/to)
	}
	return text
}

// errPaused ends a command whose replay somebody has paused.
var errPaused = &sdk.Error{
	Tag: sdk.TagConflict, Code: "paused", Rule: "the replay was paused before its end; what it has built stays",
	Hint: "fencepost replay resume lets it go on",
}

// replayEnded prints the end of a replay. One that failed or was paused has not
// done what this command is for, which its code says after what there is to
// see was printed.
func (a *app) replayEnded(st api.ReplayStatus) error {
	if err := a.print(replayListing(st)); err != nil {
		return err
	}
	run := st.Run
	if run != nil && run.State == "paused" {
		return errPaused
	}
	if run == nil || run.Error == nil {
		if run != nil && run.State == "stopped" {
			fmt.Fprintln(a.err, "not finished: fencepost replay resume goes on, or replay activate if all is scanned")
		}
		return nil
	}
	e := run.Error
	return &sdk.Error{Tag: e.Tag, Code: e.Code, Field: e.Field, Rule: e.Rule, Hint: e.Hint}
}

func replayListing(st api.ReplayStatus) listing {
	l := listing{columns: []string{"FIELD", "VALUE"}, data: st, items: []any{st}}
	add := func(name, value string) {
		if value != "" {
			l.rows = append(l.rows, []string{name, value})
		}
	}
	add("active generation", st.Active)
	add("building", st.Building)
	if st.Building != "" {
		add("scanned to", st.Cursor+" of "+st.Watermark)
		add("paused", strconv.FormatBool(st.Paused))
		add("begun at", st.BegunAt)
	}
	add("previous", st.Previous)
	add("activated at", st.ActivatedAt)
	add("buckets to rebuild", strings.Join(st.StaleBuckets, ", "))
	if run := st.Run; run != nil {
		add("replay", run.State+", "+string(run.Phase))
		add("events scanned", run.Scanned)
		add("differing totals", run.Differing)
		for _, d := range run.Differences {
			add("differs", fmt.Sprintf("%s %s %s: in use %s (%s events), rebuilt %s (%s events)",
				d.Tenant, d.Feature, d.PeriodStart, d.Active.Quantity, d.Active.Events, d.Built.Quantity, d.Built.Events))
		}
		if run.Error != nil {
			add("error", strings.TrimSpace(string(run.Error.Tag)+" "+run.Error.Code))
		}
	}
	return l
}

func replayStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the generations, and how a replay is doing", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withAPI(cmd, func(c *client) error {
				var st api.ReplayStatus
				if err := c.get(cmd.Context(), "/v1/replays", nil, &st); err != nil {
					return err
				}
				return a.print(replayListing(st))
			})
		},
	}
}

func replayPause(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "pause", Short: "Stop a replay at its next step; recording goes on", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.replayPost(cmd, "/v1/replays/pause", nil)
		},
	}
}

func replayPrune(a *app) *cobra.Command {
	var abandon, yes bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove the totals that were in use before, or abandon a replay", Args: noArgs,
		Example: "  fencepost replay prune\n  fencepost replay prune --abandon --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if abandon && !yes {
				return usageError{errors.New("--abandon: what was scanned is lost; add --yes")}
			}
			body, err := json.Marshal(map[string]bool{"abandon": abandon})
			if err != nil {
				return fmt.Errorf("encode: %w", err)
			}
			return a.replayPost(cmd, "/v1/replays/prune", body)
		},
	}
	cmd.Flags().BoolVar(&abandon, "abandon", false, "end the replay that exists and remove what it built")
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm --abandon")
	return cmd
}

func (a *app) replayPost(cmd *cobra.Command, path string, body []byte) error {
	return a.withAPI(cmd, func(c *client) error {
		var st api.ReplayStatus
		if err := c.do(cmd.Context(), request{method: "POST", path: path, media: "application/json", body: body}, &st); err != nil {
			return err
		}
		return a.print(replayListing(st))
	})
}
