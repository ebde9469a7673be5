package remote_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/remote"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/storagetest/conformance"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// liar is an adapter whose plugin answers every operation with the same bytes.
func liar(t *testing.T, told []byte) *remote.Adapter {
	t.Helper()
	c := carryAdapter(conformance.NewReference(time.Now))
	c.lie = &told
	return open(t, c)
}

func refused(err error) bool {
	e, ok := errors.AsType[*sdk.Error](err)
	return ok && e.Tag == sdk.TagUnavailable && e.Code == remote.CodeAnswer
}

// Bytes that are no message, and too many of them, are a typed error of every
// operation there is, and nothing reaches the caller (F38, F41).
func TestGarbage(t *testing.T) {
	t.Parallel()
	garbage := map[string][]byte{
		"cut off": {0x0a, 0x7f}, "endless": slices.Repeat([]byte{0xff}, 64), "a group": {0x0b}, "too large": make([]byte, wirev1.MaxMessage+1),
	}
	for name, told := range garbage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := liar(t, told)
			calls := 0
			for m := range reflect.TypeFor[*remote.Adapter]().Methods() {
				method := reflect.ValueOf(a).MethodByName(m.Name)
				if slices.Contains([]string{"Describe", "Implements", "Ping", "Close", "Migrate", "MigrationStatus"}, m.Name) {
					continue // of no operation, or not of the reference
				}
				args := []reflect.Value{reflect.ValueOf(t.Context())}
				for i := 1; i < method.Type().NumIn(); i++ {
					args = append(args, reflect.Zero(method.Type().In(i)))
				}
				results := method.Call(args)
				err, _ := reflect.TypeAssert[error](results[len(results)-1])
				if !refused(err) {
					t.Errorf("%s: %v", m.Name, err)
				}
				if len(results) == 2 && !results[0].IsZero() {
					t.Errorf("%s: the caller got %v", m.Name, results[0])
				}
				calls++
			}
			if calls < 50 {
				t.Errorf("only %d operations were tried", calls)
			}
		})
	}
}

// lie is what a plugin answers to one call.
type lie struct {
	name string
	told func(t *testing.T) []byte
	ask  func(t *testing.T, a *remote.Adapter) error
}

