// Package conformance holds what every exporter has to keep, as cases over
// encoded messages, so that an exporter in any language and behind any carrier
// is judged by the same ones. Package exportertest runs them as a Go test.
//
// The cases see what a plugin sends to the double of the host and what it
// answers. They do not see whether the provider counts as its documentation
// says, nor whether its answers are what [Provider.Answer] gives: passing is
// necessary, not sufficient. Lines that an exporter appends to a file are looked
// at as requests are; cases about statuses and addresses are skipped for it.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Caller is a plugin that runs. One of a host's carriers is one as it is.
type Caller interface {
	// Call performs one method. An Error message of the plugin is an error
	// that [Options.Payload] knows; any other error is a call without an
	// answer.
	Call(ctx context.Context, method uint32, request []byte) ([]byte, error)
	Close(ctx context.Context) error
}

// Refusal is the error of a [Caller] whose plugin answered with an Error
// message. The host's carriers have their own; see [Options.Payload].
type Refusal struct{ Payload []byte } //nolint:errname // what a plugin did, as in the carriers

// Error says how large the message is.
func (e *Refusal) Error() string { return fmt.Sprintf("an error message of %d bytes", len(e.Payload)) }

// SetupCall is a call that every instance of a plugin answers before others.
type SetupCall struct {
	Method  uint32
	Request []byte
}

// Options say what is judged.
type Options struct {
	// Open starts the plugin, with no state, on the double. A carrier with
	// several instances makes the calls of setup to each.
	Open func(ctx context.Context, double *Double, setup []SetupCall) (Caller, error)
	// Provider is what the plugin talks to.
	Provider Provider
	// Payload returns the Error message that an error of Call stands for.
	// Nil: errors are *Refusal.
	Payload func(error) ([]byte, bool)
	// Memory returns the bytes that a plugin holds. Nil: nobody knows, and
	// the case that needs it is skipped.
	Memory func(Caller) uint64
	// Seed repeats the random parts of a run; zero is a fixed one.
	Seed uint64
}

// Answer is what the provider is made to say of the items of a request.
type Answer string

// Answers of a provider.
const (
	Accept    Answer = "accept"
	Duplicate Answer = "duplicate" // it has these identifiers, with the same content
	Refuse    Answer = "refuse"    // nothing can mend it
	Mend      Answer = "mend"      // an operator can mend it
)

// Provider is how the provider of an exporter speaks.
type Provider struct {
	// Configuration is one that the exporter takes.
	Configuration exporter.Configuration
	// Nonsense are configurations, beside the suite's own, that it must not
	// take.
	Nonsense []exporter.Configuration
	// Mapping of a feature.
	Mapping map[string]string
	// Answer is the provider's answer about the items that a request covers;
	// false: this provider has no such answer.
	Answer func(a Answer, r capability.Request, items []exporter.Item) (capability.Response, bool)
	// Item changes the items that the suite makes, if the provider wants them
	// special. It must not look at anything but the item.
	Item func(*exporter.Item)
	// AnyBody is set if a success counts whatever its body says.
	AnyBody bool
	// Definite are statuses that decide over an item whatever the body says.
	Definite []int
	// PerAttempt are headers whose value changes with the attempt.
	PerAttempt []string
}

// Status is how a case ended.
type Status string

// The ends of a case.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result of one case.
type Result struct {
	Name     string
	Status   Status
	Messages []string
}

// Case is one thing that every exporter has to keep.
type Case struct {
	Name string
	// Rule is what it asks, as a sentence for the author.
	Rule string
	run  func(*trial)
}

// Cases returns all cases in the order in which they are best run.
func Cases() []Case {
	return slices.Concat(manifestCases(), configureCases(), itemCases(), requestCases(), outcomeCases(), wireCases(), longCases())
}

// Suite runs cases over one plugin. It is not for use from two goroutines.
type Suite struct {
	options  Options
	shared   *session
	manifest exporter.Manifest
}

// Start opens the plugin and reads its manifest. Close it.
func Start(ctx context.Context, o Options) (*Suite, error) {
	if o.Open == nil || o.Provider.Answer == nil {
		return nil, errors.New("conformance: Open and Provider.Answer are needed")
	}
	if o.Payload == nil {
		o.Payload = func(err error) ([]byte, bool) {
			if r, ok := errors.AsType[*Refusal](err); ok {
				return r.Payload, true
			}
			return nil, false
		}
	}
	s := &Suite{options: o}
	caller, err := o.Open(ctx, newDouble(1), nil)
	if err != nil {
		return nil, fmt.Errorf("open the plugin: %w", err)
	}
	defer func() { _ = caller.Close(ctx) }()
	answer, err := caller.Call(ctx, uint32(wirev1.MethodDescribe), nil)
	if err == nil {
		s.manifest, err = wirev1.DecodeManifest(answer)
	}
	if err != nil {
		return nil, fmt.Errorf("describe the plugin: %w", err)
	}
	return s, nil
}

// Manifest is what the plugin declared.
func (s *Suite) Manifest() exporter.Manifest { return s.manifest }

// Close ends the plugin.
func (s *Suite) Close(ctx context.Context) error {
	if s.shared == nil {
		return nil
	}
	shared := s.shared
	s.shared = nil
	return shared.caller.Close(ctx)
}

// stopped ends a case that cannot go on.
type stopped struct{}

// Run runs one case.
func (s *Suite) Run(ctx context.Context, c Case) (result Result) {
	t := &trial{suite: s, ctx: ctx, random: rand.New(rand.NewPCG(s.options.Seed, 1))} //nolint:gosec // repeatable on purpose
	defer func() {
		r := recover()
		if _, ours := r.(stopped); r != nil && !ours {
			t.failf("the call ended in a panic: %v", r)
		}
		for _, opened := range t.opened {
			_ = opened.caller.Close(ctx)
		}
		if s.shared != nil && s.shared.broken {
			_ = s.Close(ctx)
		}
		result = Result{Name: c.Name, Status: Passed, Messages: t.messages}
		switch {
		case t.failed:
			result.Status = Failed
			result.Messages = append(result.Messages, "the rule: "+c.Rule)
		case t.skipped:
			result.Status = Skipped
		}
	}()
	c.run(t)
	return result
}

// trial is one run of a case.
type trial struct {
	suite           *Suite
	ctx             context.Context //nolint:containedctx // of the run
	random          *rand.Rand
	messages        []string
	failed, skipped bool
	opened          []*session
}

// failf notes a failure and goes on; a few tell enough.
func (t *trial) failf(format string, args ...any) {
	t.failed = true
	if len(t.messages) < 10 {
		t.messages = append(t.messages, fmt.Sprintf(format, args...))
	}
}

func (t *trial) fatalf(format string, args ...any) {
	t.failf(format, args...)
	panic(stopped{})
}

func (t *trial) skipf(format string, args ...any) {
	t.skipped = true
	t.messages = append(t.messages, fmt.Sprintf(format, args...))
	panic(stopped{})
}

func (t *trial) provider() *Provider { return &t.suite.options.Provider }

// refusal returns the Error message behind an error of Call.
func (t *trial) refusal(err error) (*sdk.Error, bool) {
	payload, ok := t.suite.options.Payload(err)
	if !ok {
		return nil, false
	}
	e, bad := wirev1.DecodeError(payload)
	if bad != nil {
		t.failf("an Error message that does not parse: %v", bad)
		return nil, false
	}
	return e, true
}
