package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// replays runs replays of one host in the background, one at a time. It
// implements [api.Replayer].
type replays struct {
	engine *engine.Engine
	now    func() time.Time
	ctx    context.Context //nolint:containedctx // the life of the host, which outlasts any request
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	last   api.ReplayRun
	done   chan struct{} // closed when the last run ended; nil: there was none
}

func newReplays(e *engine.Engine, now func() time.Time) *replays {
	ctx, cancel := context.WithCancel(context.Background())
	return &replays{engine: e, now: now, ctx: ctx, cancel: cancel}
}

// Start begins a replay and returns.
func (r *replays) Start(o engine.ReplayOptions) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return &sdk.Error{Tag: sdk.TagUnavailable, Code: "closed", Rule: "a host that is not closing; nothing was begun"}
	case r.last.Running:
		return &sdk.Error{Tag: sdk.TagConflict, Code: "replay_running", Rule: "one replay at a time; this host is running one", Hint: "fencepost replay status"}
	}
	r.last = api.ReplayRun{Running: true, Began: r.now(), Progress: engine.ReplayProgress{Phase: engine.ReplayAnnounce}}
	o.Progress = func(p engine.ReplayProgress) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last.Progress = p
	}
	done := make(chan struct{})
	r.done = done
	go func() {
		defer close(done)
		p, err := r.engine.Replay(r.ctx, o)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err == nil || p.Generation != 0 {
			r.last.Progress = p
		}
		r.last.Running, r.last.Err, r.last.Ended = false, err, r.now()
	}()
	return nil
}

// Last says how the replay that runs here, or the last one, is doing.
func (r *replays) Last() api.ReplayRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// stop ends the replay that runs, which a later one resumes, and refuses others.
func (r *replays) stop() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
}

// wait waits for the replay that runs, if there is one.
func (r *replays) wait() {
	r.mu.Lock()
	done := r.done
	r.mu.Unlock()
	if done != nil {
		<-done
	}
}

// rebuildBuckets replays if buckets were switched on or changed since they were
// built: until then usage by windows is answered from events. // Q27.
func (h *Host) rebuildBuckets(ctx context.Context) {
	stale, err := h.engine.StaleBuckets(ctx)
	if err != nil {
		h.cfg.Logger.WarnContext(ctx, "look for buckets to rebuild", "error", err)
		return
	}
	if len(stale) == 0 {
		return
	}
	h.cfg.Logger.InfoContext(ctx, "rebuilding buckets from events", "features", stale)
	if err := h.replays.Start(engine.ReplayOptions{Resume: true}); err != nil {
		h.cfg.Logger.WarnContext(ctx, "buckets are not rebuilt", "error", err)
		return
	}
	h.replays.wait()
	run := h.replays.Last()
	switch {
	case run.Err == nil:
		h.cfg.Logger.InfoContext(ctx, "buckets are rebuilt", "features", stale, "events", run.Progress.Scanned)
	case errors.Is(run.Err, sdk.ErrConflict):
		h.cfg.Logger.WarnContext(ctx, "buckets are not rebuilt: usage is answered from events until a replay ends", "error", run.Err)
	case ctx.Err() == nil:
		h.cfg.Logger.ErrorContext(ctx, "buckets are not rebuilt; a replay or the next start goes on with it", "error", run.Err)
	}
}
