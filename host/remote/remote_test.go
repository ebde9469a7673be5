package remote_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/remote"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest/conformance"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// counting is an adapter that has counters and nothing else.
type counting struct {
	storage.CounterStore
	err error
}

func (counting) Describe() storage.Manifest {
	return storage.Manifest{Name: "counting", Version: "1", Capabilities: []storage.Capability{storage.Counters}}
}
func (counting) Ping(context.Context) error { return nil }
func (counting) Close() error               { return nil }

func (c counting) LoadCounter(ctx context.Context, k storage.CounterKey) (storage.Counter, error) {
	if c.err != nil {
		return storage.Counter{}, c.err
	}
	return storage.Counter{CounterKey: k}, ctx.Err()
}

// What the plugin does not declare is unsupported and costs no call, and who
// asks for its interface does not get it (B8, B9).
func TestUndeclaredIsNotCalled(t *testing.T) {
	t.Parallel()
	c := carryAdapter(counting{CounterStore: conformance.NewReference(time.Now)})
	a := open(t, c)
	if _, ok := storage.As[storage.CounterStore](a); !ok {
		t.Error("the declared interface is missing")
	}
	if _, ok := storage.As[storage.EventStore](a); ok {
		t.Error("an interface that the plugin lacks is offered")
	}
	if _, ok := storage.As[storage.HistoryStore](a); ok {
		t.Error("the other interface of the capability is offered")
	}
	before := c.called(0)
	_, err := a.RecordEvents(t.Context(), storage.RecordRequest{})
	if !errors.Is(err, sdk.ErrUnsupported) || !strings.Contains(err.Error(), "test") {
		t.Errorf("record: %v", err)
	}
	if _, err := a.LoadHistory(t.Context(), storage.HistoryKey{}); !errors.Is(err, sdk.ErrUnsupported) {
		t.Errorf("history: %v", err)
	}
	if _, err := a.MigrationStatus(t.Context()); !errors.Is(err, sdk.ErrUnsupported) {
		t.Errorf("migrations: %v", err)
	}
	if n := c.called(0); n != before {
		t.Errorf("%d calls", n-before)
	}
}

// A caller branches on the same error as if the adapter were linked in.
func TestErrorsKeepWhatTheySay(t *testing.T) {
	t.Parallel()
	for _, want := range []*sdk.Error{
		{Tag: sdk.TagInvalid, Field: "quantity", Rule: "at most 12 decimals", Index: 7},
		{Tag: sdk.TagConflict, Code: "routes_moved", Hint: "read again"},
		{Tag: sdk.TagUnavailable, Code: "overloaded"},
		{Tag: sdk.TagUnsupported, Code: "reversed"},
		{Tag: sdk.TagNotFound},
	} {
		a := open(t, carryAdapter(counting{err: fmt.Errorf("wrapped: %w", want)}))
		_, err := a.LoadCounter(t.Context(), storage.CounterKey{Tenant: "t"})
		got, ok := errors.AsType[*sdk.Error](err)
		if !ok || *got != *want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	a := open(t, carryAdapter(counting{err: errors.New("no tag")}))
	if _, err := a.LoadCounter(t.Context(), storage.CounterKey{}); sdk.TagOf(err) != sdk.TagUnavailable {
		t.Errorf("an error without a tag: %v", err)
	}
	long := &sdk.Error{Tag: sdk.TagInvalid, Code: strings.Repeat("c", 5000), Rule: strings.Repeat("r", 5000)}
	a = open(t, carryAdapter(counting{err: long}))
	if _, err := a.LoadCounter(t.Context(), storage.CounterKey{}); len(err.Error()) > 2000 {
		t.Errorf("a plugin writes %d bytes into our logs", len(err.Error()))
	}
}

// After a fault the outcome is unknown where the plugin had begun, and nothing
// happened where it had not. Both may be repeated.
func TestFaultsAreUnavailable(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		err  error
		code string
	}{
		{&carrier.Fault{Kind: carrier.KindTrap, Entered: true}, remote.CodeUnknownOutcome},
		{&carrier.Fault{Kind: carrier.KindDeadline, Entered: true, Err: context.DeadlineExceeded}, remote.CodeUnknownOutcome},
		{&carrier.Fault{Kind: carrier.KindClosed}, remote.CodeUnreached},
		{errors.New("what no carrier answers"), remote.CodeUnknownOutcome},
		{&carrier.PluginError{Payload: []byte{0xff}}, remote.CodeAnswer},
	} {
		c := carryAdapter(counting{})
		a := open(t, c)
		c.answer = func(m wirev1.Method, _, answer []byte, err error) ([]byte, error) {
			if m == storagev1.MethodClose {
				return answer, err
			}
			return nil, f.err
		}
		_, err := a.LoadCounter(t.Context(), storage.CounterKey{})
		got, ok := errors.AsType[*sdk.Error](err)
		if !ok || got.Tag != sdk.TagUnavailable || got.Code != f.code {
			t.Errorf("%v: %v", f.err, err)
		}
		if errors.Is(f.err, context.DeadlineExceeded) != errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: the cause is lost: %v", f.err, err)
		}
	}
}

