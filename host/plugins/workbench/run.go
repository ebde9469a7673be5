package workbench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/plugins"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Trial is one delivery by an exporter. Nothing is sent unless Live is set: by
// default every request is answered with "not sent".
type Trial struct {
	Artifact Artifact
	Input    Input
	// Isolation is where it runs; empty: where a server would run it, or inproc
	// if time and chance have to be the same again.
	Isolation grant.Isolation

	// At most one of these answers the requests.
	Provider *conformance.Declared // as the provider answers, with Say
	Say      conformance.Answer
	Replay   *Conversation
	Live     *Live

	// Record has the conversation put into the report.
	Record bool
}

// Live is what really sending needs.
type Live struct {
	Secrets      map[string]grant.Secret
	CAFile       string
	AllowPrivate []netip.Prefix
}

// Report is what came of a trial.
type Report struct {
	Plugin    string          `json:"plugin"`
	Version   string          `json:"version"`
	Isolation grant.Isolation `json:"isolation"`
	Answered  string          `json:"answered"` // by nobody, the provider's file, the conversation, the provider
	Requests  []Sent          `json:"requests"`
	Outcomes  []Outcome       `json:"outcomes"`
	Log       []LogLine       `json:"log,omitempty"`
	// Problems say what does not agree: with the conversation, or the plugin's
	// word with what the host saw.
	Problems     []string      `json:"problems"`
	Conversation *Conversation `json:"-"`
}

// Sent is a request, as the plugin asked for it, with what the host adds in its
// place, and what the plugin was told.
type Sent struct {
	Request
	// Refused is the rule for which the host does not send it.
	Refused string `json:"refused,omitempty"`
	Why     string `json:"why,omitempty"`
	Answer  Answer `json:"answer"`
}

// LogLine is what the plugin wrote to the host's log.
type LogLine struct {
	Level string `json:"level"`
	Line  string `json:"line"`
}

// Outcome is what the plugin says of an item, and what the host saw of it.
type Outcome struct {
	Item        string               `json:"item"`
	Kind        exporter.OutcomeKind `json:"kind"`
	Code        string               `json:"code,omitempty"`
	Message     string               `json:"message,omitempty"`
	ProviderRef string               `json:"provider_ref,omitempty"`
	RetryAfter  string               `json:"retry_after,omitempty"`
	Mendable    bool                 `json:"mendable,omitempty"`
	// Saw are the classes of the item's exchanges, in order.
	Saw []exporter.HostClass `json:"saw,omitempty"`
}

// trialTime bounds a delivery that is tried.
const trialTime = 30 * time.Second

// bench runs one trial.
type bench struct {
	trial    Trial
	world    *world
	manifest exporter.Manifest
	client   *egress.Client
	call     *egress.Call

	mu       sync.Mutex
	requests []Sent
	recorded []Exchange
	lines    []LogLine
	player   *player
}

// Try delivers the input's items once. An error means that there was no delivery:
// the plugin does not load, or does not take the configuration.
func (m Machine) Try(ctx context.Context, t Trial) (*Report, error) {
	if t.Artifact.Manifest.Kind != grant.KindExporter {
		return nil, sdk.Invalid("file", "an exporter; "+t.Artifact.Manifest.Name+" is of kind "+string(t.Artifact.Manifest.Kind))
	}
	b := &bench{trial: t}
	conversation, err := b.begin(m)
	if err != nil {
		return nil, err
	}
	if t.Isolation == "" {
		b.trial.Isolation = m.isolations(t.Artifact)[0]
		if conversation != nil && !t.Artifact.Native {
			b.trial.Isolation = grant.InProcess
		}
	}
	configure := wirev1.EncodeConfiguration(t.Input.Configuration)
	acts := carrier.Host{HTTPSend: b.send, AppendSend: noAppend, SQLDo: noSQL, Log: b.log}
	if b.world != nil {
		acts.Now, acts.Random = b.world.Now, b.world
	}
	caller, err := m.open(ctx, t.Artifact, seat{
		isolation: b.trial.Isolation, acts: acts, setup: []carrier.SetupCall{{Method: uint32(wirev1.MethodConfigure), Request: configure}},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = caller.Close(context.WithoutCancel(ctx)) }()
	if err := b.describe(ctx, caller); err != nil {
		return nil, err
	}
	defer func() { _ = b.client.Close() }()
	return b.deliver(ctx, caller)
}

// log is the log capability.
func (b *bench) log(_ context.Context, level capability.Level, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, LogLine{Level: slog.Level(level).String(), Line: line})
}

func noAppend(context.Context, []byte) ([]byte, error) {
	return nil, errors.New("nothing is written for a plugin that is tried")
}

func noSQL(context.Context, []byte) ([]byte, error) {
	return nil, errors.New("there is no database for a plugin that is tried")
}

