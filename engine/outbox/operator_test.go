package outbox

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var (
	anna     = Act{Actor: "anna", Reason: "the provider says so"}
	standing = Standing{QuietFor: 11 * time.Minute, Horizon: 23 * time.Hour, Admissible: []string{SourceSumPresent, SourceErrorReport}, Budget: 20}
)

func statement(f Finding) *Evidence {
	return &Evidence{Kind: EvidenceAsserted, Finding: f, Text: "seen"}
}

// stuck is an item as an operator meets it, in a store whose clock is at noon.
func stuck(state storage.ItemState, edits ...func(*storage.Item)) (*modelStore, storage.Item) {
	s := newModelStore(func() time.Time { return noon })
	id := s.add(sample("req_1", noon))
	i := &s.rows[id].item
	i.State, i.Attempts, i.LeaseToken, i.Unresolved = state, 20, 7, state == storage.Uncertain
	i.ClaimedAt, i.FirstAttemptAt = noon.Add(-12*time.Minute), noon.Add(-time.Hour)
	if i.Unresolved {
		i.FirstUnresolvedAt = noon.Add(-time.Hour)
	}
	for _, edit := range edits {
		edit(i)
	}
	return s, *i
}

// settle applies a transition and reports whether its row changed.
func settle(t *testing.T, s *modelStore, moves ...storage.Transition) bool {
	t.Helper()
	done, err := s.Transition(t.Context(), moves)
	if err != nil {
		t.Fatal(err)
	}
	return done[0].Rows == 1
}