// A call whose caller has gone is not made.
func TestEndedContextIsNotCalled(t *testing.T) {
	t.Parallel()
	c := carryAdapter(counting{})
	a := open(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := c.called(0)
	_, err := a.LoadCounter(ctx, storage.CounterKey{})
	if !errors.Is(err, sdk.ErrUnavailable) || !errors.Is(err, context.Canceled) || c.called(0) != before {
		t.Errorf("%d calls: %v", c.called(0)-before, err)
	}
}

// A plugin that was started again has no open store: it is opened as before, and
// the call is made.
func TestRestartOpensAgain(t *testing.T) {
	t.Parallel()
	store := conformance.NewReference(time.Now)
	var names []string
	c := carry(func(_ context.Context, _ capability.Host, o storage.Opening) (storage.Adapter, error) {
		names = append(names, o.DSN)
		return store, nil
	})
	a := open(t, c)
	sub := storage.Subscription{Tenant: "t", Plan: "p", Interval: storage.Month, Timezone: "UTC"}
	if _, err := a.PutSubscription(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	c.restart()
	got, err := a.Subscriptions(t.Context(), []string{"t"})
	if err != nil || len(got) != 1 || got[0].Revision != 1 {
		t.Errorf("%v: %+v", err, got)
	}
	if !slices.Equal(names, []string{"a store", "a store"}) {
		t.Errorf("opened as %q", names)
	}
}

// A plugin that comes back as another one is not used: nothing checked it.
func TestAnotherPluginAfterRestart(t *testing.T) {
	t.Parallel()
	next := storage.Adapter(conformance.NewReference(time.Now))
	c := carry(func(context.Context, capability.Host, storage.Opening) (storage.Adapter, error) { return next, nil })
	a := open(t, c)
	next = counting{}
	c.restart()
	_, err := a.LoadCounter(t.Context(), storage.CounterKey{})
	if got, ok := errors.AsType[*sdk.Error](err); !ok || got.Tag != sdk.TagUnavailable || got.Code != remote.CodeChanged {
		t.Error(err)
	}
}

// A plugin that never has its store open is not asked for ever, and a failed
// opening says that the call was not made, whatever the plugin calls it.
func TestNeverOpen(t *testing.T) {
	t.Parallel()
	c := carryAdapter(counting{})
	a := open(t, c)
	notOpen := &carrier.PluginError{Payload: wirev1.EncodeError(&sdk.Error{Tag: sdk.TagInvalid, Code: storagev1.CodeNotOpen})}
	c.answer = func(m wirev1.Method, _, answer []byte, err error) ([]byte, error) {
		if m == storagev1.MethodLoadCounter {
			return nil, notOpen
		}
		return answer, err
	}
	before := c.called(0)
	if _, err := a.LoadCounter(t.Context(), storage.CounterKey{}); !errors.Is(err, sdk.ErrUnavailable) || c.called(0)-before != 3 {
		t.Errorf("%d calls: %v", c.called(0)-before, err)
	}
	c.answer = func(m wirev1.Method, _, answer []byte, err error) ([]byte, error) {
		if m == storagev1.MethodLoadCounter {
			return nil, notOpen
		}
		if m == storagev1.MethodOpen {
			return nil, &carrier.PluginError{Payload: wirev1.EncodeError(sdk.Invalid("dsn", "a store"))}
		}
		return answer, err
	}
	if _, err := a.LoadCounter(t.Context(), storage.CounterKey{}); !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("a repeat that failed to open: %v", err)
	}
}

// What a plugin says of itself is checked before it is used.
func TestDescriptionIsChecked(t *testing.T) {
	t.Parallel()
	good := storagev1.Description{
		Manifest:   storage.Manifest{Name: "x", Capabilities: []storage.Capability{storage.Retention}},
		Operations: []int64{int64(storagev1.MethodPrune)},
	}
	for name, c := range map[string]struct {
		change func(d *storagev1.Description)
		ok     bool
	}{
		"as it is":    {func(*storagev1.Description) {}, true},
		"no name":     {func(d *storagev1.Description) { d.Manifest.Name = "" }, false},
		"a long name": {func(d *storagev1.Description) { d.Manifest.Name = strings.Repeat("n", 600) }, false},
		"a capability twice": {func(d *storagev1.Description) {
			d.Manifest.Capabilities = append(d.Manifest.Capabilities, storage.Retention)
		}, false},
		"of a later version": {func(d *storagev1.Description) { d.Manifest.Capabilities = append(d.Manifest.Capabilities, "teleport") }, true},
		"without its operation": {func(d *storagev1.Description) {
			d.Manifest.Capabilities = append(d.Manifest.Capabilities, storage.Counters)
		}, false},
		"an operation twice": {func(d *storagev1.Description) { d.Operations = append(d.Operations, d.Operations[0]) }, false},
		"a later operation":  {func(d *storagev1.Description) { d.Operations = append(d.Operations, 9999) }, true},
		"a number too large": {func(d *storagev1.Description) { d.Operations = append(d.Operations, 1<<40) }, false},
	} {
		d := good
		d.Manifest.Capabilities = slices.Clone(good.Manifest.Capabilities)
		d.Operations = slices.Clone(good.Operations)
		c.change(&d)
		told, err := storagev1.EncodeDescription(&d)
		if err != nil {
			t.Fatal(err)
		}
		p := carryAdapter(counting{})
		p.answer = func(m wirev1.Method, _, answer []byte, err error) ([]byte, error) {
			if m == storagev1.MethodOpen {
				return told, nil
			}
			return answer, err
		}
		a, err := remote.Open(t.Context(), remote.Config{Caller: p, Plugin: "test"})
		if (err == nil) != c.ok || (err != nil && sdk.TagOf(err) != sdk.TagUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !p.closed {
			t.Errorf("%s: the plugin is left running", name)
		}
		if a != nil {
			if a.Describe().Has("teleport") {
				t.Errorf("%s: a capability that nobody here knows", name)
			}
			_ = a.Close()
		}
	}
}

// A request that cannot be carried is refused before the call, as invalid: it
// would fail again.
func TestTooLargeRequest(t *testing.T) {
	t.Parallel()
	c := carryAdapter(conformance.NewReference(time.Now))
	a := open(t, c)
	before := c.called(0)
	_, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "t", EventID: strings.Repeat("e", wirev1.MaxMessage)})
	if got, ok := errors.AsType[*sdk.Error](err); !ok || got.Tag != sdk.TagInvalid || got.Code != remote.CodeRequest || c.called(0) != before {
		t.Error(err)
	}
	if _, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "t", EventID: "\xff"}); !errors.Is(err, sdk.ErrInvalid) || c.called(0) != before {
		t.Error(err)
	}
}

// Closing closes the store, then the carrier, once; later calls say so.
func TestClose(t *testing.T) {
	t.Parallel()
	c := carryAdapter(counting{})
	a, err := remote.Open(t.Context(), remote.Config{Caller: c, Plugin: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if c.called(storagev1.MethodClose) != 1 || !c.closed {
		t.Errorf("%d calls of close, closed %v", c.called(storagev1.MethodClose), c.closed)
	}
	before := c.called(0)
	if err := a.Ping(t.Context()); !errors.Is(err, sdk.ErrUnavailable) || c.called(0) != before {
		t.Error(err)
	}
}
