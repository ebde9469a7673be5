package outpost

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/internal/redistest"
	"github.com/fencepost/fencepost/outpost/state"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait. Machines that run this are shared.
const patience = 60 * time.Second

// rig is an engine with its API, and a Redis.
type rig struct {
	*testing.T
	engine *engine.Engine
	store  *sqlite.Adapter
	server *httptest.Server
	redis  *redistest.Server
	up     atomic.Bool // the link
}

func newRig(t *testing.T) *rig {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "fencepost.db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	meters, err := meter.NewSet(measures())
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{
		Store: st, Meters: meters,
		Features: map[string]engine.Feature{"tokens": {Buckets: true, BucketDimensions: []string{"model"}}, "calls": {Buckets: true}},
		CreditMeters: []engine.CreditMeter{
			{Name: "tokens", Feature: "tokens"}, {Name: "big", Feature: "tokens", Filter: map[string]string{"model": "big"}}, {Name: "calls", Feature: "calls"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.ApplyRoutes(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Replay(t.Context(), engine.ReplayOptions{}); err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, engine: e, store: st, redis: redistest.Start(t)}
	r.server = httptest.NewServer(api.New(api.Config{Engine: e, Outbox: st, Ready: st.Ping}))
	r.up.Store(true)
	t.Cleanup(func() {
		r.server.Close()
		e.Close()
		_ = st.Close()
	})
	return r
}

func measures() []meter.Meter {
	return []meter.Meter{
		{Feature: "tokens", EventType: "llm", Aggregation: meter.Sum, Value: "$.tokens", Dimensions: map[string]string{"model": "$.model"}},
		{Feature: "calls", EventType: "llm", Aggregation: meter.Count},
	}
}

// client is one instance of the application.
func (r *rig) client(change func(*Config)) *Client {
	r.Helper()
	rc, err := state.Dial(r.redis.URL())
	if err != nil {
		r.Fatal(err)
	}
	cfg := Config{
		Redis: rc, Org: "acme", Server: r.server.URL, SnapshotTimeout: 10 * time.Second,
		Delivery: Delivery{Every: 20 * time.Millisecond, Base: time.Millisecond, Cap: 10 * time.Millisecond},
		link:     &direct{rig: r},
	}
	if change != nil {
		change(&cfg)
	}
	c, err := Open(r.Context(), cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			r.Error(err)
		}
		_ = rc.Close()
	})
	return c
}

// direct is a link that asks the engine in this process.
type direct struct{ rig *rig }

func (d *direct) settings() *settings {
	set, err := meter.NewSet(measures())
	if err != nil {
		d.rig.Fatal(err)
	}
	s := &settings{measures: set, reducers: map[string]reducer{}, byFeature: map[string][]reducer{}, meters: map[string]string{}}
	for _, x := range d.rig.engine.Reducers() {
		red := reducer{ID: x.ID, Definition: "d1", Feature: x.Feature, Function: state.Function(x.Function), Filter: x.Filter}
		s.reducers[x.ID] = red
		s.byFeature[x.Feature] = append(s.byFeature[x.Feature], red)
		for _, m := range x.Meters {
			s.meters[m] = x.ID
		}
	}
	return s
}

func (d *direct) run(ctx context.Context, h handler) {
	h.configure(d.settings())
	<-ctx.Done()
}

func (d *direct) interested([]state.Identity) {}

func (d *direct) ask(ctx context.Context, q question) (snapshot, error) {
	if !d.rig.up.Load() {
		return snapshot{}, errDown
	}
	in := engine.SnapshotQuery{Tenant: q.customer, Reducer: q.reducer, Bootstrap: q.bootstrap}
	if q.coldFloor != 0 {
		in.ColdFloor = time.UnixMicro(q.coldFloor).UTC()
	}
	for _, n := range q.ids {
		if kind, id, ok := state.ParseEventID(n); ok && kind == state.CloudEvent {
			in.Receipts = append(in.Receipts, id)
		}
	}
	s, err := d.rig.engine.Snapshot(ctx, in)
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code == "cold_regressed" {
		return snapshot{}, errRegressed
	}
	if err != nil {
		return snapshot{}, err
	}
	out := snapshot{version: s.Version, coldUntil: s.ColdUntil.UnixMicro(), totals: state.Aggregate{Count: s.Count, Sum: s.Sum}, credits: map[string]decimal.Decimal{}}
	if s.Min != nil && s.Max != nil {
		out.totals.Min, out.totals.Max, out.totals.Extremes = *s.Min, *s.Max, true
	}
	for _, c := range s.Credited {
		out.credits[c.Meter] = c.Amount
	}
	for _, id := range s.Receipts {
		out.confirmed = append(out.confirmed, state.EventID(state.CloudEvent, id))
	}
	return out, nil
}

func (r *rig) grant(meter, amount string) {
	r.Helper()
	r.grantAs("1", meter, amount)
}

func (r *rig) grantAs(id, meter, amount string) {
	r.Helper()
	c := storage.Credit{Tenant: "cus", Meter: meter, ID: id, Kind: storage.CreditGrant, Amount: decimal.MustParse(amount)}
	if _, err := r.engine.AddCredit(r.Context(), engine.CreditRequest{Credit: c}); err != nil {
		r.Fatal(err)
	}
}

func event(id, tokens, model string) Event {
	return Event{ID: id, Type: "llm", Customer: "cus", Data: json.RawMessage(`{"tokens":"` + tokens + `","model":"` + model + `"}`)}
}

func (r *rig) track(c *Client, e Event) {
	r.Helper()
	if err := c.Track(r.Context(), e); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) reads(c *Client, meter, want string) {
	r.Helper()
	got, err := c.Balance(r.Context(), "cus", meter)
	if err != nil || got.Balance.String() != want {
		r.Errorf("%s: %s from %s, %v; want %s", meter, got.Balance, got.Source, err, want)
	}
}

// until polls for what has to come.
func (r *rig) until(what string, holds func() bool) {
	r.Helper()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-deadline:
			r.Fatalf("never: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// stored is how many events the engine has.
func (r *rig) stored() int64 {
	r.Helper()
	b, err := r.engine.Balance(r.Context(), "cus", "calls")
	if err != nil {
		r.Fatal(err)
	}
	n, _, _ := b.Consumed.Small()
	return n
}

// C8, C9, C17, I2, I3, F11: what is tracked is read at once, on every instance, by
// each reducer; once delivered the engine has it, and both agree to the digit.
func TestTrackAndRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.grant("tokens", "1000")
	r.grant("calls", "10")
	a, b := r.client(nil), r.client(nil)
	r.reads(a, "tokens", "1000")
	r.reads(b, "big", "0")
	r.track(a, event("e1", "12.5", "big"))
	r.reads(a, "tokens", "987.5")
	r.reads(a, "big", "-12.5")
	r.reads(a, "calls", "9")
	r.track(a, event("e1", "12.5", "big")) // the same again
	r.track(b, event("e2", "0.000000000001", "small"))
	r.reads(b, "tokens", "987.499999999999")
	for _, c := range []*Client{a, b} {
		got, err := c.Fresh(t.Context(), "cus", "tokens")
		if err != nil || got.Balance.String() != "987.499999999999" {
			t.Errorf("%s, %v", got.Balance, err)
		}
	}
	r.until("delivered", func() bool { return r.stored() == 2 })
	for _, m := range []string{"tokens", "big", "calls"} {
		want, err := r.engine.Balance(t.Context(), "cus", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Client{a, b} {
			got, err := c.Fresh(t.Context(), "cus", m)
			if err != nil || !got.Balance.Equal(want.Balance) {
				t.Errorf("%s: %s, %v; the engine says %s", m, got.Balance, err, want.Balance)
			}
		}
	}
	if _, err := a.Balance(t.Context(), "cus", "nothing"); !errors.Is(err, ErrUnknownMeter) {
		t.Error(err)
	}
}

// F3, F2, C24, C-T9, C-T10: what the engine refuses is dropped alone and for
// certain; what it never answered about is dropped too, and may have been stored.
func TestDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.grant("tokens", "100")
	var mu sync.Mutex
	dropped := map[string]bool{}
	note := func(c *Config) {
		c.OnDropped = func(list []Event, certain bool) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range list {
				dropped[e.ID] = certain
			}
		}
		c.Delivery.MaxAttempts = 3
	}
	told := func(id string) (certain, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		certain, ok = dropped[id]
		return certain, ok
	}
	a := r.client(note)
	r.reads(a, "tokens", "100")
	// Another program recorded other content under this id.
	other := `[{"specversion":"1.0","id":"taken","source":"outpost","type":"llm","subject":"cus","data":{"tokens":"7","model":"m"}}]`
	res, err := r.server.Client().Post(r.server.URL+"/v1/events", batchMedia, strings.NewReader(other))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	r.track(a, event("taken", "1", "m"))
	r.track(a, event("good", "2", "m"))
	r.until("the refusal", func() bool { certain, ok := told("taken"); return ok && certain })
	r.until("the other one", func() bool { return r.stored() == 2 })
	if _, ok := told("good"); ok {
		t.Error("dropped with another event")
	}
	gone := r.client(func(c *Config) { note(c); c.Server = "http://127.0.0.1:1" })
	r.track(gone, event("lost", "4", "m"))
	r.until("the end of attempts", func() bool { certain, ok := told("lost"); return ok && !certain })
}

// C26, F5, F7, C-T31: without a snapshot nothing is read, and zero least of all.
func TestNotReady(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up.Store(false)
	a := r.client(func(c *Config) { c.SnapshotTimeout = 50 * time.Millisecond })
	r.track(a, event("e1", "1", "m"))
	if got, err := a.Balance(t.Context(), "cus", "tokens"); !errors.Is(err, ErrNotReady) || !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("%+v, %v", got, err)
	}
	r.up.Store(true)
	r.until("a snapshot", func() bool { _, err := a.Balance(t.Context(), "cus", "tokens"); return err == nil })
	r.reads(a, "tokens", "-1")
	r.redis.Kill()
	r.until("that nothing is vouched for", func() bool {
		_, err := a.Balance(t.Context(), "cus", "tokens")
		return errors.Is(err, ErrNotReady)
	})
	if err := a.Track(t.Context(), event("e2", "1", "m")); !errors.Is(err, ErrNotLocal) {
		t.Errorf("without Redis: %v", err)
	}
	r.until("delivered all the same", func() bool { return r.stored() == 2 }) // F6
}

