package remote_test

import (
	"context"
	"testing"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/remote"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// breaking breaks off at every call.
type breaking struct {
	carrier.Caller
	calls, closed int
}

func (b *breaking) Call(context.Context, uint32, []byte) ([]byte, error) {
	b.calls++
	return nil, &carrier.Fault{Kind: carrier.KindDeadline, Entered: true}
}

func (b *breaking) Close(context.Context) error {
	b.closed++
	return nil
}

// Q28: a plugin that is stuck while it opens the store is not started again to
// close it, which would take as long once more.
func TestAnOpeningThatBreaksOffIsGivenUp(t *testing.T) {
	t.Parallel()
	b := &breaking{}
	_, err := remote.Open(t.Context(), remote.Config{Plugin: "stuck", Caller: b, Opening: storage.Opening{DSN: "x"}})
	if err == nil || b.calls != 1 || b.closed != 1 {
		t.Errorf("%v, %d calls, closed %d times", err, b.calls, b.closed)
	}
}
