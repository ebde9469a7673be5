// Command plugin is the Redis adapter as a plugin. The data source is a URL; see
// package redis.
package main

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest/storageplugin"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/redis"
)

var plugin = storageplugin.Serve(open)

func open(ctx context.Context, _ capability.Host, o storage.Opening) (storage.Adapter, error) {
	a, err := redis.Open(ctx, redis.Config{DSN: o.DSN, Migrate: o.Migrate})
	if err != nil {
		return nil, err // not a nil adapter in an interface
	}
	return a, nil
}

func main() { plugin.Main() }
