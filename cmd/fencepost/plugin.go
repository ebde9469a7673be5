package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"aead.dev/minisign"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/plugins"
	"github.com/fencepost/fencepost/plugins/sdk"
)

func pluginCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "plugin", Short: "Plugins: look at them, let them in, switch them off",
		Long: "A plugin is installed with what it may do: capabilities, hosts and secrets, kept with the\n" +
			"digest of its file in plugins.lock and checked at every load. A server that runs goes on\n" +
			"with what it has loaded until \"fencepost plugin reload\", or until it is started again.",
	}
	cmd.AddCommand(
		pluginInspect(a), pluginInstall(a), pluginList(a), pluginVerify(a), pluginSwitch(a, "enable", false), pluginSwitch(a, "disable", true),
		pluginRollback(a), pluginRemove(a), pluginEmbed(a), pluginKeygen(a), pluginSign(a), pluginLock(a), pluginReload(a),
		pluginNew(a), pluginBuild(a), pluginRun(a), pluginTest(a), pluginConformance(a), pluginDouble(a),
	)
	return cmd
}

// folder is where the configuration has plugins.
func (a *app) folder() (plugins.Folder, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return plugins.Folder{}, err
	}
	return plugins.Folder{Dir: cfg.Plugins.Dir, Lock: cfg.Plugins.Lock, Cache: cfg.Plugins.CacheDir()}, nil
}

// candidateView is what there is to see of a file.
type candidateView struct {
	grant.Manifest

	SHA256 string   `json:"sha256"`
	Bytes  int      `json:"bytes"`
	Native bool     `json:"native"`
	Signed bool     `json:"signed"`
	New    []string `json:"wants_more"`
}

func viewOf(c *plugins.Candidate, more []string) candidateView {
	if more == nil {
		more = []string{}
	}
	return candidateView{Manifest: c.Manifest, SHA256: c.SHA256, Bytes: c.Size, Native: c.Native, Signed: c.Signed, New: more}
}

func (v candidateView) listing() listing {
	rows := [][]string{
		{"name", v.Name},
		{"version", v.Version},
		{"kind", string(v.Kind)},
		{"sha256", v.SHA256},
		{"bytes", strconv.Itoa(v.Bytes)},
		{"native", strconv.FormatBool(v.Native)},
		{"signed", strconv.FormatBool(v.Signed)},
		{"capabilities", joined(v.Capabilities)},
		{"hosts", joined(v.Hosts)},
		{"secrets", joined(v.Secrets)},
		{"network", strconv.FormatBool(v.Network)},
		{"wants more", joined(v.New)},
	}
	return listing{columns: []string{"FIELD", "VALUE"}, rows: rows, data: v, items: []any{v}}
}

func joined[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, t := range list {
		texts[i] = string(t)
	}
	return strings.Join(texts, ", ")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func pluginInspect(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE", Short: "Show what a plugin's file says of itself and wants, and let nothing in", Args: oneArg("FILE"),
		Long: "Reads the manifest, in the module or beside the file. A module is compiled and what it imports\n" +
			"compared with its manifest; an exporter is asked to describe itself, without any capability. A\n" +
			"native program is not run.",
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := a.folder()
			if err != nil {
				return err
			}
			c, err := f.Examine(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			more, _, err := f.Wants(c)
			if err != nil {
				return err
			}
			return a.print(viewOf(c, more).listing())
		},
	}
}

func pluginInstall(a *app) *cobra.Command {
	var isolation, key string
	var yes bool
	cmd := &cobra.Command{
		Use: "install FILE", Short: "Let a plugin in, with what it wants, and compile it", Args: oneArg("FILE"),
		Long: "Looks at the file as inspect does, copies it into the folder of plugins and locks its digest with\n" +
			"what is granted. A version that wants no more than the one before is installed without asking;\n" +
			"more needs --yes. Modules run in a worker process unless --isolation inproc trusts them.",
		Example: "  fencepost plugin install ./meterline.wasm --yes\n  fencepost plugin install ./meterline.wasm --public-key RWQ…",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := givenKey(cmd, key); err != nil {
				return err
			}
			return a.install(cmd.Context(), args[0], plugins.Terms{Isolation: grant.Isolation(isolation), PublicKey: key, Accept: yes})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&isolation, "isolation", "", "worker (default) or inproc for a module; process for a program")
	fl.StringVar(&key, "public-key", "", "minisign key that must have signed the file (FILE.minisig), now and at every load")
	fl.BoolVar(&yes, "yes", false, "grant what it wants")
	return cmd
}

