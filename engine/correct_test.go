package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// scripted is a store whose corrections are a test's: what it answers, and what
// it was asked.
type scripted struct {
	*sqlite.Adapter
	declared []storage.Capability
	load     func(call int) (storage.Correctable, error)
	record   func(call int, req storage.CorrectRequest) (storage.CorrectResult, error)
	loads    int
	asked    []storage.CorrectRequest
}

func (s *scripted) Describe() storage.Manifest {
	m := s.Adapter.Describe()
	m.Capabilities = s.declared
	return m
}

func (s *scripted) LoadCorrectable(context.Context, storage.EventKey) (storage.Correctable, error) {
	s.loads++
	return s.load(s.loads)
}

func (s *scripted) RecordCorrection(_ context.Context, req storage.CorrectRequest) (storage.CorrectResult, error) {
	s.asked = append(s.asked, req)
	return s.record(len(s.asked), req)
}

func script(t *testing.T, change ...func(*engine.Config)) (*scripted, *engine.Engine) {
	t.Helper()
	s := &scripted{Adapter: open(t).store}
	s.declared = append(slices.Clone(s.Adapter.Describe().Capabilities), storage.Corrections)
	s.load = func(int) (storage.Correctable, error) { return correctable("10", "0"), nil }
	s.record = func(_ int, req storage.CorrectRequest) (storage.CorrectResult, error) {
		res := storage.CorrectResult{Outcome: storage.Inserted, Correction: storage.EntryResult{EventID: req.Event.EventID, Feature: "tokens", Seq: 7}}
		if r := req.Replacement; r != nil {
			res.Replacement = &storage.EntryResult{EventID: r.Event.EventID, Feature: r.Event.Feature, Seq: 8}
		}
		return res, nil
	}
	return s, over(t, s, change...)
}

// correctable is an event of acme an hour ago with two items.
func correctable(quantity, corrected string) storage.Correctable {
	day := noon.Truncate(24 * time.Hour)
	ev := storage.Event{
		Tenant: "acme", EventID: "req_1", Feature: "tokens", Quantity: decimal.MustParse(quantity), Kind: storage.Usage,
		OccurredAt: noon.Add(-time.Hour), PeriodStart: day, PeriodEnd: day.AddDate(0, 0, 1), Dimensions: map[string]string{"model": "m1"},
	}
	item := storage.Item{
		Identity: storage.Identity{Tenant: "acme", SubjectKind: storage.SubjectEvent, SubjectRef: "req_1", Exporter: "stripe", Account: "acct_1", Mode: "test", MappingVersion: "v1"},
		RouteID:  3, Customer: "cus_1", SerialKey: "key", State: storage.Pending,
	}
	other := item
	other.Identity.Exporter, other.State = "other", storage.Rejected
	return storage.Correctable{Original: ev, Corrected: decimal.MustParse(corrected), Items: []storage.Item{item, other}}
}

// take is a correction of req_1; an empty quantity is what is left.
func take(id, quantity string) engine.Correction {
	c := engine.Correction{ID: id, Tenant: "acme", EventID: "req_1", Remaining: quantity == ""}
	if quantity != "" {
		q := decimal.MustParse(quantity)
		c.Quantity = &q
	}
	return c
}

// B8, B9: a store that does not declare corrections is never asked for one, and
// neither is a transaction that has none.
func TestCorrectionsNeedTheCapability(t *testing.T) {
	t.Parallel()
	s, _ := script(t)
	s.declared = slices.DeleteFunc(s.declared, func(c storage.Capability) bool { return c == storage.Corrections })
	e := over(t, s)
	_, err := e.Correct(t.Context(), take("c", "1"))
	tagIs(t, err, sdk.TagUnsupported, string(storage.Corrections))
	if n := strings.Count(err.Error(), string(storage.Corrections)); n != 1 {
		t.Errorf("the capability is named %d times: %v", n, err)
	}
	_, err = e.Correctable(t.Context(), storage.EventKey{Tenant: "acme", EventID: "req_1"})
	tagIs(t, err, sdk.TagUnsupported, string(storage.Corrections))
	if s.loads+len(s.asked) != 0 {
		t.Error("a method of an undeclared capability was called")
	}
	s, e = script(t)
	_, err = e.In(plainTransaction{s.Adapter}).Correct(t.Context(), take("c", "1"))
	tagIs(t, err, sdk.TagUnsupported, string(storage.Corrections))
}