// O26, T8, R3, Q16, Q23, A-T10: what a resolution does, and each condition without
// which the store changes nothing.
func TestResolve(t *testing.T) {
	t.Parallel()
	token := func(n int64) *int64 { return &n }
	accepted := Resolution{To: storage.Accepted, Evidence: statement(FoundTaken), ProviderRef: "evt_1"}
	rejected := Resolution{To: storage.Rejected, Evidence: statement(FoundRefused)}
	pending := Resolution{To: storage.Pending}
	for name, tc := range map[string]struct {
		r    Resolution
		s    func(*Standing)
		item func(*storage.Item)
		code string // empty: the row changes
	}{
		"accepted":               {r: accepted},
		"rejected":               {r: rejected},
		"pending":                {r: pending},
		"expected token":         {r: Resolution{To: storage.Pending, LeaseToken: token(7)}},
		"another token":          {r: Resolution{To: storage.Pending, LeaseToken: token(6)}, code: "expected_state_mismatch"},
		"accepted, past horizon": {r: accepted, item: func(i *storage.Item) { i.FirstUnresolvedAt = noon.Add(-24 * time.Hour) }},
		"rejected, past horizon": {r: rejected, item: func(i *storage.Item) { i.FirstUnresolvedAt = noon.Add(-24 * time.Hour) }},
		"pending, at the horizon": {
			r: pending, item: func(i *storage.Item) { i.FirstUnresolvedAt = noon.Add(-23 * time.Hour) }, code: storage.CodeHorizonPassed,
		},
		"pending, attempts used up": {r: pending, item: func(i *storage.Item) {
			i.Unresolved, i.FirstUnresolvedAt, i.LastError = false, time.Time{}, &storage.ItemError{Code: storage.CodeAttemptsExhausted}
		}},
		"pending, no horizon": {
			r: pending, s: func(s *Standing) { s.Horizon = 0 }, item: func(i *storage.Item) { i.FirstUnresolvedAt = noon.Add(-9999 * time.Hour) },
		},
		"pending, clock stepped": {
			r: pending, s: func(s *Standing) { s.TrustedSince = noon.Add(-time.Minute) }, code: storage.CodeClockUntrusted,
		},
		"accepted, clock stepped": {r: accepted, s: func(s *Standing) { s.TrustedSince = noon.Add(-time.Minute) }},
		"pending, not quiet":      {r: pending, s: func(s *Standing) { s.QuietFor = 13 * time.Minute }, code: "too_early"},
		"accepted, not quiet":     {r: accepted, s: func(s *Standing) { s.QuietFor = 13 * time.Minute }, code: "too_early"},
		"rejected, not quiet":     {r: rejected, s: func(s *Standing) { s.QuietFor = 13 * time.Minute }, code: "too_early"},
		"given up":                {r: rejected, item: func(i *storage.Item) { i.SettledAt = noon }, code: "expected_state_mismatch"},
		"superseded":              {r: pending, item: func(i *storage.Item) { i.SupersededBy = 9 }, code: "expected_state_mismatch"},
		"being sent":              {r: accepted, item: func(i *storage.Item) { i.State = storage.Leased }, code: "expected_state_mismatch"},
		"accepted before":         {r: pending, item: func(i *storage.Item) { i.State = storage.Accepted }, code: "expected_state_mismatch"},
	} {
		store, item := stuck(storage.Uncertain)
		if tc.item != nil {
			tc.item(&store.rows[item.ItemID].item)
			item = store.row(item.ItemID)
		}
		st := standing
		if tc.s != nil {
			tc.s(&st)
		}
		move, err := Resolve(item, tc.r, st, anna)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		unmet := Unmet(move.Expect, item, noon)
		if changed := settle(t, store, move); changed != (tc.code == "") || changed != (unmet == nil) {
			t.Errorf("%s: changed %v, told before %v", name, changed, unmet)
		}
		if unmet != nil && (!errors.Is(unmet, &sdk.Error{Tag: sdk.TagConflict, Code: tc.code}) || sdk.TagOf(unmet) != sdk.TagConflict) {
			t.Errorf("%s: %v, want %s", name, unmet, tc.code)
		}
		if tc.code != "" {
			continue
		}
		got, _ := store.LoadItem(t.Context(), item.ItemID)
		if len(got.Actions) != 1 || got.Actions[0].Actor != "anna" || got.Actions[0].From != storage.Uncertain || got.Actions[0].To != tc.r.To || got.Item.State != tc.r.To {
			t.Errorf("%s: %+v", name, got)
		}
		switch i := got.Item; tc.r.To {
		case storage.Accepted:
			if i.ProviderRef != "evt_1" || i.AcceptedAt.IsZero() || i.SettledAt.IsZero() || got.Actions[0].EvidenceKind != "asserted" || !i.Unresolved {
				t.Errorf("%s: %+v", name, got)
			}
		case storage.Rejected:
			if i.SettledAt.IsZero() || got.Actions[0].Evidence != "seen" {
				t.Errorf("%s: %+v", name, got)
			}
		default:
			if i.AttemptBudget != 40 || !i.SettledAt.IsZero() || i.Unresolved != item.Unresolved || !i.NextAttemptAt.Equal(noon) || !strings.Contains(string(got.Actions[0].Detail), `"attempts":20`) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

// Q23, O26: what may not be asked, whatever the item.
func TestResolutionsThatBreakARule(t *testing.T) {
	t.Parallel()
	_, item := stuck(storage.Uncertain)
	provider := func(source string, f Finding) *Evidence {
		return &Evidence{Kind: EvidenceProvider, Source: source, Finding: f, Text: "sum 12.5"}
	}
	for field, list := range map[string][]Resolution{
		"to":               {{}, {To: storage.Confirmed, Evidence: statement(FoundTaken)}, {To: storage.Leased}},
		"evidence":         {{To: storage.Accepted}, {To: storage.Rejected}},
		"evidence.finding": {{To: storage.Accepted, Evidence: statement(FoundRefused)}, {To: storage.Rejected, Evidence: statement(FoundTaken)}, {To: storage.Pending, Evidence: statement("absent")}, {To: storage.Rejected, Evidence: provider(SourceSumPresent, FoundRefused)}},
		"evidence.source":  {{To: storage.Accepted, Evidence: provider("search", FoundTaken)}, {To: storage.Accepted, Evidence: provider("", FoundTaken)}, {To: storage.Accepted, Evidence: &Evidence{Kind: EvidenceAsserted, Source: "x", Finding: FoundTaken, Text: "y"}}},
		"evidence.kind":    {{To: storage.Accepted, Evidence: &Evidence{Kind: "hunch", Finding: FoundTaken, Text: "y"}}},
		"evidence.text":    {{To: storage.Accepted, Evidence: &Evidence{Kind: EvidenceAsserted, Finding: FoundTaken}}},
		"attempts":         {{To: storage.Pending, Attempts: -1}, {To: storage.Pending, Attempts: 1001}, {To: storage.Accepted, Attempts: 1, Evidence: statement(FoundTaken)}},
		"provider_ref":     {{To: storage.Pending, ProviderRef: "x"}},
	} {
		for _, r := range list {
			var e *sdk.Error
			if _, err := Resolve(item, r, standing, anna); !errors.As(err, &e) || e.Tag != sdk.TagInvalid || e.Field != field {
				t.Errorf("%s: %+v: %v", field, r, err)
			}
		}
	}
	// An attempt that is open beside the proof that another body has the identifier
	// makes the provider's next "known" no word about ours (F32).
	open := item
	open.Unresolved, open.LastError = true, &storage.ItemError{Code: CodeConflict}
	if _, err := Resolve(open, Resolution{To: storage.Pending}, standing, anna); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "identifier_taken"}) {
		t.Errorf("open beside a conflict: %v", err)
	}
	for _, code := range []string{CodeForeignDuplicate, CodeConflict, CodeContradicted, ""} { // Q13
		foreign := item
		foreign.Unresolved, foreign.LastError = false, &storage.ItemError{Code: code}
		if _, err := Resolve(foreign, Resolution{To: storage.Pending}, standing, anna); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "identifier_taken"}) {
			t.Errorf("%q: %v", code, err)
		}
		if _, err := Resolve(foreign, Resolution{To: storage.Accepted, Evidence: statement(FoundTaken)}, standing, anna); err != nil {
			t.Errorf("%q: %v", code, err)
		}
	}
	if _, err := Resolve(item, Resolution{To: storage.Accepted, Evidence: provider(SourceSumPresent, FoundTaken)}, standing, anna); err != nil {
		t.Error(err)
	}
	for field, a := range map[string]Act{
		"actor": {Reason: "x"}, "reason": {Actor: "x"},
	} {
		var e *sdk.Error
		if _, err := Resolve(item, Resolution{To: storage.Pending}, standing, a); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%+v: %v", a, err)
		}
	}
	for _, a := range []Act{{strings.Repeat("é", 201), "x", false}, {"x", strings.Repeat("é", 1001), false}, {"a\x00", "x", false}, {" ", "x", false}, {"\xff", "x", false}} {
		if a.Check() == nil {
			t.Errorf("%+v", a)
		}
	}
	if err := (Act{Actor: strings.Repeat("é", 200), Reason: strings.Repeat("é", 1000)}).Check(); err != nil {
		t.Error(err)
	}
}

