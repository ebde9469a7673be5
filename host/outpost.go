package host

import (
	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/outpost/protocol"
	"github.com/fencepost/fencepost/outpost/server"
)

// newOutposts serves outposts with the meters of the configuration.
func (h *Host) newOutposts() *server.Server {
	return server.New(server.Config{Engine: h.engine, Meters: h.cfg.Settings.MeterList(), Logger: h.cfg.Logger, Now: h.cfg.Now})
}

// balanceChanged hints to the outposts of this host. Those of another host hear of
// it when the next bucket begins. // G7.
func (h *Host) balanceChanged(c engine.Change) {
	if h.outposts != nil { // nothing records before there is one
		h.outposts.Changed(c.Tenant, c.Feature, protocol.Cause(c.Cause))
	}
}
