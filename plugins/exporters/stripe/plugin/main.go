// Command plugin is the Stripe exporter as a plugin.
package main

import (
	"github.com/fencepost/fencepost/plugins/exporters/stripe"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
)

var plugin = guest.Serve(stripe.New, guest.WithHTTP())

func main() { plugin.Main() }
