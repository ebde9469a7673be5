// Command exporter-go is the sample exporter as a plugin. It builds as a Wasm
// module with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o meterline.wasm .
//
// The same exporter is written in C, Rust and AssemblyScript under sdk; all four
// send the same bytes.
package main

import (
	"github.com/fencepost/fencepost/examples/exporter-go/meterline"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
)

var plugin = guest.Serve(meterline.New, guest.WithHTTP())

func main() { plugin.Main() }