// O11, O27, Q20, Q25: which items are given up, that their state stays, and that
// the stretch of a window is accounted for.
func TestAbandon(t *testing.T) {
	t.Parallel()
	disputed := func(i *storage.Item) { i.Disputed = "no_meter" }
	window := func(i *storage.Item) { i.Identity.SubjectKind = storage.SubjectWindow }
	for name, tc := range map[string]struct {
		state storage.ItemState
		edit  func(*storage.Item)
		b     Abandonment
		ok    bool
	}{
		"uncertain":                  {storage.Uncertain, nil, Abandonment{}, true},
		"rejected":                   {storage.Rejected, nil, Abandonment{}, true},
		"quarantined":                {storage.Quarantined, nil, Abandonment{}, true},
		"accepted":                   {storage.Accepted, nil, Abandonment{}, false},
		"accepted, disputed":         {storage.Accepted, disputed, Abandonment{}, true},
		"confirmed, disputed":        {storage.Confirmed, disputed, Abandonment{}, true},
		"pending":                    {storage.Pending, nil, Abandonment{}, false},
		"leased":                     {storage.Leased, nil, Abandonment{}, false},
		"uncertain, not quiet":       {storage.Uncertain, func(i *storage.Item) { i.ClaimedAt = noon }, Abandonment{}, false},
		"given up before":            {storage.Rejected, func(i *storage.Item) { i.SettledAt = noon }, Abandonment{}, false},
		"token moved":                {storage.Rejected, nil, Abandonment{LeaseToken: new(int64)}, false},
		"event with a disposition":   {storage.Rejected, nil, Abandonment{Disposition: storage.WindowWrittenOff}, false},
		"window without":             {storage.Rejected, window, Abandonment{}, false},
		"window acknowledged":        {storage.Rejected, window, Abandonment{Disposition: storage.WindowAcknowledged}, false},
		"window written off":         {storage.Uncertain, window, Abandonment{Disposition: storage.WindowWrittenOff}, true},
		"window restaged":            {storage.Rejected, window, Abandonment{Disposition: storage.WindowRestage}, true},
		"uncertain window restaged":  {storage.Uncertain, window, Abandonment{Disposition: storage.WindowRestage}, false},
		"unresolved window restaged": {storage.Rejected, func(i *storage.Item) { window(i); i.Unresolved = true }, Abandonment{Disposition: storage.WindowRestage}, false},
	} {
		store, item := stuck(tc.state)
		if tc.edit != nil {
			tc.edit(&store.rows[item.ItemID].item)
			item = store.row(item.ItemID)
		}
		move, err := Abandon(item, tc.b, standing, anna)
		if err == nil {
			err = Unmet(move.Expect, item, noon)
		}
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			if move.ItemID != 0 && settle(t, store, move) {
				t.Errorf("%s: changed", name)
			}
			continue
		}
		changed := settle(t, store, move)
		got, _ := store.LoadItem(t.Context(), item.ItemID)
		if !changed || got.Item.State != tc.state || got.Item.SettledAt.IsZero() || got.Actions[0].Kind != storage.ActionAbandon {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Q18: a correction that waits for what is given up is told that it was not
// charged; an abandoned dispute of what was charged leaves it alone.
func TestAbandonedOriginal(t *testing.T) {
	t.Parallel()
	b := &bench{t: t}
	for _, state := range []storage.ItemState{storage.Quarantined, storage.Uncertain, storage.Rejected} {
		store, item := stuck(state)
		b.store = store
		if state == storage.Rejected { // the correction came before
			store.rows[item.ItemID].item.State = storage.Pending
		}
		correction := b.addCorrection(item.ItemID, "cor_1", "-1")
		store.rows[item.ItemID].item.State = state
		move, err := Abandon(item, Abandonment{}, standing, anna)
		if err != nil || !settle(t, store, move) {
			t.Fatal(err)
		}
		if got := store.row(correction); got.State != storage.Quarantined || got.QuarantineReason != "original_not_charged" || got.Waits {
			t.Errorf("%s: %+v", state, got)
		}
	}
}

// O12, Q18, Q25: evidence never changes a state. What contradicts it opens the
// item, and its corrections with it.
func TestAttest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		state    storage.ItemState
		settled  bool
		disputed string
		finding  Finding
		open     bool
		shown    bool
	}{
		{storage.Accepted, true, "", FoundRefused, true, true},
		{storage.Confirmed, true, "", FoundRefused, true, true},
		{storage.Accepted, true, "", FoundTaken, false, false},
		{storage.Accepted, false, "before", FoundTaken, false, false},
		{storage.Leased, false, "", FoundRefused, true, true},
		{storage.Pending, false, "", FoundRefused, true, true},
		{storage.Uncertain, false, "", FoundRefused, true, true},
		{storage.Uncertain, true, "", FoundRefused, false, true},
		{storage.Uncertain, true, "", FoundTaken, true, false},
		{storage.Rejected, true, "", FoundTaken, true, false},
		{storage.Quarantined, true, "", FoundTaken, true, false},
		{storage.Rejected, true, "", FoundRefused, false, false},
		{storage.Quarantined, false, "", FoundRefused, true, false},
	} {
		store, item := stuck(tc.state, func(i *storage.Item) {
			i.Disputed = tc.disputed
			if tc.settled {
				i.SettledAt = noon
			}
		})
		move, err := Attest(item, Evidence{Kind: EvidenceProvider, Source: map[Finding]string{FoundTaken: SourceSumPresent, FoundRefused: SourceErrorReport}[tc.finding], Finding: tc.finding, Text: "no_meter_found"}, standing, anna)
		if err != nil || !settle(t, store, move) {
			t.Fatalf("%+v: %v", tc, err)
		}
		got, _ := store.LoadItem(t.Context(), item.ItemID)
		i := got.Item
		if i.State != tc.state || i.SettledAt.IsZero() != tc.open || (i.Disputed != "") != tc.shown || i.LeaseToken != item.LeaseToken || i.Attempts != item.Attempts {
			t.Errorf("%+v: %+v", tc, i)
		}
		if tc.shown && i.Disputed != "error_report: no_meter_found" {
			t.Errorf("disputed %q", i.Disputed)
		}
		if a := got.Actions[0]; a.Kind != storage.ActionEvidence || a.EvidenceKind != "provider" || found(a) != tc.finding {
			t.Errorf("%+v", a)
		}
	}
	// The corrections of a disputed original are disputed, waiting or not.
	b := &bench{t: t}
	store, item := stuck(storage.Accepted, func(i *storage.Item) { i.SettledAt = noon })
	b.store = store
	sent := b.addCorrection(item.ItemID, "cor_1", "-1")
	store.rows[sent].item.State, store.rows[sent].item.SettledAt = storage.Accepted, noon
	waits := b.addCorrection(item.ItemID, "cor_2", "-1")
	store.rows[waits].item.Waits = true
	move, err := Attest(item, *statement(FoundRefused), standing, anna)
	if err != nil || !settle(t, store, move) {
		t.Fatal(err)
	}
	if a, b := store.row(sent), store.row(waits); a.Disputed != "seen" || !a.SettledAt.IsZero() || b.Disputed != "seen" || !b.Waits || b.State != storage.Pending {
		t.Errorf("%+v, %+v", a, b)
	}
}

// Q25: an acceptance does not close what was disputed before it.
func TestAcceptanceOfADisputedItem(t *testing.T) {
	t.Parallel()
	store, item := stuck(storage.Leased, func(i *storage.Item) { i.Disputed = "no_meter" })
	move := Decision{State: storage.Accepted, Trigger: TriggerAccepted}.Transition(storage.ClaimedItem{ItemID: item.ItemID, LeaseToken: 7})
	if !settle(t, store, move) {
		t.Fatal("nothing changed")
	}
	if got := store.row(item.ItemID); got.State != storage.Accepted || !got.SettledAt.IsZero() {
		t.Errorf("%+v", got)
	}
}