func tell[T any](encode func(*T) ([]byte, error), v T) func(*testing.T) []byte {
	return func(t *testing.T) []byte {
		t.Helper()
		b, err := encode(&v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// An answer that does not fit what was asked is a typed error and never a wrong
// answer (F42): too many or too few results, results of others, pages that are
// too long, out of order or go round in circles.
func TestLies(t *testing.T) {
	t.Parallel()
	for _, l := range slices.Concat(recordLies(), readLies(), outboxLies(), counterLies(), projectionLies()) {
		t.Run(strings.ReplaceAll(l.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if err := l.ask(t, liar(t, l.told(t))); !refused(err) {
				t.Errorf("taken: %v", err)
			}
		})
	}
}

func recordLies() []lie {
	event := func(id string) storage.Unit {
		return storage.Unit{Entries: []storage.Entry{{Event: storage.Event{Tenant: "t", EventID: id, Feature: "f"}}}}
	}
	result := func(o storage.Outcome, e ...storage.EntryResult) storage.UnitResult {
		return storage.UnitResult{Outcome: o, Entries: e}
	}
	a, b := storage.EntryResult{EventID: "a", Feature: "f", Seq: 1}, storage.EntryResult{EventID: "b", Feature: "f", Seq: 2}
	record := func(mode storage.RecordMode) func(*testing.T, *remote.Adapter) error {
		return func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.RecordEvents(t.Context(), storage.RecordRequest{Mode: mode, Units: []storage.Unit{event("a"), event("b")}})
			return err
		}
	}
	says := func(r ...storage.UnitResult) func(*testing.T) []byte {
		return tell(storagev1.EncodeRecordResult, storage.RecordResult{Units: r})
	}
	correct := func(t *testing.T, s *remote.Adapter) error {
		t.Helper()
		_, err := s.RecordCorrection(t.Context(), storage.CorrectRequest{Event: storage.Event{Tenant: "t", EventID: "c"}})
		return err
	}
	corrected := func(r storage.CorrectResult) func(*testing.T) []byte { return tell(storagev1.EncodeCorrectResult, r) }
	return []lie{
		{"one result for two events", says(result(storage.Inserted, a)), record(storage.Each)},
		{"three results for two events", says(result(storage.Inserted, a), result(storage.Inserted, b), result(storage.Inserted, b)), record(storage.Each)},
		{"results in another order", says(result(storage.Inserted, b), result(storage.Inserted, a)), record(storage.Each)},
		{"no outcome", says(result(storage.Inserted, a), result("")), record(storage.Each)},
		{"inserted without an entry", says(result(storage.Inserted), result(storage.Inserted, b)), record(storage.Each)},
		{"inserted without a seq", says(result(storage.Inserted, storage.EntryResult{EventID: "a", Feature: "f"}), result(storage.Inserted, b)), record(storage.Each)},
		{"a duplicate of another event", says(result(storage.Duplicate, b), result(storage.Inserted, b)), record(storage.Each)},
		{"inserted beside a conflict of all or nothing", says(result(storage.Conflict), result(storage.Inserted, b)), record(storage.Atomic)},
		{"nothing said of all or nothing without a conflict", says(result(""), result("")), record(storage.Atomic)},
		{
			"stale of nothing", tell(storagev1.EncodeRecordResult, storage.RecordResult{Stale: &storage.Stale{}}), record(storage.Each),
		},
		{
			"stale and written", tell(storagev1.EncodeRecordResult, storage.RecordResult{
				Stale: &storage.Stale{Routes: true}, Units: []storage.UnitResult{result(storage.Inserted, a)},
			}), record(storage.Each),
		},
		{"a correction of nothing said", corrected(storage.CorrectResult{}), correct},
		{"a correction refused and inserted", corrected(storage.CorrectResult{Refused: storage.RefusedPartial, Outcome: storage.Inserted}), correct},
		{"a correction refused for no known reason", corrected(storage.CorrectResult{Refused: "because"}), correct},
		{"another correction", corrected(storage.CorrectResult{Outcome: storage.Inserted, Correction: a}), correct},
		{"a replacement that was not asked for", corrected(storage.CorrectResult{
			Outcome: storage.Inserted, Correction: storage.EntryResult{EventID: "c", Seq: 1}, Replacement: &b,
		}), correct},
	}
}

func readLies() []lie {
	event := func(seq int64, id string) storage.Event {
		return storage.Event{Tenant: "t", EventID: id, Feature: "f", Seq: seq, Kind: storage.Usage}
	}
	stream := func(q storage.StreamQuery) func(*testing.T, *remote.Adapter) error {
		return func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.StreamEvents(t.Context(), q)
			return err
		}
	}
	page := func(p storage.EventPage) func(*testing.T) []byte { return tell(storagev1.EncodeEventPage, p) }
	totals := func(t *testing.T, s *remote.Adapter) error {
		t.Helper()
		_, err := s.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: "t"})
		return err
	}
	total := func(list ...storage.Total) func(*testing.T) []byte {
		return tell(storagev1.EncodeLoadTotalsAnswer, storagev1.LoadTotalsAnswer{Result: list})
	}
	aggregate := func(t *testing.T, s *remote.Adapter) error {
		t.Helper()
		_, err := s.Aggregate(t.Context(), storage.AggregateQuery{Tenant: "t", Feature: "f", Edges: []time.Time{noon, noon.Add(time.Hour)}, Limit: 2})
		return err
	}
	rows := func(list ...storage.AggregateRow) func(*testing.T) []byte {
		return tell(storagev1.EncodeAggregates, storage.Aggregates{Rows: list})
	}
	return []lie{
		{"another event", tell(storagev1.EncodeEvent, event(1, "b")), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.LoadEvent(t.Context(), storage.EventKey{Tenant: "t", EventID: "a"})
			return err
		}},
		{"totals of another tenant", total(storage.Total{Tenant: "u"}), totals},
		{"a total twice", total(storage.Total{Tenant: "t", Feature: "f"}, storage.Total{Tenant: "t", Feature: "f"}), totals},
		{"a page beyond its limit", page(storage.EventPage{Events: []storage.Event{event(1, "a"), event(2, "b")}, Next: 2}), stream(storage.StreamQuery{Limit: 1})},
		{"a page that goes back", page(storage.EventPage{Events: []storage.Event{event(5, "a")}, Next: 5}), stream(storage.StreamQuery{After: 5, Limit: 9})},
		{"an event twice in a page", page(storage.EventPage{Events: []storage.Event{event(1, "a"), event(1, "a")}, Next: 1}), stream(storage.StreamQuery{Limit: 9})},
		{"a cursor that skips", page(storage.EventPage{Events: []storage.Event{event(1, "a")}, Next: 7}), stream(storage.StreamQuery{Limit: 9})},
		{"a cursor that skips with a filter and more", page(storage.EventPage{Events: []storage.Event{event(1, "a")}, Next: 7, More: true}), stream(storage.StreamQuery{Limit: 9, Tenant: "t"})},
		{"a page that never ends", page(storage.EventPage{More: true}), stream(storage.StreamQuery{Limit: 9})},
		{"an event of another tenant", page(storage.EventPage{Events: []storage.Event{event(1, "a")}, Next: 1}), stream(storage.StreamQuery{Limit: 9, Tenant: "u"})},
		{"a window that was not asked for", rows(storage.AggregateRow{Window: 1}), aggregate},
		{"a window twice", rows(storage.AggregateRow{}, storage.AggregateRow{}), aggregate},
		{"a group that was not asked for", rows(storage.AggregateRow{Group: []*string{nil}}), aggregate},
		{"extremes that were not asked for", rows(storage.AggregateRow{Min: &decimal.Decimal{}}), aggregate},
		{"a subscription of another tenant", tell(storagev1.EncodeSubscriptionsAnswer, storagev1.SubscriptionsAnswer{Result: []storage.Subscription{{Tenant: "u"}}}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.Subscriptions(t.Context(), []string{"t"})
			return err
		}},
		{"a subscription twice", tell(storagev1.EncodeSubscriptionsAnswer, storagev1.SubscriptionsAnswer{Result: []storage.Subscription{{Tenant: "t"}, {Tenant: "t"}}}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.Subscriptions(t.Context(), []string{"t"})
			return err
		}},
	}
}

