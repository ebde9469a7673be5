//go:build !wasip1

package guest

import (
	"fmt"
	"os"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

func serve(exporter.New, capability.Host) Plugin {
	return Plugin{run: func() {
		fmt.Fprintln(os.Stderr, "this program is a fencepost plugin and not a command. This version of fencepost runs plugins as Wasm modules: "+
			"build it with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared, and name the file in fencepost.yaml as wasm:FILE")
		os.Exit(2)
	}}
}

// WithHTTP gives the exporter [capability.Host].HTTP.
func WithHTTP() Option { return func(*capability.Host) {} }

// WithLog gives the exporter [capability.Host].Log.
func WithLog() Option { return func(*capability.Host) {} }

// WithClock gives the exporter [capability.Host].Clock.
func WithClock() Option { return func(*capability.Host) {} }

// WithRandom gives the exporter [capability.Host].Random.
func WithRandom() Option { return func(*capability.Host) {} }
