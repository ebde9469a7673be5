package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// surroundings are those in which the sample item may be sent.
func surroundings() Surroundings {
	return Surroundings{
		Routes: []storage.Route{{ID: 7, Exporter: "double", Account: "acct_1", Mode: "test", Feature: "tokens", Disposition: storage.RouteExport, MappingVersion: "9f2c"}},
		Mappings: map[string]storage.Mapping{
			"9f2c": {Version: "9f2c", Content: json.RawMessage(`{"event_name":"llm_tokens"}`)},
			"aaaa": {Version: "aaaa", Content: json.RawMessage(`{"event_name":"tokens_v2"}`)},
		},
		Manifests: map[string]exporter.Manifest{"double": cancelling()},
		Customers: map[string]string{"double": "cus_new"}, AttemptBudget: 20, Now: noon,
	}
}

// remap puts another mapping in force.
func remap(s *Surroundings) {
	s.Routes[0].RetiredAt = noon
	r := s.Routes[0]
	r.ID, r.MappingVersion, r.RetiredAt = 8, "aaaa", time.Time{}
	s.Routes = append(s.Routes, r)
}

func quarantined(reason Reason, edits ...func(*storage.Item)) (*modelStore, storage.ItemDetail) {
	s, item := stuck(storage.Quarantined, append([]func(*storage.Item){func(i *storage.Item) {
		i.QuarantineReason, i.Attempts = string(reason), 0
	}}, edits...)...)
	d, _ := s.LoadItem(context.Background(), item.ItemID)
	return s, d
}

// O19, T9, Q6, A-T13: under the same mapping the item itself is sent, with the customer
// that was unknown, and so is what waits for it.
func TestRequeueUnderTheSameMapping(t *testing.T) {
	t.Parallel()
	store, d := quarantined(ReasonNoCustomer, func(i *storage.Item) { i.Customer = "" })
	b := &bench{t: t, store: store}
	waiting := b.addCorrection(d.Item.ItemID, "cor_1", "-1")
	w, _ := store.LoadItem(t.Context(), waiting)
	s := surroundings()
	s.Waiting = []storage.ItemDetail{w}
	plan, err := PlanRequeue(d, Requeue{}, s, anna)
	if err != nil || plan.Replace != nil || len(plan.Moves) != 2 {
		t.Fatalf("%+v, %v", plan, err)
	}
	if !settle(t, store, plan.Moves...) {
		t.Fatal("nothing changed")
	}
	got, _ := store.LoadItem(t.Context(), d.Item.ItemID)
	i := got.Item
	if i.State != storage.Pending || i.QuarantineReason != "" || i.Customer != "cus_new" || i.AttemptBudget != 20 || len(got.Actions) != 1 || got.Actions[0].Kind != storage.ActionRequeue {
		t.Errorf("%+v", got)
	}
	if c := store.row(waiting); c.Customer != "cus_new" || c.State != storage.Pending || !c.Waits {
		t.Errorf("%+v", c)
	}
	// Once more: it is not quarantined any more.
	if settle(t, store, plan.Moves[0]) {
		t.Error("requeued twice")
	}
	var mismatch *StateMismatchError
	if _, err := PlanRequeue(got, Requeue{}, s, anna); !errors.Is(err, ErrExpectedStateMismatch) || !errors.Is(err, sdk.ErrConflict) || !errors.As(err, &mismatch) || mismatch.Current != storage.Pending {
		t.Errorf("%v", err)
	}
}

