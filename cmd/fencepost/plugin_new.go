package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/examples"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/plugins/workbench"
	sources "github.com/fencepost/fencepost/sdk"
)

// machine is where plugins are tried and built.
func (a *app) machine() (workbench.Machine, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return workbench.Machine{}, err
	}
	return workbench.Machine{CacheDir: cfg.Plugins.CacheDir(), Worker: []string{workerCommandName}, Logger: quietLogger(a.err)}, nil
}

func pluginNew(a *app) *cobra.Command {
	b := workbench.Beginning{Examples: examples.Sources, SDKs: sources.SDKs}
	var language, kind string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Begin a plugin: a copy of the sample that builds and passes its tests", Args: oneArg("NAME"),
		Long: "Writes the source of a plugin into a folder. An exporter is a copy of the sample exporter, with\n" +
			"its provider's answers (provider.json) and its tests (testdata). In Go it builds against the\n" +
			"checkout of this project in --sdk, or against the released version of this program; the other\n" +
			"languages get a copy of their SDK and need nothing but a compiler.",
		Example: "  fencepost plugin new meterline\n  fencepost plugin new --lang rust --dir ./plugins/acme acme",
		RunE: func(_ *cobra.Command, args []string) error {
			b.Name, b.Language, b.Kind = args[0], workbench.Language(language), grant.Kind(kind)
			if b.Dir == "" {
				b.Dir = b.Name
			}
			if err := chooseSDK(&b); err != nil {
				return err
			}
			return a.beginPlugin(b, dryRun)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&language, "lang", "go", "go, assemblyscript, c or rust")
	fl.StringVar(&kind, "kind", "exporter", "exporter or storage (storage: in go only)")
	fl.StringVar(&b.Dir, "dir", "", "the folder, which must not exist or be empty (default ./NAME)")
	fl.StringVar(&b.Module, "module", "", "path of the Go module (default example.com/NAME)")
	fl.StringVar(&b.Checkout, "sdk", os.Getenv("FENCEPOST_SDK"), "checkout of this project that a Go plugin builds against (env FENCEPOST_SDK; default the one around the current folder or this program, else the released version)")
	fl.BoolVar(&dryRun, "dry-run", false, "list the files and write none")
	return cmd
}

// chooseSDK finds what a Go plugin builds against.
func chooseSDK(b *workbench.Beginning) error {
	if b.Language != workbench.Go || b.Checkout != "" {
		return nil
	}
	if v := programVersion(); strings.HasPrefix(v, "v") {
		b.Version = v
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		program = "."
	}
	if b.Checkout = workbench.FindCheckout(".", filepath.Dir(program)); b.Checkout == "" {
		return usageError{errors.New("no checkout of this project was found around the current folder or this program, and a Go plugin builds against one: " +
			"name it with --sdk DIR or FENCEPOST_SDK=DIR; --lang c, rust and assemblyscript need none")}
	}
	return nil
}

func (a *app) beginPlugin(b workbench.Beginning, dryRun bool) error {
	files, err := b.Files()
	if err != nil {
		return err
	}
	if !dryRun {
		if err := b.Write(files); err != nil {
			return err
		}
	}
	type row struct {
		File  string `json:"file"`
		Bytes int    `json:"bytes"`
	}
	l := listing{columns: []string{"FILE", "BYTES"}}
	data := []row{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		r := row{filepath.Join(b.Dir, filepath.FromSlash(name)), len(files[name])}
		data = append(data, r)
		l.items = append(l.items, r)
		l.rows = append(l.rows, []string{r.File, strconv.Itoa(r.Bytes)})
	}
	l.data = map[string]any{"dir": b.Dir, "dry_run": dryRun, "files": data}
	return a.print(l)
}
