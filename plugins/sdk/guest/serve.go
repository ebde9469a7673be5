package guest

import (
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Plugin is an exporter that waits for its host. Serve makes it; the zero value
// serves nothing.
type Plugin struct{ run func() }

// Option names a capability that the plugin uses.
type Option func(*capability.Host)

// Serve registers the exporter of this program, to be built at the first call.
// A second Serve in one program replaces the first. Call it while packages are
// initialised, as the package comment shows.
func Serve(build exporter.New, options ...Option) Plugin {
	var host capability.Host
	for _, option := range options {
		option(&host)
	}
	return serve(build, host)
}

// Main waits for calls of the host where the carrier is a process. In Wasm the
// host never calls it.
func (p Plugin) Main() {
	if p.run != nil {
		p.run()
	}
}