// O19: what would be quarantined again is refused, with the reason.
func TestRequeueOfWhatIsNotMended(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit func(*storage.ItemDetail, *Surroundings)
		want string
	}{
		"no customer":        {func(d *storage.ItemDetail, s *Surroundings) { d.Item.Customer, s.Customers = "", nil }, "no_customer"},
		"too old":            {func(_ *storage.ItemDetail, s *Surroundings) { s.Now = noon.Add(35 * 24 * time.Hour) }, "timestamp_window"},
		"feature unmapped":   {func(_ *storage.ItemDetail, s *Surroundings) { s.Routes[0].Disposition = storage.RouteQuarantine }, "feature_unmapped"},
		"feature ignored":    {func(_ *storage.ItemDetail, s *Surroundings) { s.Routes[0].Disposition = storage.RouteIgnore }, "feature_unmapped"},
		"route retired":      {func(_ *storage.ItemDetail, s *Surroundings) { s.Routes[0].RetiredAt = noon }, "feature_unmapped"},
		"period of counter":  {func(_ *storage.ItemDetail, s *Surroundings) { s.Reason = ReasonPeriodBuffered }, "period_buffered"},
		"new one unsendable": {func(d *storage.ItemDetail, s *Surroundings) { remap(s); s.Customers = nil }, "no_customer"},
	} {
		_, d := quarantined(ReasonNoCustomer)
		s := surroundings()
		tc.edit(&d, &s)
		_, err := PlanRequeue(d, Requeue{}, s, anna)
		if !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "still_ineligible"}) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, edit := range map[string]func(*storage.Item){
		"settled":    func(i *storage.Item) { i.SettledAt = noon },
		"superseded": func(i *storage.Item) { i.SupersededBy = 3 },
		"uncertain":  func(i *storage.Item) { i.State = storage.Uncertain },
		"rejected":   func(i *storage.Item) { i.State = storage.Rejected },
	} {
		_, d := quarantined(ReasonNoCustomer, edit)
		if _, err := PlanRequeue(d, Requeue{}, surroundings(), anna); !errors.Is(err, ErrExpectedStateMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, d := quarantined(ReasonNoCustomer)
	expected := "aaaa"
	var changed *MappingChangedError
	if _, err := PlanRequeue(d, Requeue{MappingVersion: &expected}, surroundings(), anna); !errors.Is(err, ErrMappingChanged) || !errors.As(err, &changed) || changed.Current != "9f2c" || sdk.TagOf(err) != sdk.TagConflict {
		t.Errorf("%v", err)
	}
	if _, err := PlanRequeue(d, Requeue{LeaseToken: new(int64)}, surroundings(), anna); !errors.Is(err, ErrExpectedStateMismatch) {
		t.Errorf("%v", err)
	}
}

// An item without attempts left gets some; what was asked for is given.
func TestRequeueAddsBudget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ attempts, asked, want int }{{19, 0, 0}, {20, 0, 20}, {22, 0, 22}, {0, 5, 5}} {
		_, d := quarantined(ReasonProviderRefused, func(i *storage.Item) { i.Attempts = tc.attempts })
		plan, err := PlanRequeue(d, Requeue{Attempts: tc.asked}, surroundings(), anna)
		if err != nil || plan.Moves[0].Set.AddBudget != tc.want {
			t.Errorf("%+v: %+v, %v", tc, plan, err)
		}
	}
}

// R2, Q5, Q11: another mapping is another identifier, so it is only for what the
// provider cannot have taken; the corrections that wait go with it.
func TestRequeueUnderAnotherMapping(t *testing.T) {
	t.Parallel()
	refused := storage.Attempt{Evidence: "host", HostClass: "refused"}
	lost := storage.Attempt{Evidence: "host", HostClass: "indefinite"}
	byWord := storage.Attempt{Evidence: "plugin", HostClass: "refused"}
	absent := storage.Action{Kind: storage.ActionEvidence, Detail: json.RawMessage(`{"finding":"refused"}`)}
	present := storage.Action{Kind: storage.ActionEvidence, Detail: json.RawMessage(`{"finding":"taken"}`)}
	for name, tc := range map[string]struct {
		edit func(*storage.ItemDetail)
		ok   bool
	}{
		"never sent":               {func(*storage.ItemDetail) {}, true},
		"refused as the host saw":  {func(d *storage.ItemDetail) { d.Item.Attempts, d.Attempts = 1, []storage.Attempt{refused} }, true},
		"refused by its own word":  {func(d *storage.ItemDetail) { d.Item.Attempts, d.Attempts = 1, []storage.Attempt{byWord} }, false},
		"one without an answer":    {func(d *storage.ItemDetail) { d.Item.Attempts, d.Attempts = 2, []storage.Attempt{lost, refused} }, false},
		"attempts without a log":   {func(d *storage.ItemDetail) { d.Item.Attempts = 1 }, false},
		"unresolved":               {func(d *storage.ItemDetail) { d.Item.Unresolved = true }, false},
		"unresolved, shown absent": {func(d *storage.ItemDetail) { d.Item.Unresolved, d.Actions = true, []storage.Action{absent} }, true},
		"unresolved, shown taken":  {func(d *storage.ItemDetail) { d.Item.Unresolved, d.Actions = true, []storage.Action{present} }, false},
		"shown absent, then taken": {func(d *storage.ItemDetail) { d.Actions = []storage.Action{absent, present} }, false},
		"shown taken, then absent": {func(d *storage.ItemDetail) { d.Item.Unresolved, d.Actions = true, []storage.Action{present, absent} }, true},
	} {
		store, d := quarantined(ReasonProviderRefused)
		b := &bench{t: t, store: store}
		w, _ := store.LoadItem(t.Context(), b.addCorrection(d.Item.ItemID, "cor_1", "-1"))
		s := surroundings()
		remap(&s)
		s.Waiting = []storage.ItemDetail{w}
		tc.edit(&d)
		plan, err := PlanRequeue(d, Requeue{}, s, anna)
		if !tc.ok {
			if !errors.Is(err, ErrMappingChanged) {
				t.Errorf("%s: %+v, %v", name, plan, err)
			}
			continue
		}
		if err != nil || plan.Replace == nil || len(plan.Moves) != 0 {
			t.Errorf("%s: %+v, %v", name, plan, err)
			continue
		}
		sup := plan.Replace
		identity := d.Item.Identity
		identity.MappingVersion = "aaaa"
		digest, identifier := Identifier(identity)
		if sup.ItemID != d.Item.ItemID || sup.New.Identity != identity || sup.New.Digest != digest || sup.New.SubjectKey != SubjectKey(d.Item.Identity) || sup.New.RouteID != 8 ||
			sup.New.Customer != "cus_new" || *sup.Expect.Attempts != d.Item.Attempts || *sup.Expect.Unresolved != d.Item.Unresolved || *sup.Expect.Settled {
			t.Errorf("%s: %+v", name, sup)
		}
		if sup.Action.Kind != storage.ActionSupersede || sup.Action.Actor != "anna" {
			t.Errorf("%s: %+v", name, sup.Action)
		}
		c := sup.Waiting[0]
		item, err := Payload(storage.ClaimedItem{Identity: c.Identity, Digest: c.Digest, Payload: c.Payload})
		if len(sup.Waiting) != 1 || err != nil || item.Corrects.Identifier != identifier || item.Value != "-1" || c.Identity.MappingVersion != "aaaa" ||
			c.Identity.SubjectKind != storage.SubjectCorrection || c.Identity.SubjectRef != "cor_1" || c.SubjectKey != SubjectKey(w.Item.Identity) {
			t.Errorf("%s: %+v, %+v, %v", name, sup.Waiting, item, err)
		}
	}
}

