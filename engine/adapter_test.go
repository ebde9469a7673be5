package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// limited is an adapter that has every method and declares only some of it. A
// call to a method of an undeclared capability fails the test.
type limited struct {
	*sqlite.Adapter
	t        *testing.T
	declared []storage.Capability
}

func (l limited) Describe() storage.Manifest {
	return storage.Manifest{Name: "limited", Capabilities: l.declared}
}

func (l limited) StreamEvents(context.Context, storage.StreamQuery) (storage.EventPage, error) {
	l.t.Error("a method of an undeclared capability was called")
	return storage.EventPage{}, nil
}

// mute is an adapter without any capability interface.
type mute struct{ manifest storage.Manifest }

func (m mute) Describe() storage.Manifest { return m.manifest }
func (mute) Ping(context.Context) error   { return nil }
func (mute) Close() error                 { return nil }

// B8, B9: what is not declared is refused by the engine, by name, before any
// method is reached; so is what is declared and not there.
func TestUndeclaredCapabilitiesAreRefused(t *testing.T) {
	t.Parallel()
	f := open(t)
	all := []storage.Capability{storage.DurableEvents, storage.Subscriptions, storage.Outbox}
	for i, missing := range all {
		var rest []storage.Capability
		rest = append(append(rest, all[:i]...), all[i+1:]...)
		_, err := engine.New(engine.Config{Store: limited{f.store, t, rest}})
		tagIs(t, err, sdk.TagUnsupported, string(missing))
	}
	_, err := engine.New(engine.Config{Store: mute{}})
	tagIs(t, err, sdk.TagUnsupported, string(storage.DurableEvents))
	_, err = engine.New(engine.Config{Store: mute{storage.Manifest{Capabilities: all}}})
	tagIs(t, err, sdk.TagUnsupported, string(storage.DurableEvents))

	e := over(t, limited{f.store, t, all})
	_, err = e.Events(t.Context(), storage.StreamQuery{Limit: 1})
	tagIs(t, err, sdk.TagUnsupported, string(storage.EventStreaming))
	if _, err := e.Record(t.Context(), plain("a", "1")); err != nil {
		t.Errorf("recording needs no streaming: %v", err)
	}
}

// B48: every failure has a tag, and an answer that makes no sense is no
// success.
func TestStoresThatAnswerNonsense(t *testing.T) {
	t.Parallel()
	inserted := storage.UnitResult{Outcome: storage.Inserted, Entries: []storage.EntryResult{{EventID: "x", Feature: "tokens", Seq: 1}}}
	units := func(us ...storage.UnitResult) storage.RecordResult { return storage.RecordResult{Units: us} }
	for name, tc := range map[string]struct {
		answer storage.RecordResult
		err    error
		tag    sdk.Tag
		code   string
	}{
		"too few units":        {units(inserted), nil, sdk.TagUnavailable, "storage_answer"},
		"too many units":       {units(inserted, inserted, inserted), nil, sdk.TagUnavailable, "storage_answer"},
		"nothing at all":       {storage.RecordResult{}, nil, sdk.TagUnavailable, "storage_answer"},
		"no outcome":           {units(inserted, storage.UnitResult{}), nil, sdk.TagUnavailable, "storage_answer"},
		"an unknown outcome":   {units(inserted, storage.UnitResult{Outcome: "perhaps"}), nil, sdk.TagUnavailable, "storage_answer"},
		"no entry":             {units(inserted, storage.UnitResult{Outcome: storage.Inserted}), nil, sdk.TagUnavailable, "storage_answer"},
		"an error without tag": {storage.RecordResult{}, errors.New("socket closed"), sdk.TagUnavailable, "storage"},
		"stale for ever":       {storage.RecordResult{Stale: &storage.Stale{}}, nil, sdk.TagUnavailable, "routes_moving"},
		"a tagged error":       {storage.RecordResult{}, sdk.Unavailable("conflict_unresolved", nil), sdk.TagUnavailable, "conflict_unresolved"}, // B18
	} {
		f := open(t)
		e := over(t, &wrapped{Adapter: f.store, record: func(context.Context, storage.RecordRequest) (storage.RecordResult, error) {
			return tc.answer, tc.err
		}})
		for _, mode := range []storage.RecordMode{storage.Atomic, storage.Each} {
			res, err := e.RecordBatch(t.Context(), engine.Batch{Mode: mode, Inputs: inputsOf([]any{plain("a", "1"), plain("b", "1")})})
			if res != nil {
				t.Errorf("%s, %s: results %v", name, mode, res)
			}
			t.Log(name, mode)
			tagIs(t, err, tc.tag, tc.code)
		}
	}
}

// failing is a store whose reads fail.
type failing struct{ *sqlite.Adapter }

var errBroken = errors.New("the disk is on fire")

func (failing) LoadReceipt(context.Context, storage.ReceiptKey) (storage.Receipt, error) {
	return storage.Receipt{}, errBroken
}

func (failing) Subscriptions(context.Context, []string) ([]storage.Subscription, error) {
	return nil, errBroken
}

func (failing) Routes(context.Context) (storage.RouteSet, error) {
	return storage.RouteSet{}, errBroken
}

func TestStoresThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := open(t, withMeters(t, otherMeter))
	e := over(t, failing{f.store}, withMeters(t, otherMeter))
	_, err := e.Record(t.Context(), plain("a", "1"), plain("b", "1"))
	tagIs(t, err, sdk.TagUnavailable, "storage")
	_, err = e.RecordBatch(t.Context(), batchOf(completion(t, "1", 1, 1)))
	tagIs(t, err, sdk.TagUnavailable, "storage")
	if _, err = e.ApplyRoutes(t.Context(), nil); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if n := len(f.events()); n != 0 {
		t.Errorf("%d events", n)
	}
}