// plainTransaction is a transaction without corrections, whatever its adapter has.
type plainTransaction struct {
	engine.Transaction
}

// What the store is asked: the magnitude, the hash of the request and of what
// is stored, and the items, made of the original and never of today's routes.
func TestCorrectionAsAskedOfTheStore(t *testing.T) {
	t.Parallel()
	s, e := script(t)
	c := take("cor_1", "2.50")
	c.Reason, c.Metadata = "counted twice", []byte(` {"ticket": 7} `)
	res, err := e.Correct(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if res.Outcome != engine.Inserted || res.Seq != 7 || res.Quantity.String() != "2.5" || res.Replacement != nil {
		t.Errorf("%+v", res)
	}
	req := s.asked[0]
	ev := req.Event
	if ev.Kind != storage.Correction || ev.OriginalEventID != "req_1" || ev.Quantity.String() != "2.5" || string(ev.Metadata) != `{"reason":"counted twice","ticket": 7}` {
		t.Errorf("event %+v, metadata %s", ev, ev.Metadata)
	}
	if req.ExpectCorrected != nil || req.WholeOnly || req.Replacement != nil || req.Subscriptions != nil {
		t.Errorf("%+v", req)
	}
	of := correctable("10", "0").Original
	stored, err := canon.EventHash(storage.Event{ // S3
		Feature: "tokens", Quantity: ev.Quantity, OccurredAt: of.OccurredAt, Kind: storage.Correction, OriginalEventID: "req_1",
		Dimensions: of.Dimensions, Metadata: ev.Metadata,
	})
	if err != nil || ev.PayloadHash != stored {
		t.Errorf("payload hash %x, want %x", ev.PayloadHash, stored)
	}
	asked, err := c.DedupeHash()
	if err != nil || ev.DedupeHash != asked || ev.DedupeHash == ev.PayloadHash {
		t.Errorf("dedupe hash %x, want %x", ev.DedupeHash, asked)
	}
	// Q18, B32: one item for each of the original's, with its destination.
	if len(req.Items) != 2 {
		t.Fatalf("%d items, want 2", len(req.Items))
	}
	for i, want := range []string{"", "original_not_charged"} {
		it := req.Items[i]
		if it.QuarantineReason != want || it.Settled || it.RouteID != 3 || it.Customer != "cus_1" || it.SerialKey != "key" {
			t.Errorf("item %d: %+v", i, it)
		}
		if it.Identity.SubjectKind != storage.SubjectCorrection || it.Identity.SubjectRef != "cor_1" || it.Identity.MappingVersion != "v1" {
			t.Errorf("item %d: identity %+v", i, it.Identity)
		}
		if of := correctable("10", "0").Items[i]; it.DependsOn == nil || it.DependsOn.ItemID != of.ItemID || it.DependsOn.State != of.State || it.DependsOn.Wait != (want == "") {
			t.Errorf("item %d: depends on %+v", i, it.DependsOn)
		}
		const payload = `{"feature":"tokens","value":"-2.5","timestamp":"2026-11-30T11:00:00Z","period_start":"2026-11-30T00:00:00Z","period_end":"2026-12-01T00:00:00Z",` +
			`"corrects":{"identifier":"fencepost_0000000000000000000000000000000000000000000000000000000000000000","value":"10"}}`
		if string(it.Payload) != payload {
			t.Errorf("item %d: payload %s", i, it.Payload)
		}
	}
}

// Q7: what is left is computed from the original and checked under the lock; a
// negative original moves up.
func TestRemainingIsComputedAndChecked(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ quantity, corrected, want, payload string }{
		{"10", "0", "10", `"value":"-10"`},
		{"10", "2.5", "7.5", `"value":"-7.5"`},
		{"-10", "4", "6", `"value":"6"`},
		{"10", "10", "0", `"value":"0"`},
	} {
		s, e := script(t)
		s.load = func(int) (storage.Correctable, error) { return correctable(tc.quantity, tc.corrected), nil }
		if _, err := e.Correct(t.Context(), take("c", "")); err != nil {
			t.Fatal(err)
		}
		req := s.asked[0]
		if req.Event.Quantity.String() != tc.want || req.ExpectCorrected == nil || req.ExpectCorrected.String() != tc.corrected {
			t.Errorf("%+v: quantity %s, expecting %v", tc, req.Event.Quantity, req.ExpectCorrected)
		}
		if !strings.Contains(string(req.Items[0].Payload), tc.payload) {
			t.Errorf("%+v: %s", tc, req.Items[0].Payload)
		}
	}
}

