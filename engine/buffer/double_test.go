package buffer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/engine/buffer"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger is what a store would hold: batches applied by id, once.
type ledger struct {
	mu       sync.Mutex
	applied  map[string]storage.FlushBatch
	counters map[storage.CounterKey]decimal.Decimal
	history  map[storage.HistoryKey]decimal.Decimal
	calls    []storage.FlushBatch
	// answer decides before a batch is applied; late after it was.
	answer, late func(storage.FlushBatch) error
	storage.CounterStore
}

func newLedger() *ledger {
	return &ledger{
		applied: map[string]storage.FlushBatch{}, counters: map[storage.CounterKey]decimal.Decimal{},
		history: map[storage.HistoryKey]decimal.Decimal{},
	}
}

func (l *ledger) FlushBatch(_ context.Context, b storage.FlushBatch) (storage.FlushResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, b)
	if l.answer != nil {
		if err := l.answer(b); err != nil {
			return storage.FlushResult{}, err
		}
	}
	if _, before := l.applied[b.ID]; !before {
		l.applied[b.ID] = b
		for _, k := range b.Counters {
			l.counters[k.CounterKey] = l.counters[k.CounterKey].Add(k.Value)
		}
		for _, h := range b.History {
			l.history[h.HistoryKey] = l.history[h.HistoryKey].Add(h.Value)
		}
	}
	if l.late != nil {
		if err := l.late(b); err != nil {
			return storage.FlushResult{}, err
		}
	}
	return storage.FlushResult{}, nil
}

// total is the sum of one feature of one tenant, over periods and over history.
func (l *ledger) total(tenant, feature string) (counters, history string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var c, h decimal.Decimal
	for k, v := range l.counters {
		if k.Tenant == tenant && k.Feature == feature {
			c = c.Add(v)
		}
	}
	for k, v := range l.history {
		if k.Tenant == tenant && k.Feature == feature {
			h = h.Add(v)
		}
	}
	return c.String(), h.String()
}

var noon = time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)

// rig is counters over a ledger, on a clock that a test moves.
type rig struct {
	*buffer.Counters
	ledger    *ledger
	now       atomic.Pointer[time.Time]
	ids       atomic.Int64
	revision  atomic.Int64
	calendars []period.Calendar // by revision
	log       *lines
}

func newRig(t *testing.T, change ...func(*buffer.Config)) *rig {
	t.Helper()
	r := &rig{ledger: newLedger(), calendars: make([]period.Calendar, 1), log: &lines{}}
	r.set(noon)
	cfg := buffer.Config{
		Store: r.ledger, Now: func() time.Time { return *r.now.Load() }, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		NewID: func() string { return fmt.Sprint("b", r.ids.Add(1)) }, Owner: "h1",
		Slot: func(_ context.Context, tenant, feature string, at time.Time) (buffer.Slot, error) {
			if feature == "events" {
				return buffer.Slot{}, sdk.Invalid("feature", "a feature whose source is buffered")
			}
			rev := r.revision.Load()
			return buffer.Slot{Period: r.calendars[rev].At(at), Revision: rev, Signed: feature == "signed"}, nil
		},
		Revisions: func(_ context.Context, tenants []string) (map[string]int64, error) {
			out := map[string]int64{}
			for _, t := range tenants {
				out[t] = r.revision.Load()
			}
			return out, nil
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	r.Counters = buffer.New(cfg)
	return r
}

func (r *rig) set(now time.Time) { r.now.Store(&now) }

func (r *rig) track(t testing.TB, tenant, feature, quantity string) {
	t.Helper()
	if err := r.Track(t.Context(), tenant, feature, decimal.MustParse(quantity)); err != nil {
		t.Fatalf("Track(%s, %s, %s): %v", tenant, feature, quantity, err)
	}
}

func (r *rig) flush(t testing.TB) {
	t.Helper()
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// holds fails unless the ledger has that total, in counters and in history.
func (r *rig) holds(t *testing.T, tenant, feature, want string) {
	t.Helper()
	if c, h := r.ledger.total(tenant, feature); c != want || h != want {
		t.Errorf("%s/%s: counters %s, history %s, want %s", tenant, feature, c, h, want)
	}
}

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

var errDown = sdk.Unavailable("down", errors.New("no answer"))
