package providerdouble_test

import (
	"context"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/internal/providerdouble"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an exporter at a double, between the host's way out and the rules that
// decide what became of an item.
type rig struct {
	t        *testing.T
	manifest exporter.Manifest
	plugin   exporter.Exporter
	client   *egress.Client
	now      time.Time
	items    map[string]*tracked
}

// tracked is what a store would know of an item.
type tracked struct {
	exporter.Item
	unresolved bool
	last       outbox.Decision
	code       string
}

// lab is what a test tells a rig.
type lab struct {
	build   exporter.New
	double  *providerdouble.Server
	config  exporter.Configuration
	secrets map[string]string
	now     time.Time
}

func newRig(t *testing.T, l lab) *rig {
	t.Helper()
	r := &rig{t: t, now: l.now, items: map[string]*tracked{}}
	plain := l.build(capability.Host{})
	var err error
	if r.manifest, err = plain.Describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := grant.Grant{Mode: "test", Capabilities: r.manifest.Capabilities, Endpoint: l.double.Host(), Secrets: map[string]grant.Secret{}}
	cfg := egress.Config{
		Plugin: r.manifest.Name, AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: l.double.Pool(),
		Secrets: map[string]egress.InjectedSecret{}, Answers: r.manifest.Answers, Records: r.manifest.Records,
		Concurrency: r.manifest.Concurrency, Now: func() time.Time { return r.now },
	}
	for _, s := range r.manifest.Secrets {
		g.Secrets[s.Name] = grant.NewSecret(l.secrets[s.Name])
		cfg.Secrets[s.Name] = egress.InjectedSecret{Scheme: s.Scheme, Header: s.Header, Prefix: s.Prefix, Value: g.Secrets[s.Name]}
	}
	if err := grant.Check(r.manifest, g); err != nil {
		t.Fatal(err)
	}
	cfg.Hosts = g.HostsFor(r.manifest)
	if r.client, err = egress.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.client.Close() })
	r.plugin = l.build(capability.Host{HTTP: r.client})
	if l.config.BaseURL == "" {
		l.config.BaseURL = l.double.URL()
	}
	if l.config.Mode == "" {
		l.config.Mode = "test"
	}
	if err := r.plugin.Configure(t.Context(), l.config); err != nil {
		t.Fatal(err)
	}
	return r
}

// add makes an item to send.
func (r *rig) add(change func(*exporter.Item)) string {
	r.t.Helper()
	id := strconv.Itoa(len(r.items) + 1)
	item := exporter.Item{
		ID: id, Identifier: "fencepost_item" + id, Kind: "event", Mode: "test", Customer: "cus_" + id, Feature: "calls", Value: "5",
		Timestamp: r.now, PeriodStart: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), PeriodEnd: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
	}
	if change != nil {
		change(&item)
	}
	if reason := outbox.Check(r.manifest, outbox.Destination{Account: item.Account, Mode: item.Mode}, item, r.now); reason != "" {
		r.t.Fatalf("the item is not sendable: %s", reason)
	}
	r.items[id] = &tracked{Item: item}
	return id
}

// deliver makes one attempt with items, and returns their states.
func (r *rig) deliver(ids ...string) []storage.ItemState {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	d := exporter.Delivery{Deadline: r.now.Add(10 * time.Second)}
	var covered []egress.CallItem
	for _, id := range ids {
		it := r.items[id]
		it.Attempt++
		d.Items = append(d.Items, it.Item)
		covered = append(covered, egress.CallItem{ID: id, Identifier: it.Identifier, Key: egress.KeyOf(r.manifest.Records, it.Item)})
	}
	ctx, call := r.client.Begin(ctx, covered)
	outcomes, err := r.plugin.Deliver(ctx, d)
	if err != nil {
		r.t.Fatal(err)
	}
	answers, foreign := outbox.Answers(ids, outcomes)
	if foreign != 0 {
		r.t.Fatalf("%d answers for other items", foreign)
	}
	exchanges := call.Exchanges()
	states := make([]storage.ItemState, len(ids))
	for i, id := range ids {
		it, seen := r.items[id], outbox.Look(exchanges[id])
		it.last = outbox.Decide(outbox.Observation{
			Said: answers[id].Said, Class: seen.Class, OpenBefore: seen.OpenBefore, Grade: outbox.GradeHost, Called: true,
			Unresolved: it.unresolved, Mendable: seen.Mendable || answers[id].Mendable, Attempts: it.Attempt, Budget: 20,
		})
		if it.last.Lied {
			r.t.Errorf("item %s: the plugin said %s, the host saw %s", id, answers[id].Said, seen.Class)
		}
		it.code = answers[id].Code
		it.unresolved = it.unresolved || it.last.MarkUnresolved
		states[i] = it.last.State
	}
	return states
}

// one makes one attempt with one item.
func (r *rig) one(id string, want storage.ItemState) *tracked {
	r.t.Helper()
	if got := r.deliver(id)[0]; got != want {
		r.t.Errorf("item %s: %s (%s %s), want %s", id, got, r.items[id].last.Code, r.items[id].code, want)
	}
	return r.items[id]
}
