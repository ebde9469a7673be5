package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{
				"version": programVersion(), "go": runtime.Version(),
				"platform": runtime.GOOS + "/" + runtime.GOARCH,
			}
			l := listing{columns: []string{"FIELD", "VALUE"}, data: v, items: []any{v}}
			if a.output == "table" {
				fmt.Fprintf(a.out, "fencepost %s %s %s\n", v["version"], v["go"], v["platform"])
				return nil
			}
			for _, k := range sortedKeys(v) {
				l.rows = append(l.rows, []string{k, v[k]})
			}
			return a.print(l)
		},
	}
}
