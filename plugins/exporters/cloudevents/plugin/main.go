// Command plugin is the cloudevents exporter as a plugin.
package main

import (
	"github.com/fencepost/fencepost/plugins/exporters/cloudevents"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
)

var plugin = guest.Serve(cloudevents.New, guest.WithHTTP())

func main() { plugin.Main() }
