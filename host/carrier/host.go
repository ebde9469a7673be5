package carrier

import (
	"context"
	"io"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// SetupCall is one call made to a new instance of a plugin before its first
// other one.
type SetupCall struct {
	Method  uint32
	Request []byte
}

// Host holds what the host does for a plugin, over bytes, for every carrier.
// Handlers may be called from several calls at once and must honour the
// context, which is that of the Call with its values.
type Host struct {
	// HTTPSend performs an encoded HttpBatch and returns the encoded
	// HttpAnswers. An error means that nothing was sent; the plugin sees a
	// refusal of the batch. Required when http is granted and declared.
	HTTPSend func(ctx context.Context, batch []byte) ([]byte, error)
	// SQLDo performs an encoded sqlv1 Work and returns the encoded Answer. An
	// error means that nothing was done. Required when sql is granted and
	// declared.
	SQLDo func(ctx context.Context, work []byte) ([]byte, error)
	// AppendSend performs an encoded AppendBatch and returns the encoded
	// AppendAnswers. An error means that nothing was written; the plugin sees a
	// refusal of the batch. Required when append is granted and declared.
	AppendSend func(ctx context.Context, batch []byte) ([]byte, error)
	// Log takes one line from the log capability: valid UTF-8, at most 4 KiB.
	// Default: the carrier's logger.
	Log func(ctx context.Context, level capability.Level, line string)
	// Now is the wall clock of the clock capability and of WASI. Default:
	// time.Now.
	Now func() time.Time
	// Random is the source behind the random capability and WASI. It must be
	// safe for concurrent use. Default: crypto/rand. A predictable source is
	// for tests only: guests make keys from it.
	Random io.Reader
}
