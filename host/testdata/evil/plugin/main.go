// Command plugin is the exporter of the tests as a plugin.
package main

import (
	"os"
	"time"

	"github.com/fencepost/fencepost/host/testdata/evil"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
)

var plugin = guest.Serve(evil.New, guest.WithHTTP(), guest.WithLog())

func main() {
	if len(os.Args) > 1 && os.Args[1] == evil.Sleep {
		time.Sleep(time.Hour)
	}
	plugin.Main()
}
