package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Replayer runs replays in the background, one at a time.
type Replayer interface {
	// Start begins a replay and returns. It fails with conflict, code
	// "replay_running", while one runs here.
	Start(o engine.ReplayOptions) error
	// Last says how the replay that runs here, or the last one, is doing.
	Last() ReplayRun
}

// ReplayRun is a replay of this process. The zero value: there was none.
type ReplayRun struct {
	Running  bool
	Progress engine.ReplayProgress
	Err      error
	Began    time.Time
	Ended    time.Time
}

// ReplayStatus answers GET and POST /v1/replays.
type ReplayStatus struct {
	Active       string   `json:"active"`
	Building     string   `json:"building,omitempty"`
	Previous     string   `json:"previous,omitempty"`
	Watermark    string   `json:"watermark,omitempty"`
	Cursor       string   `json:"cursor,omitempty"`
	SeedLeft     bool     `json:"seed_left,omitempty"`
	Paused       bool     `json:"paused"`
	BegunAt      string   `json:"begun_at,omitempty"`
	ActivatedAt  string   `json:"activated_at,omitempty"`
	StaleBuckets []string `json:"stale_buckets,omitempty"`
	// Run is the replay of the answering host, absent if it ran none.
	Run *ReplayRunView `json:"run,omitempty"`
}

// ReplayRunView is a replay of one host. State is running, done, stopped (at the
// bound of batches or before activation), paused (by somebody, until it is
// resumed) or failed, which alone has an Error.
type ReplayRunView struct {
	State       string             `json:"state"`
	Phase       engine.ReplayPhase `json:"phase"`
	Generation  string             `json:"generation"`
	Resumed     bool               `json:"resumed"`
	Scanned     string             `json:"scanned"`
	Batches     int                `json:"batches"`
	Drained     string             `json:"drained"`
	Activated   bool               `json:"activated"`
	Differing   string             `json:"differing"`
	Differences []ReplayDifference `json:"differences,omitempty"`
	BeganAt     string             `json:"began_at"`
	EndedAt     string             `json:"ended_at,omitempty"`
	Error       *errorMessage      `json:"error,omitempty"`
}

// ReplayDifference is one total that differs from what its events sum to.
type ReplayDifference struct {
	Tenant      string      `json:"tenant"`
	Feature     string      `json:"feature"`
	PeriodStart string      `json:"period_start"`
	Active      ReplayTotal `json:"active"`
	Built       ReplayTotal `json:"built"`
}

// ReplayTotal is one side of a difference.
type ReplayTotal struct {
	Quantity string `json:"quantity"`
	Events   string `json:"events"`
	Count    string `json:"count"`
}

// replayInput is the body of POST /v1/replays and /v1/replays/resume.
type replayInput struct {
	BatchSize  *int           `json:"batch_size"` // absent: the engine's default
	Compare    engine.Compare `json:"compare"`
	Activate   *bool          `json:"activate"` // absent: true
	Resume     bool           `json:"resume"`
	MaxBatches int            `json:"max_batches"`
	Timeout    string         `json:"timeout"`
}

func (in replayInput) options() (engine.ReplayOptions, error) {
	o := engine.ReplayOptions{
		Compare: in.Compare, Resume: in.Resume, MaxBatches: in.MaxBatches,
		WithoutActivation: in.Activate != nil && !*in.Activate,
	}
	// The zero value of the options stands for a default, a zero that was sent
	// for itself.
	if in.BatchSize != nil {
		if o.BatchSize = *in.BatchSize; o.BatchSize == 0 {
			return o, sdk.Invalid("batch_size", "1 to 5000")
		}
	}
	if in.Timeout != "" {
		d, err := time.ParseDuration(in.Timeout)
		if err != nil {
			return o, sdk.Invalid("timeout", "a duration such as 60s")
		}
		if o.Timeout = d; d == 0 {
			return o, sdk.Invalid("timeout", "at least 1ms")
		}
	}
	return o, o.Check() //nolint:wrapcheck // names the field
}

func (s *server) getReplays(w http.ResponseWriter, r *http.Request) {
	err := readQuery(r).err
	s.replayStatus(w, r, err, http.StatusOK)
}

func (s *server) postReplay(w http.ResponseWriter, r *http.Request) {
	s.startReplay(w, r, func(*engine.ReplayOptions) error { return nil })
}

// resumeReplay lets a paused build go on, and goes on with it.
func (s *server) resumeReplay(w http.ResponseWriter, r *http.Request) {
	s.startReplay(w, r, func(o *engine.ReplayOptions) error {
		o.Resume = true
		_, err := s.cfg.Engine.PauseReplay(r.Context(), false)
		return err
	})
}

