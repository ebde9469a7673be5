// Command plugin is the AWS Marketplace exporter as a plugin.
package main

import (
	"github.com/fencepost/fencepost/plugins/exporters/awsmarketplace"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
)

var plugin = guest.Serve(awsmarketplace.New, guest.WithHTTP())

func main() { plugin.Main() }
