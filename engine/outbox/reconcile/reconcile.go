// Package reconcile compares what was reported with what a provider counted. It
// asks for sums, confirms what agrees, and reports what does not; it sends
// nothing again and explains nothing away.
package reconcile

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// ConfirmedBy is what an item confirmed by a sum says of who confirmed it (Q24).
const ConfirmedBy = "aggregate"

// Prober asks an exporter's provider for sums, within the limits of its rate.
type Prober interface {
	// Probe answers one sum for each question, in order. See
	// [exporter.Prober].
	Probe(ctx context.Context, p exporter.Probe) ([]exporter.ProbeAnswer, error)
}

// Config is what a reconciler is made of. Store, Routes, Prober, Manifest and
// Destination are required.
type Config struct {
	Store       storage.ReconcileStore
	Routes      storage.RouteStore
	Prober      Prober
	Manifest    exporter.Manifest
	Destination outbox.Destination
	// Items and Attest, if both are set, are for uncertain items that a sum can
	// only have if they were taken: Attest is told of each, with what shows it.
	// The same may be told again.
	Items  storage.OutboxStore
	Attest func(ctx context.Context, itemID int64, what string) error
	// Confirmed, if set, is told of each sum that was confirmed, with how many
	// items were. It must not block.
	Confirmed func(ctx context.Context, sum storage.SumConfirm, items int64)
	// Questions is how many are asked at once. Zero: 25.
	Questions int
	// Tries is how often a question is asked that was not answered. Zero: 3.
	Tries int
	// Wait pauses between two tries; nil: a timer.
	Wait   func(ctx context.Context, d time.Duration)
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: discarded
}

// Request says what to compare.
type Request struct {
	// ID names the run; empty: a new random one.
	ID string
	// From and To bound the usage, half-open, in multiples of the exporter's
	// granularity.
	From time.Time
	To   time.Time
	// Step cuts the stretch at multiples of it since the epoch, so that a
	// difference is found where it is, and a stretch that is closed can be
	// confirmed. Zero: one comparison of the whole.
	Step     time.Duration
	Customer string // empty: all
	Feature  string // empty: all
	// Unconfirmed leaves out what is confirmed already.
	Unconfirmed bool
	// Act says who compares, and why. In a dry run nothing is confirmed and
	// no evidence is stored; the run and its lines are, as they are its answer.
	Act outbox.Act
}

const (
	defaultQuestions = 25
	defaultTries     = 3
	pageSize         = 500
	stretchesMax     = 1000
	tryAgainAfter    = 2 * time.Second
)

// NewID returns a name for a run.
func NewID() string { return "rec_" + rand.Text() }

// Run compares, stores the run with its lines, confirms what agrees and returns
// the run without lines. A provider that does not answer is no error: the lines
// say so.
//
// # Errors
//
// Invalid: the request breaks a rule, and nothing was stored. Unsupported: the
// exporter cannot be asked for sums. Any other error broke the run off; what was
// confirmed by then stays so, and the stored run says why it ended.
func Run(ctx context.Context, c Config, r Request) (storage.Reconciliation, error) {
	c = c.withDefaults()
	if err := r.Check(c.Manifest); err != nil {
		return storage.Reconciliation{}, err
	}
	if r.ID == "" {
		r.ID = NewID()
	}
	run := &run{Config: c, request: r, stored: storage.Reconciliation{
		ID: r.ID, Exporter: c.Destination.Exporter, Account: c.Destination.Account, Mode: c.Destination.Mode,
		From: r.From, To: r.To, StartedAt: c.now(),
	}}
	if err := c.Store.SaveReconciliation(ctx, run.stored); err != nil {
		return storage.Reconciliation{}, fmt.Errorf("save the run: %w", err)
	}
	err := run.all(ctx)
	if err == nil && run.unanswered > 0 {
		run.stored.Error = fmt.Sprintf("%d sums without an answer, the first: %s", run.unanswered, run.firstCode)
	}
	if err != nil {
		run.stored.Error = message(err.Error())
	}
	run.stored.FinishedAt = c.now()
	// The run's end is stored also if ctx ended: it was broken off. Lines that
	// were compared and not yet stored go with it.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if saveErr := c.Store.SaveReconciliation(ending, run.stored); saveErr != nil && err == nil {
		err = fmt.Errorf("save the run: %w", saveErr)
	}
	run.stored.NewLines = nil
	return run.stored, err
}

func (c Config) withDefaults() Config {
	if c.Questions == 0 {
		c.Questions = defaultQuestions
	}
	if c.Tries == 0 {
		c.Tries = defaultTries
	}
	if c.Wait == nil {
		c.Wait = wait
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) now() time.Time { return c.Now().UTC().Truncate(time.Microsecond) }

// message is a stranger's text as it is stored.
func message(text string) string { return outbox.Sanitize("", 0, text).Message }

// plainName is what providers call their meters.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

// name is a provider's name as it is stored: whole, or not at all.
func name(text string) string {
	if plainName.MatchString(text) {
		return text
	}
	return ""
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Check fails as [Run] does if the request breaks a rule.
func (r Request) Check(m exporter.Manifest) error {
	if !m.ReadBack.Sums {
		return &sdk.Error{Tag: sdk.TagUnsupported, Code: "no_read_back", Field: "exporter", Rule: "an exporter whose provider can be asked for sums"}
	}
	if err := r.Act.Check(); err != nil {
		return err
	}
	grain := max(m.ReadBack.Granularity, time.Microsecond)
	switch {
	case !aligned(r.From, grain):
		return sdk.Invalid("from", "a multiple of "+grain.String())
	case !aligned(r.To, grain):
		return sdk.Invalid("to", "a multiple of "+grain.String())
	case !r.From.Before(r.To):
		return sdk.Invalid("to", "after from")
	case r.Step < 0 || r.Step%grain != 0:
		return sdk.Invalid("step", "a multiple of "+grain.String())
	case r.Step > 0 && r.To.Sub(r.From)/r.Step >= stretchesMax:
		return sdk.Invalid("step", "at most 1000 stretches")
	}
	return nil
}

// aligned reports whether t is a multiple of grain since the epoch.
func aligned(t time.Time, grain time.Duration) bool {
	us := grain.Microseconds()
	return t.Nanosecond()%1000 == 0 && (us == 0 || t.UnixMicro()%us == 0)
}

// stretches cuts the request's time.
func (r Request) stretches() [][2]time.Time {
	if r.Step == 0 {
		return [][2]time.Time{{r.From.UTC(), r.To.UTC()}}
	}
	var out [][2]time.Time
	for from := r.From.UTC(); from.Before(r.To); {
		us := r.Step.Microseconds()
		floor := from.UnixMicro() - ((from.UnixMicro()%us)+us)%us
		to := time.UnixMicro(floor + us).UTC()
		if to.After(r.To) {
			to = r.To.UTC()
		}
		out = append(out, [2]time.Time{from, to})
		from = to
	}
	return out
}