// I1, F8, F49: two instances, a Redis that loses everything once: what is read is
// at no time more than the engine has left of what it was told, and equal at the
// end.
func TestNeverOptimistic(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.grant("calls", "1000000")
	const each = 150
	clients := []*Client{r.client(nil), r.client(nil)}
	var wg sync.WaitGroup
	var tracked atomic.Int64
	for n, c := range clients {
		wg.Go(func() {
			for i := range each {
				err := c.Track(t.Context(), event(strconv.Itoa(n)+"-"+strconv.Itoa(i), "1", "m"))
				if err != nil && !errors.Is(err, ErrNotLocal) {
					t.Error(err)
				}
				tracked.Add(1)
				if i%5 == 0 {
					floor := r.stored()
					got, err := c.Fresh(t.Context(), "cus", "calls")
					if err != nil {
						continue // not to know is no lie
					}
					if used, _, _ := got.Consumed.Small(); used < floor {
						t.Errorf("%d consumed here, the engine had %d before", used, floor)
					}
				}
				if n == 0 && i == each/2 {
					flush(t, r)
				}
			}
		})
	}
	wg.Wait()
	r.until("everything delivered", func() bool { return r.stored() == 2*each })
	for _, c := range clients {
		r.until("agreement", func() bool {
			got, err := c.Fresh(t.Context(), "cus", "calls")
			return err == nil && got.Consumed.String() == strconv.Itoa(2*each)
		})
	}
}

func flush(t *testing.T, r *rig) {
	t.Helper()
	o, err := redis.ParseURL(r.redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }()
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// Bad input is refused by field, and nothing is written or delivered.
func TestBadEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.client(nil)
	for field, change := range map[string]func(*Event){
		"subject":     func(e *Event) { e.Customer = "" },
		"type":        func(e *Event) { e.Type = "" },
		"data.tokens": func(e *Event) { e.Data = json.RawMessage(`{"tokens":"1e400"}`) },
		"data":        func(e *Event) { e.Data = json.RawMessage(`{`) },
		"id":          func(e *Event) { e.ID = string(slices.Repeat([]byte("x"), 125)) },
		"source":      func(e *Event) { e.Source = "a\x00b" },
	} {
		e := event("e1", "1", "m")
		change(&e)
		if err := a.Track(t.Context(), e); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if r.stored() != 0 {
		t.Error("something was delivered")
	}
}