// activateReplay finishes a build that was not to be activated.
func (s *server) activateReplay(w http.ResponseWriter, r *http.Request) {
	s.startReplay(w, r, func(o *engine.ReplayOptions) error {
		o.Resume = true
		st, err := s.cfg.Engine.ReplayState(r.Context())
		switch {
		case err != nil:
			return err
		case st.Building == 0:
			return &sdk.Error{Tag: sdk.TagConflict, Code: "no_replay", Rule: "a replay that was begun and is not finished"}
		case st.Cursor < st.Watermark:
			return &sdk.Error{Tag: sdk.TagConflict, Code: "not_scanned", Rule: "a replay that has scanned every event", Hint: "fencepost replay resume goes on with it"}
		case o.WithoutActivation:
			return sdk.Invalid("activate", "true or absent")
		}
		return nil
	})
}

func (s *server) startReplay(w http.ResponseWriter, r *http.Request, prepare func(*engine.ReplayOptions) error) {
	var in replayInput
	var o engine.ReplayOptions
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "batch_size, compare, activate, resume, max_batches and timeout")
	}
	if err == nil {
		o, err = in.options()
	}
	if err == nil && s.cfg.Replays == nil {
		err = &sdk.Error{Tag: sdk.TagUnsupported, Field: "replays", Rule: "a host that runs replays"}
	}
	if err == nil {
		err = prepare(&o)
	}
	if err == nil {
		err = s.cfg.Engine.CheckReplay(r.Context(), o)
	}
	if err == nil {
		err = s.cfg.Replays.Start(o)
	}
	s.replayStatus(w, r, err, http.StatusAccepted)
}

func (s *server) pauseReplay(w http.ResponseWriter, r *http.Request) {
	err := readQuery(r).err
	if err == nil {
		_, err = s.cfg.Engine.PauseReplay(r.Context(), true)
	}
	s.replayStatus(w, r, err, http.StatusOK)
}

// pruneReplay removes the generation that was in use before, or with "abandon"
// the build.
func (s *server) pruneReplay(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Abandon bool `json:"abandon"`
	}
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "abandon")
	}
	if err == nil {
		// Rows that are left when a request's time is up would be nobody's.
		ctx := context.WithoutCancel(r.Context())
		if in.Abandon {
			_, err = s.cfg.Engine.AbandonReplay(ctx)
		} else {
			_, err = s.cfg.Engine.PruneReplay(ctx)
		}
	}
	s.replayStatus(w, r, err, http.StatusOK)
}

func (s *server) replayStatus(w http.ResponseWriter, r *http.Request, err error, status int) {
	var st storage.ProjectionState
	var stale []string
	// First the run: what the store says of one that has ended is then not older.
	var run *ReplayRunView
	if s.cfg.Replays != nil {
		run = runView(s.cfg.Replays.Last())
	}
	if err == nil {
		st, err = s.cfg.Engine.ReplayState(r.Context())
	}
	if err == nil {
		stale, err = s.cfg.Engine.StaleBuckets(r.Context())
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := ReplayStatus{
		Active: id(st.Active), Building: id(st.Building), Previous: id(st.Previous), SeedLeft: st.Seed != 0, Paused: st.Paused,
		BegunAt: stamp(st.BegunAt), ActivatedAt: stamp(st.ActivatedAt), StaleBuckets: stale, Run: run,
	}
	if st.Building != 0 {
		out.Watermark, out.Cursor = strconv.FormatInt(st.Watermark, 10), strconv.FormatInt(st.Cursor, 10)
	}
	writeJSON(w, status, out)
}

func id(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func runView(run ReplayRun) *ReplayRunView {
	if run.Began.IsZero() {
		return nil
	}
	p := run.Progress
	v := &ReplayRunView{
		State: "running", Phase: p.Phase, Generation: id(p.Generation), Resumed: p.Resumed, Scanned: strconv.FormatInt(p.Scanned, 10),
		Batches: p.Batches, Drained: strconv.FormatInt(p.Drained, 10), Activated: p.Activated, Differing: strconv.FormatInt(p.Diff.Total, 10),
		BeganAt: stamp(run.Began), EndedAt: stamp(run.Ended),
	}
	switch {
	case run.Running:
	case errors.Is(run.Err, &sdk.Error{Tag: sdk.TagConflict, Code: "paused"}):
		v.State = "paused"
	case run.Err != nil:
		v.State = "failed"
		m := errorMessage{Tag: sdk.TagOf(run.Err)}
		if e, ok := errors.AsType[*sdk.Error](run.Err); ok {
			m = messages(meter.Errors{e})[0]
		}
		v.Error = &m
	case p.Phase == engine.ReplayDone:
		v.State = "done"
	default:
		v.State = "stopped"
	}
	for _, d := range p.Diff.Differences {
		v.Differences = append(v.Differences, ReplayDifference{
			Tenant: d.Tenant, Feature: d.Feature, PeriodStart: stamp(d.PeriodStart), Active: replayTotal(d.Active), Built: replayTotal(d.Built),
		})
	}
	return v
}

func replayTotal(t storage.TotalDelta) ReplayTotal {
	return ReplayTotal{Quantity: t.Quantity.String(), Events: strconv.FormatInt(t.Events, 10), Count: strconv.FormatInt(t.Count, 10)}
}
