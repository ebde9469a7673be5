//go:build !wasip1

package guest

import "github.com/fencepost/fencepost/plugins/sdk/capability"

func serveAnswerer(kind string, build func(capability.Host) Answerer, host capability.Host) Plugin {
	names := named(host)
	return Plugin{run: func() {
		serveProcess(kind, names, func(h capability.Host) answering { return build(h) })
	}}
}

// Concurrent reports whether the plugin takes calls side by side. What it asks
// of the host with the context of a call belongs to that call.
func (p *process) Concurrent() bool {
	c, ok := p.plugin.(interface{ Concurrent() bool })
	return ok && c.Concurrent()
}
