package remote_test

import (
	"context"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/remote"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest/storageplugin"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// inProcess is a carrier around a dispatcher in this process. It can be told to
// start again, to answer something else, and to break off.
type inProcess struct {
	open storageplugin.Open
	// answer, if set, replaces what the plugin answered.
	answer func(method wirev1.Method, request, answer []byte, err error) ([]byte, error)
	// lie, if set, is the answer of every operation: the plugin is not called.
	lie *[]byte

	mu         sync.Mutex
	dispatcher *storageplugin.Dispatcher
	calls      []wirev1.Method
	closed     bool
}

func carry(open storageplugin.Open) *inProcess {
	c := &inProcess{open: open}
	c.restart()
	return c
}

// carryAdapter carries an adapter that is open already.
func carryAdapter(a storage.Adapter) *inProcess {
	return carry(func(context.Context, capability.Host, storage.Opening) (storage.Adapter, error) { return a, nil })
}

func (c *inProcess) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dispatcher = storageplugin.NewDispatcher(c.open, capability.Host{})
}

// called counts the calls of a method, or all for zero.
func (c *inProcess) called(method wirev1.Method) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, m := range c.calls {
		if method == 0 || m == method {
			n++
		}
	}
	return n
}

func (c *inProcess) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	c.mu.Lock()
	d := c.dispatcher
	c.calls = append(c.calls, wirev1.Method(method))
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, &carrier.Fault{Kind: carrier.KindClosed, Plugin: "inprocess"}
	}
	if c.lie != nil && wirev1.Method(method) > storagev1.MethodClose {
		return *c.lie, nil
	}
	answer, status := d.Call(ctx, wirev1.Method(method), request)
	var err error
	if status == wirev1.StatusError {
		answer, err = nil, &carrier.PluginError{Payload: answer}
	}
	if c.answer != nil {
		return c.answer(wirev1.Method(method), request, answer, err)
	}
	return answer, err
}

func (c *inProcess) Close(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func open(t testing.TB, c carrier.Caller) *remote.Adapter {
	t.Helper()
	a, err := remote.Open(t.Context(), remote.Config{Caller: c, Plugin: "test", Opening: storage.Opening{DSN: "a store"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}
