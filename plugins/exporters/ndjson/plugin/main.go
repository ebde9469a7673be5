// Command plugin is the ndjson exporter as a plugin.
package main

import (
	"github.com/fencepost/fencepost/plugins/exporters/ndjson"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
)

var plugin = guest.Serve(ndjson.New, guest.WithAppend())

func main() { plugin.Main() }
