package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/plugins/workbench"
)

// optionalDir takes the current folder for an argument that is absent.
func optionalDir(_ *cobra.Command, args []string) error {
	if len(args) > 1 || len(args) == 1 && args[0] == "" {
		return usageError{errors.New("one DIR or none, for the current folder")}
	}
	return nil
}

func dirOf(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

// builtView is what was built.
type builtView struct {
	grant.Manifest

	File     string             `json:"file"`
	SHA256   string             `json:"sha256"`
	Bytes    int                `json:"bytes"`
	Native   bool               `json:"native"`
	Language workbench.Language `json:"language"`
	Compiler string             `json:"compiler"`
}

func pluginBuild(a *app) *cobra.Command {
	var b workbench.Building
	cmd := &cobra.Command{
		Use: "build [DIR]", Short: "Compile a plugin and write its file with its manifest", Args: optionalDir,
		Long: "Finds the language by the files in DIR (Cargo.toml, package.json, *.go, *.c), calls its compiler\n" +
			"and asks an exporter what it is: that becomes its manifest, unless manifest.json in DIR says it,\n" +
			"with which it then has to agree. A module holds its manifest; a program has it beside its file.",
		Example: "  fencepost plugin build\n  fencepost plugin build --native ./meterline --out ./bin/meterline",
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := a.machine()
			if err != nil {
				return err
			}
			b.Dir = dirOf(args)
			m.Compiler = func(text string) { fmt.Fprintln(a.err, visibleLines(strings.TrimRight(text, "\n"))) }
			built, err := m.Build(cmd.Context(), b)
			if err != nil {
				return err
			}
			v := builtView{
				Manifest: built.Manifest, File: built.Path, SHA256: built.SHA256(), Bytes: len(built.Content), Native: built.Native,
				Language: built.Language, Compiler: built.Compiler,
			}
			return a.print(v.listing())
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&b.Native, "native", false, "a program for this machine instead of a module (go only)")
	fl.StringVar(&b.Out, "out", "", "the file (default NAME.wasm in DIR; bin/NAME there for a program)")
	return cmd
}

func (v builtView) listing() listing {
	rows := [][]string{
		{"file", filepath.Clean(v.File)},
		{"name", v.Name},
		{"version", v.Version},
		{"kind", string(v.Kind)},
		{"language", string(v.Language)},
		{"compiler", v.Compiler},
		{"bytes", strconv.Itoa(v.Bytes)},
		{"sha256", v.SHA256},
		{"capabilities", joined(v.Capabilities)},
		{"hosts", joined(v.Hosts)},
		{"secrets", joined(v.Secrets)},
	}
	return listing{columns: []string{"FIELD", "VALUE"}, rows: rows, data: v, items: []any{v}}
}