// begin prepares what answers, and time and chance if they have to be the same
// again.
func (b *bench) begin(m Machine) (*Conversation, error) {
	t := &b.trial
	c := t.Replay
	if c == nil && t.Record {
		seed := make([]byte, 32)
		if _, err := rand.Read(seed); err != nil {
			return nil, fmt.Errorf("random seed: %w", err)
		}
		c = &Conversation{Started: epoch(), Seed: hex.EncodeToString(seed)}
		if t.Live != nil {
			c.Started = m.now().UTC().Truncate(time.Second)
		}
	}
	if c == nil {
		return nil, nil
	}
	random, err := c.random()
	if err != nil {
		return nil, err
	}
	b.world = &world{now: c.Started, random: random}
	if t.Replay != nil {
		b.player = &player{exchanges: c.Exchanges}
	}
	b.trial.Replay = c // of a recording: what it begins with
	return c, nil
}

// describe reads the manifest, and opens the way out as a server would.
func (b *bench) describe(ctx context.Context, caller carrier.Caller) error {
	a := b.trial.Artifact
	answer, err := caller.Call(ctx, uint32(wirev1.MethodDescribe), nil)
	if err != nil {
		return callError("describe or configure", a, err)
	}
	if b.manifest, err = wirev1.DecodeManifest(answer); err != nil {
		return sdk.Invalid("plugin "+a.Manifest.Name, "describes itself in this host's version: "+grant.Sanitize(err.Error()))
	}
	if err := plugins.Agree(a.Manifest, b.manifest); err != nil {
		return err
	}
	for i, it := range b.trial.Input.Items {
		for _, key := range b.manifest.MappingKeys {
			if it.Mapping[key] == "" {
				return sdk.Invalid(fmt.Sprintf("input.items[%d].mapping", i), "has the key "+key)
			}
		}
	}
	if n := len(b.trial.Input.Items); b.manifest.MaxBatch > 0 && n > b.manifest.MaxBatch {
		return sdk.Invalid("input.items", fmt.Sprintf("at most %d: the plugin takes no more at once", b.manifest.MaxBatch))
	}
	return b.openEgress()
}

func (b *bench) openEgress() error {
	g := grant.Grant{
		Mode: b.trial.Input.Configuration.Mode, Capabilities: b.trial.Artifact.Manifest.Capabilities,
		Hosts: b.trial.Artifact.Manifest.Hosts, Secrets: map[string]grant.Secret{},
	}
	for _, s := range b.manifest.Secrets {
		g.Secrets[s.Name] = hidden(s, g.Mode)
	}
	if base := b.trial.Input.Configuration.BaseURL; base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "https" || u.Host == "" {
			return sdk.Invalid("base_url", "an https URL")
		}
		if g.Endpoint = u.Host; u.Port() == "" {
			g.Endpoint += ":443"
		}
	}
	cfg := egress.Config{
		Plugin: b.manifest.Name, Secrets: map[string]egress.InjectedSecret{}, Answers: b.manifest.Answers,
		Records: b.manifest.Records, Rate: b.manifest.Rate, Concurrency: b.manifest.Concurrency,
	}
	if live := b.trial.Live; live != nil {
		g.Secrets, g.AllowPrivate = live.Secrets, live.AllowPrivate
		cfg.AllowPrivate = live.AllowPrivate
		if live.CAFile != "" {
			pool, err := egress.LoadCAFile(live.CAFile)
			if err != nil {
				return fmt.Errorf("ca_file: %w", err)
			}
			cfg.RootCAs = pool
		}
	}
	if err := grant.Check(b.manifest, g); err != nil {
		return err
	}
	cfg.Hosts = g.HostsFor(b.manifest)
	if len(cfg.Hosts) == 0 {
		cfg.Hosts = []string{"nowhere.invalid"} // it names none: whatever it asks for is refused
	}
	for _, s := range b.manifest.Secrets {
		cfg.Secrets[s.Name] = egress.InjectedSecret{Scheme: s.Scheme, Header: s.Header, Prefix: s.Prefix, Value: g.Secrets[s.Name]}
	}
	var err error
	b.client, err = egress.New(cfg)
	return err
}

// hidden stands for a secret where nothing is sent.
func hidden(s exporter.Secret, mode string) grant.Secret {
	prefix := ""
	for _, p := range map[string][]string{"test": s.TestPrefixes, "live": s.LivePrefixes}[mode] {
		prefix = p
	}
	switch s.Scheme {
	case exporter.SecretAWS:
		return grant.NewSecret("AKIAHIDDENHIDDEN:hidden-hidden-hidden-hidden-hidden-hidden")
	case exporter.SecretWebhook:
		return grant.NewSecret("whsec_aGlkZGVuaGlkZGVuaGlkZGVuaGlkZGVuaGlkZGVu")
	case exporter.SecretHeader:
	}
	return grant.NewSecret(prefix + "hidden-hidden-hidden")
}

