package main

import (
	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/host/carrier/worker"
)

// workerCommandName is what this program is started with to run a plugin in.
const workerCommandName = "plugin-worker"

// pluginWorkerCommand is not for people: a host starts it, and it says so to
// anybody else.
func pluginWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use: workerCommandName, Short: "Run one plugin for a host", Hidden: true, Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return worker.Serve() },
	}
}