func outboxLies() []lie {
	claim := func(t *testing.T, s *remote.Adapter) error {
		t.Helper()
		_, err := s.Claim(t.Context(), storage.ClaimRequest{Owner: "w", Routes: []int64{1}, Limit: 1, Lease: time.Minute})
		return err
	}
	item := func(id, route int64) storage.ClaimedItem {
		return storage.ClaimedItem{
			ItemID: id, RouteID: route, LeaseToken: 1, Attempts: 1, Digest: storage.Hash{1},
			Identity: storage.Identity{Tenant: "t", SubjectKind: storage.SubjectEvent, SubjectRef: "a"}, Event: storage.Event{Tenant: "t", EventID: "a"},
		}
	}
	claims := func(c storage.Claim) func(*testing.T) []byte { return tell(storagev1.EncodeClaim, c) }
	other := item(1, 1)
	other.Event.EventID = "b"
	bare := item(1, 1)
	bare.Digest = storage.Hash{}
	move := func(t *testing.T, s *remote.Adapter) error {
		t.Helper()
		_, err := s.Transition(t.Context(), []storage.Transition{{ItemID: 1}, {ItemID: 2}})
		return err
	}
	moved := func(list ...storage.TransitionResult) func(*testing.T) []byte {
		return tell(storagev1.EncodeTransitionAnswer, storagev1.TransitionAnswer{Result: list})
	}
	return []lie{
		{"more items than asked for", claims(storage.Claim{Items: []storage.ClaimedItem{item(1, 1), item(2, 1)}}), claim},
		{"an item of another route", claims(storage.Claim{Items: []storage.ClaimedItem{item(1, 2)}}), claim},
		{"an item with another event", claims(storage.Claim{Items: []storage.ClaimedItem{other}}), claim},
		{"an item without its digest", claims(storage.Claim{Items: []storage.ClaimedItem{bare}}), claim},
		{"an item claimed and exhausted", claims(storage.Claim{Items: []storage.ClaimedItem{item(1, 1)}, Exhausted: []storage.Exhausted{{ItemID: 1, Code: "x"}}}), claim},
		{"moves of others", moved(storage.TransitionResult{ItemID: 1}, storage.TransitionResult{ItemID: 3}), move},
		{"moves in another order", moved(storage.TransitionResult{ItemID: 2}, storage.TransitionResult{ItemID: 1}), move},
		{"a move less", moved(storage.TransitionResult{ItemID: 1}), move},
		{"two rows for one item", moved(storage.TransitionResult{ItemID: 1, Rows: 2}, storage.TransitionResult{ItemID: 2}), move},
		{"another item", tell(storagev1.EncodeItemDetail, storage.ItemDetail{Item: storage.Item{ItemID: 2}}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.LoadItem(t.Context(), 1)
			return err
		}},
		{"an item in another state", tell(storagev1.EncodeItemPage, storage.ItemPage{Items: []storage.Item{{ItemID: 1, State: storage.Leased}}, Next: 1}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.ListItems(t.Context(), storage.ItemQuery{Limit: 9, State: storage.Pending})
			return err
		}},
		{"a route without its mapping", tell(storagev1.EncodeRouteSet, storage.RouteSet{Routes: []storage.Route{{ID: 1, MappingVersion: "v"}}}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.Routes(t.Context())
			return err
		}},
		{"a role held for another", tell(storagev1.EncodeHolding, storage.Holding{Held: true, Owner: "b"}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.Hold(t.Context(), "r", "a", time.Second)
			return err
		}},
		{"ids for other items", tell(storagev1.EncodeEnqueueAnswer, storagev1.EnqueueAnswer{Result: []int64{1, 2}}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.Enqueue(t.Context(), storage.EnqueueRequest{Items: []storage.NewItem{{}}})
			return err
		}},
	}
}

