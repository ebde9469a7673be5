package buffer_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Q21: what a host says to be flushed is in the store: the instant moves with a
// flush that left nothing, and not with one that failed or was refused.
func TestFlushedThrough(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := noon
	pass := func() { now = now.Add(time.Minute); r.set(now) }
	at := func(want time.Time) {
		t.Helper()
		if got := r.FlushedThrough(); !got.Equal(want) {
			t.Errorf("flushed through %s, want %s", got, want)
		}
	}
	at(noon)
	r.track(t, "acme", "calls", "1")
	pass()
	at(noon)
	for _, err := range []error{sdk.Unavailable("gone", errors.New("gone")), sdk.Invalid("quantity", "another one")} {
		r.ledger.answer = func(storage.FlushBatch) error { return err }
		if r.Flush(t.Context()) == nil {
			t.Fatal("flushed")
		}
		at(noon)
	}
	r.ledger.answer = nil
	r.flush(t)
	at(now)
	pass()
	r.flush(t) // there was nothing to write
	at(now)
}
