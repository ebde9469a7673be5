package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/plugins/workbench"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// runFlags are how a plugin is tried.
type runFlags struct {
	input, isolation, record, replay string
	answer, provider                 string
	live, yes                        bool
	baseURL, account, mode, caFile   string
	secrets, allowPrivate            []string
}

func pluginRun(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run [FILE|DIR]", Short: "Deliver a batch with an exporter and show what it asks for; send nothing", Args: optionalDir,
		Long: "Loads the plugin as a server would, hands it the batch and shows every request that it asks for,\n" +
			"with secrets hidden, the rule for which the host would refuse one, what it was answered, and the\n" +
			"outcomes beside what the host saw. Nothing is sent unless --live is given: each request is answered\n" +
			"with \"not sent\", or as --answer says, with the words of provider.json, or as was recorded.\n\n" +
			"--record keeps the conversation, without secrets, and --replay has it again: with the same time and\n" +
			"the same chance, inside this process. A request that differs is shown, and the command ends with 9,\n" +
			"as it does if the plugin says what the host did not see.",
		Example: "  fencepost plugin run --input batch.json\n" +
			"  fencepost plugin run --input batch.json --answer duplicate\n" +
			"  fencepost plugin run ./meterline.wasm --input batch.json --live --secret token=env:TOKEN --record conversation.json\n" +
			"  fencepost plugin run ./meterline.wasm --input batch.json --replay conversation.json",
		RunE: func(cmd *cobra.Command, args []string) error { return a.tryPlugin(cmd.Context(), dirOf(args), f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.input, "input", "", "the batch, a JSON file (required)")
	fl.StringVar(&f.isolation, "isolation", "", "inproc or worker for a module, process for a program (default as a server runs it)")
	fl.StringVar(&f.answer, "answer", "", "answer as the provider does: accept, duplicate, refuse or mend")
	fl.StringVar(&f.provider, "provider", "", "the provider's answers (default provider.json beside the plugin)")
	fl.StringVar(&f.record, "record", "", "write the conversation to this file")
	fl.StringVar(&f.replay, "replay", "", "answer from this recorded conversation")
	fl.BoolVar(&f.live, "live", false, "really send")
	fl.BoolVar(&f.yes, "yes", false, "with --live: also in mode live, where it may cost money")
	fl.StringVar(&f.baseURL, "base-url", "", "base_url instead of the input's")
	fl.StringVar(&f.account, "account", "", "account instead of the input's, also of its items")
	fl.StringVar(&f.mode, "mode", "", "mode instead of the input's, also of its items: test or live")
	fl.StringVar(&f.caFile, "ca-file", "", "with --live: certificates to trust beside the system's")
	fl.StringSliceVar(&f.secrets, "secret", nil, "with --live: NAME=env:VARIABLE or NAME=file:PATH; may be repeated")
	fl.StringSliceVar(&f.allowPrivate, "allow-private", nil, "with --live: a range of addresses that are not public; may be repeated")
	required(cmd, "input")
	return cmd
}

func (f runFlags) check() error {
	ways := 0
	for _, on := range []bool{f.live, f.answer != "", f.replay != ""} {
		if on {
			ways++
		}
	}
	switch {
	case ways > 1:
		return usageError{errors.New("one of --live, --answer and --replay")}
	case !f.live && (f.yes || f.caFile != "" || len(f.secrets)+len(f.allowPrivate) > 0):
		return usageError{errors.New("--yes, --ca-file, --secret and --allow-private: with --live, as nothing is sent without")}
	case f.record != "" && f.replay != "":
		return usageError{errors.New("one of --record and --replay")}
	case f.record != "" && ways == 0:
		return usageError{errors.New("--record: with --live or --answer, as there is nothing to record without an answer")}
	}
	return nil
}

func (a *app) tryPlugin(ctx context.Context, path string, f runFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	t, err := f.trial(path)
	if err != nil {
		return err
	}
	m, err := a.machine()
	if err != nil {
		return err
	}
	r, err := m.Try(ctx, t)
	if err != nil {
		return err
	}
	if f.record != "" {
		if err := r.Conversation.Write(f.record); err != nil {
			return err
		}
	}
	if err := a.printReport(r); err != nil {
		return err
	}
	if len(r.Problems) > 0 {
		return codeError{exitCheckFailed, fmt.Errorf("%d things do not agree", len(r.Problems))}
	}
	return nil
}

func (f runFlags) trial(path string) (t workbench.Trial, err error) {
	if t.Artifact, err = workbench.Load(path); err != nil {
		return t, err
	}
	if t.Input, err = workbench.ReadInput(f.input); err != nil {
		return t, err
	}
	f.override(&t.Input)
	t.Isolation, t.Record = grant.Isolation(f.isolation), f.record != ""
	switch {
	case f.answer != "":
		t.Say = conformance.Answer(f.answer)
		t.Provider, err = readProvider(t.Artifact, f.provider)
	case f.replay != "":
		t.Replay, err = workbench.ReadConversation(f.replay)
	case f.live:
		if t.Input.Configuration.Mode == "live" && !f.yes {
			return t, codeError{exitConfirm, errors.New("mode live may cost money: --yes sends all the same")}
		}
		t.Live, err = f.liveWith()
	}
	return t, err
}

func (f runFlags) override(in *workbench.Input) {
	c := &in.Configuration
	if f.baseURL != "" {
		c.BaseURL = f.baseURL
	}
	if f.account != "" {
		c.Account = f.account
	}
	if f.mode != "" {
		c.Mode = f.mode
	}
	for i := range in.Items {
		if f.account != "" {
			in.Items[i].Account = f.account
		}
		if f.mode != "" {
			in.Items[i].Mode = f.mode
		}
	}
}

func (f runFlags) liveWith() (*workbench.Live, error) {
	live := &workbench.Live{Secrets: map[string]grant.Secret{}, CAFile: f.caFile}
	for _, s := range f.secrets {
		name, ref, ok := strings.Cut(s, "=")
		if !ok {
			return nil, usageError{errors.New("--secret: NAME=env:VARIABLE or NAME=file:PATH")}
		}
		secret, err := grant.ResolveSecret(ref, os.LookupEnv, os.ReadFile)
		if err != nil {
			return nil, fmt.Errorf("--secret %s: %w", name, err)
		}
		live.Secrets[name] = secret
	}
	for _, text := range f.allowPrivate {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, usageError{errors.New("--allow-private: CIDR prefixes, such as 127.0.0.0/8")}
		}
		live.AllowPrivate = append(live.AllowPrivate, p)
	}
	return live, nil
}