// givenKey refuses an empty --public-key: a variable of a script that is not set
// must not install without a signature.
func givenKey(cmd *cobra.Command, key string) error {
	if cmd.Flags().Changed("public-key") && key == "" {
		return usageError{errors.New("--public-key: must be a minisign key, and is empty; leave the flag out to ask for no signature")}
	}
	return nil
}

// ungranted says what a command would have to be given to let a plugin in.
func ungranted(c *plugins.Candidate, command string) error {
	return codeError{exitConfirm, fmt.Errorf("%s %s: what it wants must be granted, and is not yet: fencepost plugin %s --yes grants it",
		c.Manifest.Name, c.Manifest.Version, command)}
}

func (a *app) install(ctx context.Context, path string, t plugins.Terms) error {
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
	if !t.Accept && (len(more) > 0 || before == nil) {
		if err := a.print(viewOf(c, more).listing()); err != nil {
			return err
		}
		return ungranted(c, "install "+path)
	}
	p, err := f.Install(c, t)
	if err != nil {
		return err
	}
	return a.print(lockedListing([]grant.Locked{p}, nil))
}

// lockedListing shows entries; problems has one for each that cannot be loaded.
func lockedListing(list []grant.Locked, problems map[string]error) listing {
	type row struct {
		grant.Locked

		Problem string `json:"problem,omitempty"`
	}
	l := listing{columns: []string{"NAME", "VERSION", "KIND", "ISOLATION", "CAPABILITIES", "HOSTS", "ENABLED", "STATUS"}}
	data := []row{}
	for _, p := range list {
		status := "ok"
		r := row{Locked: p}
		if err := problems[p.Name]; err != nil {
			r.Problem = err.Error()
			status = r.Problem
		}
		data = append(data, r)
		l.items = append(l.items, r)
		l.rows = append(l.rows, []string{
			p.Name, p.Version, string(p.Kind), string(p.Isolation), joined(p.Capabilities), joined(p.Hosts), strconv.FormatBool(!p.Disabled), status,
		})
	}
	l.data = map[string]any{"data": data}
	return l
}

// locked reads the lock and what is wrong with each entry's file.
func (a *app) locked() ([]grant.Locked, map[string]error, error) {
	f, err := a.folder()
	if err != nil {
		return nil, nil, err
	}
	lock, err := grant.LoadLock(f.Lock)
	if err != nil {
		return nil, nil, err
	}
	problems := map[string]error{}
	for _, p := range lock.Plugins {
		if _, err := p.Open(f.Dir); err != nil {
			problems[p.Name] = err
		}
	}
	return lock.Plugins, problems, nil
}

func pluginList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List installed plugins and what they were granted", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			list, problems, err := a.locked()
			if err != nil {
				return err
			}
			return a.print(lockedListing(list, problems))
		},
	}
}

func pluginVerify(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Check every installed file against plugins.lock, as a server does", Args: noArgs,
		Long: "Digest, signature where a key is locked, and that no manifest wants more than was granted.\nEnds with 9 if something is wrong.",
		RunE: func(*cobra.Command, []string) error {
			list, problems, err := a.locked()
			if err != nil {
				return err
			}
			if err := a.print(lockedListing(list, problems)); err != nil {
				return err
			}
			if len(problems) > 0 {
				return codeError{exitCheckFailed, fmt.Errorf("%d of %d plugins would not be loaded", len(problems), len(list))}
			}
			return nil
		},
	}
}

func pluginSwitch(a *app, verb string, disabled bool) *cobra.Command {
	short := map[bool]string{false: "Have a plugin loaded again", true: "Keep a plugin from being loaded; what waits for it stays where it is"}[disabled]
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Args: oneArg("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := a.folder()
			if err != nil {
				return err
			}
			return f.SetDisabled(args[0], disabled)
		},
	}
}