// Whoever comes between the reading and the writing makes it read again, a
// bounded number of times.
func TestStaleCorrectionsAreComputedAgain(t *testing.T) {
	t.Parallel()
	s, e := script(t)
	s.load = func(call int) (storage.Correctable, error) {
		return correctable("10", itoa(int64(call))), nil
	}
	inserted := s.record
	s.record = func(call int, req storage.CorrectRequest) (storage.CorrectResult, error) {
		if call < 3 {
			return storage.CorrectResult{Stale: &storage.Stale{}}, nil
		}
		return inserted(call, req)
	}
	res, err := e.Correct(t.Context(), take("c", ""))
	if err != nil || res.Quantity.String() != "7" || len(s.asked) != 3 {
		t.Errorf("%+v, %v after %d tries", res, err, len(s.asked))
	}
	s.record = func(int, storage.CorrectRequest) (storage.CorrectResult, error) {
		return storage.CorrectResult{Stale: &storage.Stale{Routes: true, Tenants: []string{"acme"}}}, nil
	}
	_, err = e.Correct(t.Context(), take("d", "1"))
	tagIs(t, err, sdk.TagUnavailable, "original_moving")
	if len(s.asked) > 100 {
		t.Errorf("%d tries", len(s.asked))
	}
}

// B26, F02: an original that is not there is not the end: the correction may be
// known all the same. What appears meanwhile is corrected, not skipped.
func TestCorrectionOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	gone := func(int) (storage.Correctable, error) { return storage.Correctable{}, &sdk.Error{Tag: sdk.TagNotFound} }
	s, e := script(t)
	inserted := s.record
	s.load = gone
	s.record = func(int, storage.CorrectRequest) (storage.CorrectResult, error) {
		return storage.CorrectResult{Outcome: storage.Duplicate, Correction: storage.EntryResult{Seq: 5}}, nil
	}
	res, err := e.Correct(t.Context(), take("c", "1"))
	if err != nil || res.Outcome != engine.Duplicate || res.Seq != 5 || res.Quantity.String() != "1" {
		t.Errorf("%+v, %v", res, err)
	}
	if q := s.asked[0].Event.Quantity; !q.IsZero() || s.asked[0].Items != nil {
		t.Errorf("asked with quantity %s and items %v, which could write", q, s.asked[0].Items)
	}
	s.record = func(int, storage.CorrectRequest) (storage.CorrectResult, error) {
		return storage.CorrectResult{Refused: storage.RefusedNotFound}, nil
	}
	_, err = e.Correct(t.Context(), take("c", "1"))
	tagIs(t, err, sdk.TagNotFound, "original")
	fieldIs(t, err, "event_id")

	s, e = script(t)
	s.load = func(call int) (storage.Correctable, error) {
		if call == 1 {
			return gone(call)
		}
		return correctable("10", "0"), nil
	}
	s.record = func(call int, req storage.CorrectRequest) (storage.CorrectResult, error) {
		if call == 1 {
			return storage.CorrectResult{Refused: storage.RefusedNothingRemaining}, nil
		}
		return inserted(call, req)
	}
	if res, err := e.Correct(t.Context(), take("c", "1")); err != nil || res.Outcome != engine.Inserted || len(s.asked) != 2 || len(s.asked[1].Items) != 2 {
		t.Errorf("%+v, %v, asked %d times", res, err, len(s.asked))
	}
}