// providerFile is where a plugin's folder says how its provider answers.
const providerFile = "provider.json"

// readProvider reads how the provider of a plugin answers. A program lies in a
// folder of its own below the plugin's.
func readProvider(p workbench.Artifact, path string) (*conformance.Declared, error) {
	if path == "" {
		path = filepath.Join(filepath.Dir(p.Path), providerFile)
		if _, err := os.Stat(path); err != nil && p.Native {
			path = filepath.Join(filepath.Dir(filepath.Dir(p.Path)), providerFile)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError{errors.New("--provider: how the provider answers, a JSON file; there is no " + path)}
	}
	d, err := conformance.ParseProvider(text)
	return &d, err
}

func (a *app) printReport(r *workbench.Report) error {
	if a.output != "table" {
		l := listing{columns: []string{"ITEM", "OUTCOME", "CODE", "SAW"}, data: r}
		for _, o := range r.Outcomes {
			l.rows = append(l.rows, []string{o.Item, string(o.Kind), o.Code, joined(o.Saw)})
			l.items = append(l.items, o)
		}
		return a.print(l)
	}
	w := a.out
	fmt.Fprintf(w, "%s %s as %s, answered by %s\n", visible(r.Plugin), visible(r.Version), r.Isolation, r.Answered)
	for i, s := range r.Requests {
		fmt.Fprintf(w, "\nrequest %d: %s %s\n", i+1, visible(s.Method), visible(s.URL))
		for _, h := range s.Headers {
			fmt.Fprintf(w, "  %s: %s\n", visible(h.Name), visible(h.Value))
		}
		fmt.Fprintf(w, "  items: %s\n", dash(visible(strings.Join(s.Items, ", "))))
		printBody(w, s.Content)
		if s.Refused != "" {
			fmt.Fprintf(w, "  THE HOST REFUSES IT: %s (%s)\n", s.Refused, visible(s.Why))
			continue
		}
		fmt.Fprintf(w, "answer %d: %s\n", i+1, visible(answerLine(s.Answer)))
		printBody(w, s.Answer.Content)
	}
	for _, l := range r.Log {
		fmt.Fprintf(w, "log: %s %s\n", l.Level, visible(l.Line))
	}
	rows := [][]string{}
	for _, o := range r.Outcomes {
		rows = append(rows, []string{o.Item, string(o.Kind), o.Code, o.Message, o.RetryAfter, joined(o.Saw)})
	}
	fmt.Fprintln(w)
	if err := writeTable(w, []string{"ITEM", "OUTCOME", "CODE", "MESSAGE", "RETRY AFTER", "HOST SAW"}, rows); err != nil {
		return err
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, "! "+visible(p))
	}
	return nil
}

func answerLine(x workbench.Answer) string {
	if x.Failure != "" {
		return x.Failure + " (" + x.Reason + ")"
	}
	return strconv.Itoa(x.Status)
}