func pluginRollback(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "rollback NAME", Short: "Go back to the version before, with what it was granted", Args: oneArg("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := a.folder()
			if err != nil {
				return err
			}
			p, err := f.Rollback(args[0])
			if err != nil {
				return err
			}
			return a.print(lockedListing([]grant.Locked{p}, nil))
		},
	}
}

func pluginRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Take a plugin out of plugins.lock and delete its files", Args: oneArg("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := a.folder()
			if err != nil {
				return err
			}
			return f.Remove(args[0])
		},
	}
}

func pluginEmbed(*app) *cobra.Command {
	var manifest, out string
	cmd := &cobra.Command{
		Use: "embed MODULE", Short: "Put a manifest into a module that some other tool has built", Args: oneArg("MODULE"),
		Example: "  fencepost plugin embed ./meterline.wasm --manifest manifest.json",
		RunE: func(_ *cobra.Command, args []string) error {
			module, err := os.ReadFile(args[0])
			if err != nil {
				return sdk.Invalid("MODULE", err.Error())
			}
			text, err := os.ReadFile(manifest)
			if err != nil {
				return sdk.Invalid("--manifest", err.Error())
			}
			m, err := grant.ReadManifest(nil, text)
			if err != nil {
				return err
			}
			if module, err = grant.EmbedManifest(module, m); err != nil {
				return err
			}
			if out == "" {
				out = args[0]
			}
			return grant.WriteFile(out, module, 0o644)
		},
	}
	cmd.Flags().StringVar(&manifest, "manifest", "", "the manifest, a JSON file (required)")
	cmd.Flags().StringVar(&out, "out", "", "where the module is written (default: in place)")
	required(cmd, "manifest")
	return cmd
}

func pluginKeygen(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "keygen", Short: "Make a minisign key to sign plugins with", Args: noArgs,
		Long: "Writes the secret key, encrypted with a password, and prints the public one. The password is\n" +
			"read from the terminal, or from FENCEPOST_SIGN_PASSWORD.",
		RunE: func(*cobra.Command, []string) error {
			if _, err := os.Stat(path); err == nil {
				return sdk.Invalid("--key", "a file that does not exist yet")
			}
			password, err := a.password()
			if err != nil {
				return err
			}
			public, private, err := minisign.GenerateKey(nil)
			if err != nil {
				return fmt.Errorf("make a key: %w", err)
			}
			text, err := minisign.EncryptKey(password, private)
			if err != nil {
				return fmt.Errorf("encrypt the key: %w", err)
			}
			if err := grant.WriteFile(path, text, 0o600); err != nil {
				return err
			}
			v := map[string]string{"public_key": public.String(), "secret_key_file": path}
			return a.print(listing{columns: []string{"PUBLIC KEY", "SECRET KEY FILE"}, rows: [][]string{{public.String(), path}}, data: v, items: []any{v}})
		},
	}
	cmd.Flags().StringVar(&path, "key", "./fencepost.key", "where the secret key is written")
	return cmd
}

func pluginSign(a *app) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "sign FILE", Short: "Sign a plugin's file: writes FILE" + grant.SignatureSuffix, Args: oneArg("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			content, err := os.ReadFile(args[0])
			if err != nil {
				return sdk.Invalid("FILE", err.Error())
			}
			password, err := a.password()
			if err != nil {
				return err
			}
			private, err := minisign.PrivateKeyFromFile(password, key)
			if err != nil {
				return sdk.Invalid("--key", "a minisign secret key that the password opens")
			}
			return grant.WriteFile(args[0]+grant.SignatureSuffix, minisign.Sign(private, content), 0o644)
		},
	}
	cmd.Flags().StringVar(&key, "key", "./fencepost.key", "the secret key")
	return cmd
}

// password asks for the password of a signing key.
func (a *app) password() (string, error) {
	if p, ok := os.LookupEnv("FENCEPOST_SIGN_PASSWORD"); ok {
		return p, nil
	}
	f, ok := a.in.(*os.File)
	if !ok || a.noInput || !term.IsTerminal(int(f.Fd())) {
		return "", usageError{errors.New("the password of the key: on a terminal, or in FENCEPOST_SIGN_PASSWORD")}
	}
	fmt.Fprint(a.err, "password of the key: ")
	p, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(a.err)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return string(p), nil
}
