package guest

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Answerer answers numbered calls: a dispatcher of any kind of plugin. Calls
// come one at a time, unless it has a method Concurrent() bool that answers
// true and the carrier can do better.
type Answerer interface {
	// Call returns the encoded answer, or an encoded Error with
	// [wirev1.StatusError].
	Call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, wirev1.Status)
}

// ServeAnswerer is [Serve] for another kind of plugin than exporters, which kind
// names in messages to people. Authors call the Serve of that kind's package.
func ServeAnswerer(kind string, build func(capability.Host) Answerer, options ...Option) Plugin {
	var host capability.Host
	for _, option := range options {
		option(&host)
	}
	return serveAnswerer(kind, build, host)
}
