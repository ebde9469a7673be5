// Command plugin is the MariaDB and MySQL adapter as a plugin: a process, or
// with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared a module. The
// database is the one that the operator named; the plugin does not hear its
// name.
package main

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
	"github.com/fencepost/fencepost/plugins/sdk/guest/storageplugin"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/mysql"
)

var plugin = storageplugin.Serve(open, guest.WithSQL())

func open(ctx context.Context, host capability.Host, o storage.Opening) (storage.Adapter, error) {
	a, err := mysql.Open(ctx, host.SQL, o.Migrate)
	if err != nil {
		return nil, err // not a nil adapter in an interface
	}
	return a, nil
}

func main() { plugin.Main() }
