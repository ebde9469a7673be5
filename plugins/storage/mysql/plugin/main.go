// Command plugin is the MariaDB and MySQL adapter as a plugin: a process, or
// with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared a module. The
// database is the one that the operator named; the plugin does not hear its
// name.
package main

import (
	"github.com/fencepost/fencepost/plugins/sdk/guest"
	"github.com/fencepost/fencepost/plugins/sdk/guest/storageplugin"
	"github.com/fencepost/fencepost/plugins/storage/mysql"
)

var plugin = storageplugin.Serve(mysql.OpenPlugin, guest.WithSQL())

func main() { plugin.Main() }
