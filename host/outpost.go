package host

import "github.com/fencepost/fencepost/outpost/server"

// newOutposts serves outposts with the meters of the configuration.
func (h *Host) newOutposts() *server.Server {
	return server.New(server.Config{Engine: h.engine, Meters: h.cfg.Settings.MeterList(), Logger: h.cfg.Logger, Now: h.cfg.Now})
}