func fieldIs(t *testing.T, err error, field string) {
	t.Helper()
	all := meter.AsErrors(err)
	if len(all) == 0 || all[0].Field != field || all[0].Rule == "" {
		t.Errorf("%v: want field %s and a rule", err, field)
	}
}

// B29, B33, Q7, Q8: each refusal names field and rule.
func TestRefusedCorrections(t *testing.T) {
	t.Parallel()
	peak := meter.Meter{Feature: "tokens", EventType: "t", Aggregation: meter.Max, Value: "$.v"}
	for why, want := range map[string]struct {
		tag   sdk.Tag
		code  string
		field string
		c     engine.Correction
	}{
		storage.RefusedNotFound:         {sdk.TagNotFound, "original", "event_id", take("c", "1")},
		storage.RefusedNotUsage:         {sdk.TagInvalid, "not_usage", "event_id", take("c", "1")},
		storage.RefusedNothingRemaining: {sdk.TagInvalid, "nothing_remaining", "remaining", take("c", "")},
		storage.RefusedExceedsOriginal:  {sdk.TagInvalid, "exceeds_original", "quantity", take("c", "1")},
		storage.RefusedPartial:          {sdk.TagUnsupported, "partial", "quantity", take("c", "1")},
		"because":                       {sdk.TagUnavailable, "storage_answer", "", take("c", "1")},
	} {
		s, e := script(t, withMeters(t, peak))
		s.record = func(_ int, req storage.CorrectRequest) (storage.CorrectResult, error) {
			if !req.WholeOnly {
				t.Errorf("%s: a part of a maximum may be corrected", why)
			}
			return storage.CorrectResult{Refused: why}, nil
		}
		_, err := e.Correct(t.Context(), want.c)
		tagIs(t, err, want.tag, want.code)
		if want.field != "" {
			fieldIs(t, err, want.field)
		}
	}
}

// B48: a store's failure has a tag, and an answer that makes no sense is no
// success.
func TestStoresThatCorrectNonsense(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		res  storage.CorrectResult
		err  error
		code string
	}{
		"nothing":             {storage.CorrectResult{}, nil, "storage_answer"},
		"an unknown outcome":  {storage.CorrectResult{Outcome: "perhaps"}, nil, "storage_answer"},
		"both":                {storage.CorrectResult{Outcome: storage.Inserted, Refused: storage.RefusedNotFound}, nil, "storage_answer"},
		"a replacement":       {storage.CorrectResult{Outcome: storage.Inserted, Replacement: &storage.EntryResult{}}, nil, "storage_answer"},
		"an error":            {storage.CorrectResult{}, errors.New("socket closed"), "storage"},
		"a tagged error":      {storage.CorrectResult{}, sdk.Unavailable("conflict_unresolved", nil), "conflict_unresolved"}, // B30
		"an unknown deadline": {storage.CorrectResult{}, context.DeadlineExceeded, "storage"},
	} {
		s, e := script(t)
		s.record = func(int, storage.CorrectRequest) (storage.CorrectResult, error) { return tc.res, tc.err }
		_, err := e.Correct(t.Context(), take("c", "1"))
		t.Log(name)
		tagIs(t, err, sdk.TagUnavailable, tc.code)
	}
	s, e := script(t)
	s.load = func(int) (storage.Correctable, error) { return storage.Correctable{}, errBroken }
	_, err := e.Correct(t.Context(), take("c", "1"))
	tagIs(t, err, sdk.TagUnavailable, "storage")
}

