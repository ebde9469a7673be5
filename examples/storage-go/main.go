// Command storage-go is the sample storage adapter as a plugin. It keeps its
// store in a file, so it is built as a program:
//
//	go build -o bin/tally .
package main

import (
	"context"

	"github.com/fencepost/fencepost/examples/storage-go/tally"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest/storageplugin"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var plugin = storageplugin.Serve(open)

func open(_ context.Context, _ capability.Host, o storage.Opening) (storage.Adapter, error) {
	a, err := tally.Open(o.DSN)
	if err != nil {
		return nil, err // not a nil adapter in an interface
	}
	return a, nil
}

func main() { plugin.Main() }