func counterLies() []lie {
	key := storage.CounterKey{Tenant: "t", Feature: "f", PeriodStart: noon}
	foreign := key
	foreign.Tenant = "u"
	flush := func(t *testing.T, s *remote.Adapter) error {
		t.Helper()
		_, err := s.FlushBatch(t.Context(), storage.FlushBatch{ID: "b", Counters: []storage.Counter{{CounterKey: key}}})
		return err
	}
	flushed := func(list ...storage.Counter) func(*testing.T) []byte {
		return tell(storagev1.EncodeFlushResult, storage.FlushResult{Applied: true, Counters: list})
	}
	return []lie{
		{"no counter for a batch of one", flushed(), flush},
		{"the counter of another tenant", flushed(storage.Counter{CounterKey: foreign}), flush},
		{"a counter of another tenant", tell(storagev1.EncodeCounter, storage.Counter{CounterKey: foreign, Value: decimal.One}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.LoadCounter(t.Context(), key)
			return err
		}},
		{"a cutover of another tenant", tell(storagev1.EncodeDecideCutoversAnswer, storagev1.DecideCutoversAnswer{Result: []storage.Cutover{{Tenant: "u", Feature: "f", DurableFrom: noon}}}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.DecideCutovers(t.Context(), []storage.Cutover{{Tenant: "t", Feature: "f", DurableFrom: noon}})
			return err
		}},
		{"a window of another counter", tell(storagev1.EncodeWindowResult, storage.WindowResult{Changed: true, ItemID: 1}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.StageWindow(t.Context(), storage.WindowStage{Key: storage.BoundKey{Tenant: "t"}})
			return err
		}},
	}
}

func projectionLies() []lie {
	return []lie{
		{"another generation", tell(storagev1.EncodeProjectionState, storage.ProjectionState{Active: 1}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.ActivateProjection(t.Context(), 2)
			return err
		}},
		{"a fold that stands still", tell(storagev1.EncodeProjectionFolded, storage.ProjectionFolded{Cursor: 5}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.FoldProjection(t.Context(), storage.ProjectionFold{After: 5, Limit: 10})
			return err
		}},
		{"more drained than asked for", tell(storagev1.EncodeDrainSeedAnswer, storagev1.DrainSeedAnswer{Result: 11}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.DrainSeed(t.Context(), 2, 10)
			return err
		}},
		{"more confirmed than reported", tell(storagev1.EncodeConfirmSumAnswer, storagev1.ConfirmSumAnswer{Result: 2}), func(t *testing.T, s *remote.Adapter) error {
			t.Helper()
			_, err := s.ConfirmSum(t.Context(), storage.SumConfirm{Expect: storage.ItemSum{ReportedItems: 1}})
			return err
		}},
	}
}

var _ carrier.Caller = (*inProcess)(nil)