// Bad input: field and rule, all of it at once, and no store is asked.
func TestBadCorrections(t *testing.T) {
	t.Parallel()
	s, e := script(t, withFeatures(map[string]engine.Feature{"seats": {Buffered: true}}))
	replacement := func(change func(*engine.Event)) func(*engine.Correction) {
		return func(c *engine.Correction) {
			ev := plain("req_2", "1")
			change(&ev)
			c.Quantity, c.Replace = nil, &ev
		}
	}
	for name, tc := range map[string]struct {
		change func(*engine.Correction)
		fields []string
	}{
		"nothing":              {func(c *engine.Correction) { *c = engine.Correction{} }, []string{"id", "tenant", "event_id", "quantity"}},
		"a reserved id":        {func(c *engine.Correction) { c.ID = "track:1" }, []string{"id"}},
		"a CloudEvent's id":    {func(c *engine.Correction) { c.ID = "ce:1:a" }, []string{"id"}},
		"a long id":            {func(c *engine.Correction) { c.ID = strings.Repeat("x", 129) }, []string{"id"}},
		"a NUL":                {func(c *engine.Correction) { c.ID = "a\x00" }, []string{"id"}},
		"a long event id":      {func(c *engine.Correction) { c.EventID = strings.Repeat("x", 129) }, []string{"event_id"}},
		"a very long event id": {func(c *engine.Correction) { c.EventID = "ce:" + strings.Repeat("x", 460) }, []string{"event_id"}},
		"its own id":           {func(c *engine.Correction) { c.EventID = c.ID }, []string{"id"}},
		"zero":                 {func(c *engine.Correction) { c.Quantity = &decimal.Decimal{} }, []string{"quantity"}},
		"below zero":           {func(c *engine.Correction) { q := c.Quantity.Neg(); c.Quantity = &q }, []string{"quantity"}},
		"27 digits":            {func(c *engine.Correction) { q, _ := decimal.ParseTotal("1" + strings.Repeat("0", 26)); c.Quantity = &q }, []string{"quantity"}},
		"a quantity and all":   {func(c *engine.Correction) { c.Remaining = true }, []string{"quantity"}},
		"a quantity and replace": {func(c *engine.Correction) {
			ev := plain("req_2", "1")
			c.Replace = &ev
		}, []string{"quantity"}},
		"a long reason":          {func(c *engine.Correction) { c.Reason = strings.Repeat("x", 1025) }, []string{"reason"}},
		"a reason of controls":   {func(c *engine.Correction) { c.Reason = "a\nb" }, []string{"reason"}},
		"a list as metadata":     {func(c *engine.Correction) { c.Metadata = []byte("[]") }, []string{"metadata"}},
		"long metadata":          {func(c *engine.Correction) { c.Metadata = []byte(`{"a":"` + strings.Repeat("x", 16<<10) + `"}`) }, []string{"metadata"}},
		"a reason twice":         {func(c *engine.Correction) { c.Reason, c.Metadata = "x", []byte(`{"reason":"y"}`) }, []string{"metadata.reason"}},
		"replaced elsewhere":     {replacement(func(e *engine.Event) { e.Tenant = "other" }), []string{"replace.tenant"}},
		"replaced by itself":     {replacement(func(e *engine.Event) { e.ID = "req_1" }), []string{"replace.id"}},
		"replaced by this":       {replacement(func(e *engine.Event) { e.ID = "c" }), []string{"replace.id"}},
		"replaced by a negative": {replacement(func(e *engine.Event) { e.Quantity = e.Quantity.Neg() }), []string{"replace.quantity"}},
		"replaced in the future": {replacement(func(e *engine.Event) { e.Time = noon.Add(301 * time.Second) }), []string{"replace.time"}},
		"replaced by buffered":   {replacement(func(e *engine.Event) { e.Feature = "seats" }), []string{"replace.feature"}},
		"replaced by no feature": {replacement(func(e *engine.Event) { e.Feature, e.Tenant = "", "" }), []string{"replace.tenant", "replace.feature"}},
	} {
		c := take("c", "1")
		tc.change(&c)
		_, err := e.Correct(t.Context(), c)
		var got []string
		for _, e := range meter.AsErrors(err) {
			if e.Tag != sdk.TagInvalid || e.Rule == "" {
				t.Errorf("%s: %v", name, e)
			}
			if !slices.Contains(got, e.Field) {
				got = append(got, e.Field)
			}
		}
		if diff := cmp.Diff(tc.fields, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if s.loads+len(s.asked) != 0 {
		t.Error("the store was asked")
	}
}

// Replace takes back what is left and records the other event, with its own
// period, plan and items, in one request; remaining says nothing new then.
func TestReplaceIsOneRequest(t *testing.T) {
	t.Parallel()
	s, e := script(t)
	if _, err := e.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Plan: "pro", PlanVersion: "3", Customers: map[string]string{"stripe": "cus_1"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.ApplyRoutes(t.Context(), []engine.RoutePlan{plan(map[string]string{"tokens": "x"})}); err != nil {
		t.Fatal(err)
	}
	ev := plain("req_2", "4")
	c := take("c", "")
	c.Replace = &ev
	res, err := e.Correct(t.Context(), c)
	if err != nil || res.Replacement == nil || res.Replacement.EventID != "req_2" || res.Replacement.Seq != 8 || res.Quantity.String() != "10" {
		t.Fatalf("%+v, %v", res, err)
	}
	req := s.asked[0]
	if r := req.Replacement; r == nil || r.Event.Plan != "pro" || r.Event.PlanVersion != "3" || len(r.Items) != 1 || r.Items[0].Customer != "cus_1" {
		t.Errorf("%+v", r)
	}
	if len(req.Subscriptions) != 1 || req.Subscriptions[0].Revision != 1 || req.ExpectCorrected == nil {
		t.Errorf("%+v", req)
	}
	hash, err := ev.DedupeHash()
	if err != nil || req.Replacement.Event.DedupeHash != hash {
		t.Error("the replacement would conflict with its own redelivery")
	}
	c.Remaining = false
	if _, err := e.Correct(t.Context(), c); err != nil || s.asked[1].Event.DedupeHash != req.Event.DedupeHash {
		t.Errorf("%v; the same request has two hashes", err)
	}
	ev.Time = noon.Add(300*time.Second + 999*time.Nanosecond) // the last microsecond, as for Record
	if _, err := e.Correct(t.Context(), c); err != nil {
		t.Error(err)
	}
	s.asked = s.asked[:2]
	ev.Quantity = decimal.MustParse("5")
	if _, err := e.Correct(t.Context(), c); err != nil || s.asked[2].Event.DedupeHash == req.Event.DedupeHash {
		t.Errorf("%v; another replacement has the same hash", err)
	}
}

// The gate counts corrections with what is recorded.
func TestCorrectionsAreAdmitted(t *testing.T) {
	t.Parallel()
	s, e := script(t, admitting(1))
	entered, release := make(chan struct{}), make(chan struct{})
	inserted := s.record
	s.record = func(call int, req storage.CorrectRequest) (storage.CorrectResult, error) {
		entered <- struct{}{}
		<-release
		return inserted(call, req)
	}
	done := make(chan error, 1)
	go func() {
		_, err := e.Correct(t.Context(), take("c", "1"))
		done <- err
	}()
	<-entered
	_, err := e.Correct(t.Context(), take("d", "1"))
	tagIs(t, err, sdk.TagUnavailable, "overloaded")
	_, err = e.Record(t.Context(), plain("a", "1"))
	tagIs(t, err, sdk.TagUnavailable, "overloaded")
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	e.Close()
	_, err = e.Correct(t.Context(), take("e", "1"))
	tagIs(t, err, sdk.TagUnavailable, "closed")
}
