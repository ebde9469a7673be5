package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/plugins"
	"github.com/fencepost/fencepost/plugins/sdk"
)

func pluginLock(a *app) *cobra.Command {
	var t plugins.Terms
	var isolation string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "lock FILE", Short: "Write the entry of a plugin into plugins.lock, and leave its file where it is", Args: oneArg("FILE"),
		Long: "Looks at the file as inspect does and locks its digest with what is granted, for a file that a\n" +
			"deployment puts into the folder of plugins: as it is called if it lies there already, else as\n" +
			"install would call it, NAME-VERSION. A version that wants more than the one before needs --yes.",
		Example: "  fencepost plugin lock ./meterline.wasm --dry-run\n  fencepost plugin lock ./plugins/meterline-1.0.0.wasm --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := givenKey(cmd, t.PublicKey); err != nil {
				return err
			}
			t.Isolation = grant.Isolation(isolation)
			return a.lockPlugin(cmd.Context(), args[0], t, dryRun)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&isolation, "isolation", "", "worker (default) or inproc for a module; process for a program")
	fl.StringVar(&t.PublicKey, "public-key", "", "minisign key that must have signed the file (FILE.minisig), now and at every load")
	fl.BoolVar(&t.Accept, "yes", false, "grant what it wants")
	fl.BoolVar(&dryRun, "dry-run", false, "show the entry and write nothing")
	return cmd
}

func (a *app) lockPlugin(ctx context.Context, path string, t plugins.Terms, dryRun bool) error {
	f, err := a.folder()
	if err != nil {
		return err
	}
	c, err := f.Examine(ctx, path)
	if err != nil {
		return err
	}
	more, before, err := f.Wants(c)
	if err != nil {
		return err
	}
	if !dryRun && !t.Accept && (len(more) > 0 || before == nil) {
		if err := a.print(viewOf(c, more).listing()); err != nil {
			return err
		}
		return ungranted(c, "lock "+path)
	}
	p, err := f.LockFile(c, path, t, dryRun)
	if err != nil {
		return err
	}
	return a.print(lockedListing([]grant.Locked{p}, nil))
}

// reloadedView is what a server says of one reload.
type reloadedView struct {
	Exporter string          `json:"exporter"`
	Plugin   string          `json:"plugin"`
	Outcome  string          `json:"outcome"`
	Version  string          `json:"version"`
	SHA256   string          `json:"sha256"`
	Was      *versionView    `json:"was,omitempty"`
	Error    json.RawMessage `json:"error,omitempty"`
}

type versionView struct {
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

func pluginReload(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "reload [NAME]", Short: "Have a running server take up what plugins.lock says now", Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{errors.New("one NAME or none, for all plugins")}
			}
			return nil
		},
		Long: "Asks the server in --server, or the one at the configured address. The new version is loaded beside\n" +
			"the one that runs and asked what it is; only if it answers does it take over, and calls that run are\n" +
			"let end. A version that does not load is named, and the old one goes on (exit code 7).\n" +
			"NAME is that of an exporter in the configuration, or of a plugin in plugins.lock.",
		Example: "  fencepost plugin reload meterline\n  fencepost plugin reload --server http://127.0.0.1:8787 -o json",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.reloadPlugins(cmd.Context(), args) },
	}
}

func (a *app) reloadPlugins(ctx context.Context, args []string) error {
	base := a.server
	if base == "" {
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		base = "http://" + cfg.Listen
	}
	c, err := remoteClient(base)
	if err != nil {
		return err
	}
	body := map[string]string{}
	if len(args) == 1 {
		body["name"] = args[0]
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	var answer struct {
		Data []reloadedView `json:"data"`
	}
	err = c.do(ctx, request{method: http.MethodPost, path: "/v1/plugins/reload", media: "application/json", body: text}, &answer)
	if err != nil {
		return notFound(err, "fencepost plugin list")
	}
	kept := 0
	l := listing{columns: []string{"EXPORTER", "PLUGIN", "OUTCOME", "VERSION", "WAS", "ERROR"}, data: answer}
	for _, r := range answer.Data {
		was, problem := "", ""
		if r.Was != nil {
			was = r.Was.Version
		}
		if len(r.Error) > 0 {
			problem = problemText(r.Error)
		}
		if r.Outcome == "kept" {
			kept++
		}
		l.rows = append(l.rows, []string{r.Exporter, r.Plugin, r.Outcome, r.Version, was, problem})
		l.items = append(l.items, r)
	}
	if err := a.print(l); err != nil {
		return err
	}
	if kept > 0 {
		return codeError{exitPartial, fmt.Errorf("%d of %d kept the version that ran", kept, len(answer.Data))}
	}
	return nil
}

// problemText is the sentence of a problem document, or what else there is.
func problemText(raw json.RawMessage) string {
	if err := problemError(http.StatusBadRequest, raw); err != nil {
		if tagged, ok := errors.AsType[*sdk.Error](err); ok {
			return tagged.Error()
		}
	}
	return string(raw)
}