func (b *bench) deliver(ctx context.Context, caller carrier.Caller) (*Report, error) {
	in, a := b.trial.Input, b.trial.Artifact
	covered := make([]egress.CallItem, len(in.Items))
	for i, it := range in.Items {
		covered[i] = egress.CallItem{ID: it.ID, Identifier: covers(it), Key: egress.KeyOf(b.manifest.Records, it)}
	}
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	ctx, b.call = b.client.Begin(ctx, covered)
	deadline, _ := ctx.Deadline()
	if b.world != nil {
		deadline = b.trial.Replay.Started.Add(trialTime)
	}
	answer, err := caller.Call(ctx, uint32(wirev1.MethodDeliver), wirev1.EncodeDelivery(exporter.Delivery{Items: in.Items, Deadline: deadline}))
	if err != nil {
		return nil, callError("deliver", a, err)
	}
	outcomes, err := wirev1.DecodeOutcomes(answer)
	if err != nil {
		return nil, sdk.Invalid("plugin "+a.Manifest.Name, "answers outcomes that parse: "+grant.Sanitize(err.Error()))
	}
	r := &Report{
		Plugin: a.Manifest.Name, Version: a.Manifest.Version, Isolation: b.trial.Isolation, Answered: b.answeredBy(),
		Requests: nonNil(b.requests), Problems: []string{}, Outcomes: []Outcome{}, Log: b.lines,
	}
	b.judge(r, outcomes, b.call.Exchanges())
	if b.player != nil {
		r.Problems = append(r.Problems, b.player.end()...)
	}
	if b.trial.Record {
		r.Conversation = &Conversation{Started: b.trial.Replay.Started, Seed: b.trial.Replay.Seed, Exchanges: nonNil(b.recorded)}
	}
	return r, nil
}

// covers is the identifier that a request about the item has to contain.
func covers(it exporter.Item) string {
	if it.Corrects != nil && it.Corrects.Method == exporter.CorrectCancel {
		return it.Corrects.Identifier
	}
	return it.Identifier
}

func (b *bench) answeredBy() string {
	switch {
	case b.player != nil:
		return "the conversation"
	case b.trial.Provider != nil:
		return "the provider's file: " + string(b.trial.Say)
	case b.trial.Live != nil:
		return "the provider"
	}
	return "nobody: nothing was sent"
}

// callError is the error of a call that has no answer, or an error for one.
func callError(what string, a Artifact, err error) error {
	if refused, ok := errors.AsType[*carrier.PluginError](err); ok {
		if e, bad := wirev1.DecodeError(refused.Payload); bad == nil {
			c := *e
			c.Field = grant.Sanitize(or(c.Field, "plugin "+a.Manifest.Name))
			c.Rule, c.Hint = grant.Sanitize(c.Rule), grant.Sanitize(c.Hint)
			return &c
		}
	}
	return &sdk.Error{
		Tag: sdk.TagInvalid, Code: "plugin_broke_off", Field: "plugin " + a.Manifest.Name + " version " + a.Manifest.Version,
		Rule: "answers " + what, Err: err,
	}
}

// judge puts what the plugin says beside what the host saw.
func (b *bench) judge(r *Report, outcomes []exporter.ItemOutcome, saw map[string][]exporter.Exchange) {
	for i, s := range r.Requests {
		if s.Refused != "" {
			r.Problems = append(r.Problems, fmt.Sprintf("request %d: the host refuses it: %s", i+1, s.Refused))
		}
	}
	answered := map[string]int{}
	for _, o := range outcomes {
		answered[o.ItemID]++
		out := Outcome{
			Item: o.ItemID, Kind: o.Kind, Code: o.Code, Message: grant.Sanitize(o.Message), ProviderRef: o.ProviderRef, Mendable: o.Mendable,
		}
		if o.RetryAfter != 0 {
			out.RetryAfter = o.RetryAfter.String()
		}
		for _, x := range saw[o.ItemID] {
			out.Saw = append(out.Saw, x.Class)
		}
		// Where nobody answered there is nothing to compare.
		answers := b.trial.Live != nil || b.trial.Provider != nil || b.player != nil
		if want := evidenceFor(o.Kind); answers && len(want) > 0 && !slices.ContainsFunc(want, func(c exporter.HostClass) bool { return slices.Contains(out.Saw, c) }) {
			r.Problems = append(r.Problems, fmt.Sprintf("item %s: the plugin says %s, and the host saw none of %v: it would be uncertain", o.ItemID, o.Kind, want))
		}
		r.Outcomes = append(r.Outcomes, out)
	}
	for _, it := range b.trial.Input.Items {
		if n := answered[it.ID]; n != 1 {
			r.Problems = append(r.Problems, fmt.Sprintf("item %s has %d outcomes: it would be uncertain", it.ID, n))
		}
	}
}

// evidenceFor lists what the host has to have seen before it believes an outcome.
func evidenceFor(k exporter.OutcomeKind) []exporter.HostClass {
	switch k {
	case exporter.Accepted, exporter.AcceptedEarlier:
		return []exporter.HostClass{exporter.ClassSuccess, exporter.ClassDuplicateOwn}
	case exporter.Rejected:
		return []exporter.HostClass{exporter.ClassRefused}
	case exporter.Retry, exporter.RateLimited, exporter.Conflict, exporter.Uncertain:
	}
	return nil
}
