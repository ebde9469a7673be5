// Command plugin is the webhook exporter as a plugin.
package main

import (
	"github.com/fencepost/fencepost/plugins/exporters/webhook"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
)

var plugin = guest.Serve(webhook.New, guest.WithHTTP())

func main() { plugin.Main() }
