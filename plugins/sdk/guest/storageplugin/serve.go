package storageplugin

import (
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
)

// Serve registers the adapter of this program; see package guest. An option
// names a capability of the host that the adapter uses.
func Serve(open Open, options ...guest.Option) guest.Plugin {
	return guest.ServeAnswerer("storage", func(host capability.Host) guest.Answerer { return NewDispatcher(open, host) }, options...)
}
