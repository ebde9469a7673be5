package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Options say what to run and how. Open is required; every other zero value
// has a default. Options are not changed by a run.
type Options struct {
	// Open returns an adapter whose schema is in place. It is called once for
	// most cases together and, if Fresh is set, once more for each case that
	// needs the store to itself; an Open that always leads to the same store
	// is fine. The suite closes what it opened.
	Open func(ctx context.Context) (storage.Adapter, error)
	// Fresh says that the store was made for this run: nobody else uses it
	// and nothing in it is needed. Cases with global effects need it.
	Fresh bool
	// OneStore says that Open must not be called while what it returned
	// before is open: there is one store, and it can be opened once.
	OneStore bool
	// Beside opens the store that Open opened first once more, as another host
	// does: what an adapter keeps in order within one process is no proof of
	// what holds between two. An adapter whose store is one process's answers
	// the code store_locked. Default: nil, the races are of one process only.
	Beside func(ctx context.Context) (storage.Adapter, error)
	// Seed of the random cases. Default: random, and shown in the report.
	Seed uint64
	// Steps of the model test. Default: 400.
	Steps int
	// Rounds of the cases that look for races. Default: 30.
	Rounds int
	// Timeout of one case: for one that hangs, and far from what one takes on
	// a busy machine. Default: 10 min.
	Timeout time.Duration
	// Now is the clock that cases are timed with. Default: time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Seed == 0 {
		var b [6]byte
		_, _ = rand.Read(b[:]) // never fails since Go 1.24
		for _, c := range b {
			o.Seed = o.Seed<<8 | uint64(c)
		}
	}
	if o.Steps <= 0 {
		o.Steps = 400
	}
	if o.Rounds <= 0 {
		o.Rounds = 30
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Case is one thing that an adapter must do.
type Case struct {
	// Name is stable: "record/duplicate-is-answered".
	Name string `json:"name"`
	// Requirements are the numbers that it proves.
	Requirements []string `json:"requirements"`
	// Needs are the capabilities it uses; undeclared, it is skipped.
	Needs []storage.Capability `json:"needs,omitempty"`
	// Fresh: it has effects beyond its tenants.
	Fresh bool `json:"fresh,omitempty"`

	run func(r *run)
}

// Cases returns every case in the order in which a run takes them. The last
// one closes the store.
func Cases() []Case {
	groups := [][]Case{
		manifestCases(), recordCases(), receiptCases(), decimalCases(), totalsCases(), recordRaceCases(), streamCases(),
		subscriptionCases(), correctionCases(), correctionRuleCases(), correctionRaceCases(),
		counterCases(), bucketCases(), snapshotCases(), aggregateCases(), routeCases(), outboxCases(), claimCases(), transitionCases(),
		peopleCases(), dependencyCases(), settleCases(), hostCases(), windowCases(), reconcileCases(),
		deadlineCases(), modelCases(), projectionCases(), foldCases(), projectionRaceCases(), retentionCases(), lastCases(),
	}
	return slices.Concat(groups...)
}

// Suite is a run in progress. Its cases run one after another.
type Suite struct {
	opts     Options
	prefix   string
	adapter  storage.Adapter
	manifest storage.Manifest
	count    int
}

// Start opens the store for a run.
func Start(ctx context.Context, opts Options) (*Suite, error) {
	if opts.Open == nil {
		return nil, errors.New("conformance: Options.Open is required")
	}
	opts = opts.withDefaults()
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	s := &Suite{opts: opts, prefix: "conf-" + hex.EncodeToString(b[:])}
	adapter, err := opts.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	s.adapter, s.manifest = adapter, adapter.Describe()
	return s, nil
}

// Manifest is that of the adapter.
func (s *Suite) Manifest() storage.Manifest { return s.manifest }

// Seed is the seed in use.
func (s *Suite) Seed() uint64 { return s.opts.Seed }

// Close closes the adapter.
func (s *Suite) Close() error {
	if err := s.adapter.Close(); err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// Run runs one case. It never panics: what a case or the adapter panics with
// is a failure.
func (s *Suite) Run(ctx context.Context, c Case) Result {
	s.count++
	res := Result{Name: c.Name, Requirements: c.Requirements, Status: Passed}
	if why := s.skips(c); why != "" {
		res.Status, res.Messages = Skipped, []string{why}
		return res
	}
	start := s.opts.Now()
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	r := &run{
		ctx: ctx, opts: s.opts, store: s.adapter, manifest: s.manifest,
		prefix: fmt.Sprintf("%s-%03d", s.prefix, s.count),
	}
	if c.Fresh && !s.opts.OneStore {
		own, err := s.opts.Open(ctx)
		if err != nil {
			res.Status, res.Messages = Failed, []string{"open a store for this case: " + err.Error()}
			return res
		}
		defer func() {
			if err := own.Close(); err != nil {
				res.Status = Failed
				res.Messages = append(res.Messages, "close the store of this case: "+err.Error())
			}
		}()
		r.store = own
	}
	r.protect(func() { c.run(r) })
	for _, end := range r.after {
		if err := end(); err != nil {
			r.errorf("close what the case opened: %v", err)
		}
	}
	res.Messages = r.messages
	if len(r.messages) > 0 {
		res.Status = Failed
	}
	res.Duration = s.opts.Now().Sub(start)
	return res
}

func (s *Suite) skips(c Case) string {
	for _, need := range c.Needs {
		if !s.manifest.Has(need) {
			return "not declared: " + string(need)
		}
	}
	if c.Fresh && !s.opts.Fresh {
		return "has effects on the whole store: run it on a store made for it, and say so (fresh)"
	}
	return ""
}

// Run runs every case that match accepts, nil meaning all, and reports. each,
// if not nil, is told of every result as it comes. The error says why there is
// no report; a failed case is no error.
func Run(ctx context.Context, opts Options, match func(Case) bool, each func(Result)) (Report, error) {
	s, err := Start(ctx, opts)
	if err != nil {
		return Report{}, err
	}
	report := Report{Adapter: s.manifest, Seed: s.opts.Seed, Steps: s.opts.Steps, Rounds: s.opts.Rounds}
	for _, c := range Cases() {
		if match != nil && !match(c) {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		res := s.Run(ctx, c)
		report.add(res)
		if each != nil {
			each(res)
		}
	}
	if err := s.Close(); err != nil {
		return report, err
	}
	return report, ctx.Err() //nolint:wrapcheck // that of the caller
}