// Q4, Q6: after a rename the item keeps its identity; a window is not made anew.
func TestRequeueBesideARename(t *testing.T) {
	t.Parallel()
	_, d := quarantined(ReasonNoCustomer)
	s := surroundings()
	s.Routes[0].Exporter = "renamed"
	s.Manifests["renamed"] = s.Manifests["double"]
	if plan, err := PlanRequeue(d, Requeue{}, s, anna); err != nil || len(plan.Moves) != 1 {
		t.Errorf("%+v, %v", plan, err)
	}
	_, d = quarantined(ReasonNoCustomer)
	d.Item.Identity.SubjectKind, d.Event = storage.SubjectWindow, nil
	d.Payload, _ = FreezePayload(exporter.Item{Feature: "tokens", Value: "5", Timestamp: noon})
	if plan, err := PlanRequeue(d, Requeue{}, surroundings(), anna); err != nil || len(plan.Moves) != 1 {
		t.Errorf("%+v, %v", plan, err)
	}
	s = surroundings()
	remap(&s)
	if _, err := PlanRequeue(d, Requeue{}, s, anna); !errors.Is(err, ErrMappingChanged) {
		t.Errorf("%v", err)
	}
}

// Q18, Q19: a correction is requeued only when its original is charged, and
// never told in a way that would be quarantined again.
func TestRequeueOfACorrection(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		original func(*storage.Item)
		own      func(*storage.Item)
		later    time.Duration
		want     string
	}{
		"charged":                  {},
		"not charged":              {original: func(i *storage.Item) { i.State = storage.Rejected }, want: "original_not_charged"},
		"still disputed":           {original: func(i *storage.Item) { i.Disputed = "x" }, want: "original_disputed"},
		"too late":                 {later: 40 * 24 * time.Hour, want: "correction_late"},
		"late cancel":              {own: func(i *storage.Item) { i.Method = "cancel" }, later: 30 * time.Hour, want: "correction_late"},
		"customer of its original": {own: func(i *storage.Item) { i.Customer = "" }},
		"dispute was lifted":       {own: func(i *storage.Item) { i.Disputed, i.QuarantineReason = "x", "original_disputed" }},
	} {
		now := noon
		store := newModelStore(func() time.Time { return now })
		b := &bench{t: t, store: store}
		original := store.add(sample("req_1", noon))
		o := &store.rows[original].item
		o.State, o.FirstAttemptAt = storage.Accepted, noon
		id := b.addCorrection(original, "cor_1", "-1")
		c := &store.rows[id].item
		c.State, c.QuarantineReason, c.Waits = storage.Quarantined, "correction_late", false
		if tc.original != nil {
			tc.original(o)
		}
		if tc.own != nil {
			tc.own(c)
		}
		now = now.Add(tc.later)
		d, _ := store.LoadItem(t.Context(), id)
		s := surroundings()
		s.Now, s.Original = now, o
		plan, err := PlanRequeue(d, Requeue{}, s, anna)
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %+v, %v", name, plan, err)
			}
			continue
		}
		if err != nil || !settle(t, store, plan.Moves...) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := store.row(id); got.State != storage.Pending || got.Disputed != "" || got.QuarantineReason != "" {
			t.Errorf("%s: %+v", name, got)
		} else if got.Customer != o.Customer {
			t.Errorf("%s: customer %q", name, got.Customer)
		}
		delete(s.Manifests, "double") // this host does not run it
		if _, err := PlanRequeue(d, Requeue{}, s, anna); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
