package outbox

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// cancelling is a manifest like Stripe's: cancel, else a negative event.
func cancelling() exporter.Manifest {
	m := testManifest
	m.Corrections, m.CancelWithin, m.Values.Negative = exporter.CorrectCancel, 23*time.Hour, true
	return m
}

// Q19: every condition under which an original is not cancelled, by hand.
func TestChooseMethod(t *testing.T) {
	t.Parallel()
	negativeOnly := func(m *exporter.Manifest) { m.Corrections = exporter.CorrectNegative }
	type set struct {
		m *exporter.Manifest
		c *storage.ClaimedItem
		i *exporter.Item
	}
	for name, tc := range map[string]struct {
		change func(set)
		method exporter.CorrectionMode
		reason Reason
	}{
		"whole, alone, early":    {func(set) {}, exporter.CorrectCancel, ""},
		"confirmed":              {func(s set) { s.c.Original.State = storage.Confirmed }, exporter.CorrectCancel, ""},
		"a part":                 {func(s set) { s.i.Value = "-12" }, exporter.CorrectNegative, ""},
		"not alone":              {func(s set) { s.c.Original.Dependents = 2 }, exporter.CorrectNegative, ""},
		"late":                   {func(s set) { s.c.Original.SinceFirstAttempt = 23 * time.Hour }, exporter.CorrectNegative, ""},
		"never attempted":        {func(s set) { s.c.Original.SinceFirstAttempt = 0 }, exporter.CorrectNegative, ""},
		"unresolved":             {func(s set) { s.c.Original.Unresolved = true }, exporter.CorrectNegative, ""},
		"negative only":          {func(s set) { negativeOnly(s.m) }, exporter.CorrectNegative, ""},
		"disputed":               {func(s set) { s.c.Original.Disputed = "no_meter" }, "", ReasonOriginalDisputed},
		"rejected":               {func(s set) { s.c.Original.State = storage.Rejected }, "", ReasonOriginalNotCharged},
		"not taken yet":          {func(s set) { s.c.Original.State = storage.Pending }, "", ReasonOriginalNotCharged},
		"no original":            {func(s set) { s.c.Original = nil }, "", ReasonPayloadInvalid},
		"not a correction":       {func(s set) { s.i.Corrects = nil }, "", ReasonPayloadInvalid},
		"no number":              {func(s set) { s.i.Value = "x" }, "", ReasonPayloadInvalid},
		"no corrections":         {func(s set) { s.m.Corrections = exporter.CorrectNone }, "", ReasonCorrectionInexpressible},
		"corrections undeclared": {func(s set) { s.m.Corrections = "" }, "", ReasonCorrectionInexpressible},
		"a part, no negatives":   {func(s set) { s.i.Value, s.m.Values.Negative = "-1", false }, "", ReasonCorrectionInexpressible},
		"late, no negatives": {func(s set) {
			s.c.Original.SinceFirstAttempt, s.m.Values.Negative = 30*time.Hour, false
		}, "", ReasonCorrectionLate},
		"of a negative original": {func(s set) {
			negativeOnly(s.m)
			s.i.Value, s.i.Corrects.Value, s.m.Values.Negative = "12.5", "-12.5", false
		}, exporter.CorrectNegative, ""},
		"replaced total": {func(s set) { s.m.Corrections = exporter.CorrectTotal }, exporter.CorrectTotal, ""},
		"two replaced totals": {func(s set) {
			s.m.Corrections, s.c.Original.Dependents, s.m.Values.Negative = exporter.CorrectTotal, 2, false
		}, "", ReasonCorrectionInexpressible},
		"stored negative stays": {func(s set) { s.c.Method = "negative" }, exporter.CorrectNegative, ""},
		"stored cancel stays":   {func(s set) { s.c.Method, s.c.Original.Dependents = "cancel", 3 }, exporter.CorrectCancel, ""},
		"stored cancel, late": {func(s set) {
			s.c.Method, s.c.Original.SinceFirstAttempt = "cancel", 23*time.Hour
		}, "", ReasonCorrectionLate},
		"stored, disputed since": {func(s set) { s.c.Method, s.c.Original.Disputed = "cancel", "x" }, "", ReasonOriginalDisputed},
	} {
		m := cancelling()
		c := storage.ClaimedItem{Original: &storage.OriginalItem{State: storage.Accepted, SinceFirstAttempt: time.Hour, Dependents: 1}}
		i := exporter.Item{Value: "-12.5", Corrects: &exporter.Corrects{Identifier: "fencepost_0", Value: "12.5"}}
		tc.change(set{&m, &c, &i})
		if method, reason := ChooseMethod(m, c, i); method != tc.method || reason != tc.reason {
			t.Errorf("%s: %q, %q; want %q, %q", name, method, reason, tc.method, tc.reason)
		}
	}
}

// Q18: what each end of an original means for what waits, and nothing else does.
func TestEffects(t *testing.T) {
	t.Parallel()
	for _, r := range append(Table(), Marks()...) {
		waiting, dependents := Effects(storage.SubjectEvent, r.To, r.Trigger)
		got := "nothing"
		switch {
		case waiting == nil:
		case waiting.State == storage.Pending && waiting.Release && waiting.QuarantineReason == nil:
			got = "release"
		case waiting.State == storage.Quarantined && waiting.Release && *waiting.QuarantineReason == "original_not_charged":
			got = "not charged"
		default:
			got = "something else"
		}
		want := map[string]string{
			"T2accepted": "release", "T7confirmed": "release", "T8accepted": "release", "T5rejected": "not charged", "T8rejected": "not charged",
			"Aquarantined": "not charged", "Auncertain": "not charged", "Arejected": "not charged",
		}[r.Name+string(r.To)]
		if want == "" {
			want = "nothing"
		}
		if got != want || dependents != nil {
			t.Errorf("%s to %s: %s, want %s; dependents %+v", r.Name, r.To, got, want, dependents)
		}
		for _, kind := range []storage.SubjectKind{storage.SubjectCorrection, storage.SubjectWindow} {
			if w, d := Effects(kind, r.To, r.Trigger); w != nil || d != nil {
				t.Errorf("%s of %s: %+v, %+v", r.Name, kind, w, d)
			}
		}
	}
}

// addCorrection adds an item that takes back so much of what another reports.
func (b *bench) addCorrection(of int64, ref, value string) int64 {
	b.t.Helper()
	item := b.store.row(of)
	d, _ := b.store.LoadItem(b.t.Context(), of)
	event := *d.Event
	items := BuildCorrectionItems(Corrected{
		Correction: storage.EventKey{Tenant: event.Tenant, EventID: ref}, Effect: decimal.MustParse(value),
		Original: event, Items: []storage.Item{item}, AttemptBudget: 20,
	})
	n := items[0]
	id := b.store.add(storage.ClaimedItem{
		Identity: n.Identity, RouteID: n.RouteID, Customer: n.Customer, SerialKey: n.SerialKey,
		Payload: n.Payload, Mapping: d.Mapping,
	})
	b.store.depend(id, of, n.DependsOn.Wait, n.QuarantineReason)
	return id
}

// Q18, Q19, O21: a correction is not seen before its original was taken, is then
// sent as a cancel that names its original, and the method is stored before.
func TestCorrectionFollowsItsOriginal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		original := b.store.add(sample("req_1", time.Now()))
		correction := b.addCorrection(original, "cor_1", "-12.5")
		down := true
		s := &scripted{manifest: cancelling()}
		s.answer = func(ctx context.Context, it SendItem) reply {
			if it.Kind == "correction" {
				if got := b.store.row(correction); got.Method != "cancel" || got.State != storage.Leased {
					t.Errorf("sent before its method was stored: %+v", got)
				}
			}
			if down {
				return reply{said: exporter.Retry, exchanges: seen(exporter.ClassIndefinite)}
			}
			return honest(b.provider)(ctx, it)
		}
		d := b.deliverer(s)
		for range 3 {
			b.once(d)
			time.Sleep(time.Minute)
		}
		if got := b.want(correction, storage.Pending, ""); got.Attempts != 0 || !got.Waits {
			t.Errorf("waiting costs attempts: %+v", got)
		}
		for _, call := range s.sent() {
			if len(call) != 1 || call[0].Kind != "event" {
				t.Errorf("sent before its original was taken: %+v", call)
			}
		}
		down = false
		b.store.rows[original].item.Unresolved = false // as if refused definitely: cancel stays possible
		b.once(d)
		time.Sleep(time.Second)
		b.once(d)
		b.want(original, storage.Accepted, "")
		b.want(correction, storage.Accepted, "")
		calls := s.sent()
		last := calls[len(calls)-1][0]
		of, own := IdentifierOf(b.store.row(original).Digest), IdentifierOf(b.store.row(correction).Digest)
		if last.Corrects == nil || last.Corrects.Method != exporter.CorrectCancel || last.Corrects.Identifier != of ||
			last.Covers != of || last.Identifier != own || last.Value != "-12.5" || last.Corrects.Value != "12.5" {
			t.Errorf("sent %+v", last)
		}
		if first := calls[0][0]; first.Covers != of || first.Corrects != nil {
			t.Errorf("original sent as %+v", first)
		}
	})
}

// Q18: an original that was refused for good leaves nothing to credit.
func TestCorrectionOfARefusedOriginal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		original := b.store.add(sample("req_1", time.Now()))
		correction := b.addCorrection(original, "cor_1", "-12.5")
		d := b.deliverer(&scripted{manifest: cancelling(), answer: always(reply{said: exporter.Rejected, exchanges: seen(exporter.ClassRefused)})})
		b.once(d)
		b.want(original, storage.Rejected, "")
		if got := b.want(correction, storage.Quarantined, ""); got.QuarantineReason != "original_not_charged" || got.Waits {
			t.Errorf("%+v", got)
		}
	})
}

// Q19: why a correction is not sent is told by its reason, and a cancel without
// an answer that is past its deadline is for a person.
func TestCorrectionsThatAreNotSent(t *testing.T) {
	t.Parallel()
	accepted := func(r *modelRow) {
		r.item.State, r.item.FirstAttemptAt = storage.Accepted, time.Now()
	}
	for name, tc := range map[string]struct {
		manifest func(*exporter.Manifest)
		original func(*modelRow)
		own      func(*modelRow)
		wait     time.Duration
		state    storage.ItemState
		reason   string
		method   string
	}{
		"negative, past the window": {wait: 35 * 24 * time.Hour, state: storage.Quarantined, reason: "correction_late"},
		"no corrections": {
			manifest: func(m *exporter.Manifest) { m.Corrections = exporter.CorrectNone },
			state:    storage.Quarantined, reason: "correction_inexpressible",
		},
		"disputed original": {
			original: func(r *modelRow) { r.item.Disputed = "no_meter_found" },
			state:    storage.Quarantined, reason: "original_disputed",
		},
		"cancel without an answer, late": {
			own: func(r *modelRow) {
				r.item.Method, r.item.Unresolved = "cancel", true
				r.item.FirstUnresolvedAt = time.Now().Add(22 * time.Hour)
			},
			wait:   23 * time.Hour,
			state:  storage.Uncertain,
			method: "cancel",
		},
		"cancel definitely not taken, late": {
			own:  func(r *modelRow) { r.item.Method = "cancel" },
			wait: 23 * time.Hour, state: storage.Quarantined, reason: "correction_late", method: "cancel",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			original := b.store.add(sample("req_1", time.Now()))
			accepted(b.store.rows[original])
			if tc.original != nil {
				tc.original(b.store.rows[original])
			}
			correction := b.addCorrection(original, "cor_1", "-12.5")
			if tc.own != nil {
				tc.own(b.store.rows[correction])
			}
			m := cancelling()
			if tc.manifest != nil {
				tc.manifest(&m)
			}
			time.Sleep(tc.wait)
			s := &scripted{manifest: m, answer: honest(b.provider)}
			b.once(b.deliverer(s))
			if got := b.want(correction, tc.state, ""); got.QuarantineReason != tc.reason || got.Method != tc.method || got.Attempts != 0 || len(s.sent()) != 0 {
				t.Errorf("%s: %+v, %d calls", name, got, len(s.sent()))
			}
			if got := b.store.row(correction); got.Disputed != b.store.row(original).Disputed {
				t.Errorf("%s: disputed %q", name, got.Disputed)
			}
		})
	}
}

// Q19: a worker that lost its lease stores no method and sends nothing; one whose
// answer was lost asks again and goes on.
func TestMethodIsFenced(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			original := b.store.add(sample("req_1", time.Now()))
			b.store.rows[original].item.State, b.store.rows[original].item.FirstAttemptAt = storage.Accepted, time.Now()
			correction := b.addCorrection(original, "cor_1", "-2.5")
			if lost {
				b.store.afterClaim = func() { b.store.rows[correction].item.LeaseToken++ }
			} else {
				b.store.loseAnswers = 2
			}
			s := &scripted{manifest: cancelling(), answer: honest(b.provider)}
			sum := b.once(b.deliverer(s))
			item := b.store.row(correction)
			switch {
			case lost && (item.Method != "" || len(s.sent()) != 0 || sum.Stale != 1):
				t.Errorf("lost: %+v, %d calls, %+v", item, len(s.sent()), sum)
			case !lost && (item.Method != "negative" || item.State != storage.Accepted || sum.Stale != 0):
				t.Errorf("%+v, %+v", item, sum)
			}
		})
	}
}

// Q9: the host's and the plugin's words about a cancel are read by the same
// table, cell by cell.
func TestCancelReadsTheTable(t *testing.T) {
	t.Parallel()
	for _, class := range exporter.HostClasses {
		for _, kind := range exporter.OutcomeKinds {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				original := b.store.add(sample("req_1", time.Now()))
				b.store.rows[original].item.State, b.store.rows[original].item.FirstAttemptAt = storage.Accepted, time.Now().Add(-time.Hour)
				correction := b.addCorrection(original, "cor_1", "-12.5")
				s := &scripted{manifest: cancelling(), answer: always(reply{said: kind, exchanges: seen(class)})}
				b.once(b.deliverer(s))
				want := Decide(Observation{Said: Said(kind), Class: class, Grade: GradeHost, Called: true, Attempts: 1, Budget: 20})
				got := b.store.row(correction)
				if got.State != want.State || got.Unresolved != want.MarkUnresolved || got.Method != "cancel" {
					t.Errorf("%s by %s: %s, unresolved %v, %q", kind, class, got.State, got.Unresolved, got.Method)
				}
			})
		}
	}
}

// Q3: a stored payload that says it corrects nothing, or names a method, is none.
func TestCorrectionPayload(t *testing.T) {
	t.Parallel()
	for _, corrects := range []string{
		`{"identifier":"","value":"1"}`, `{"identifier":"x","value":""}`, `{"identifier":"x","value":"1","method":"cancel"}`, `{}`,
	} {
		raw := `{"feature":"f","value":"-1","timestamp":"2026-01-01T00:00:00Z","period_start":"2026-01-01T00:00:00Z","period_end":"2026-02-01T00:00:00Z","corrects":` + corrects + `}`
		if item, err := Payload(storage.ClaimedItem{Payload: []byte(raw)}); err == nil {
			t.Errorf("%s: %+v", corrects, item)
		}
	}
	shown, err := PayloadJSON(storage.ItemDetail{Item: storage.Item{Method: "cancel"}, Payload: []byte(
		`{"feature":"f","value":"-1","timestamp":"2026-01-01T00:00:00Z","period_start":"2026-01-01T00:00:00Z","period_end":"2026-02-01T00:00:00Z","corrects":{"identifier":"x","value":"1"}}`)})
	if err != nil || !strings.Contains(string(shown), `"corrects":{"method":"cancel","identifier":"x","value":"1"}`) {
		t.Errorf("%s, %v", shown, err)
	}
}

// Q19, O18: what is told must be expressible: of a cancel nothing, of a replaced
// total what is left, of a negative event the effect, while it is not too old.
func TestCheckOfCorrections(t *testing.T) {
	t.Parallel()
	m := testManifest // takes neither negative values nor zero
	old := noon.Add(-35 * 24 * time.Hour)
	for _, tc := range []struct {
		method exporter.CorrectionMode
		value  string
		at     time.Time
		want   Reason
	}{
		{exporter.CorrectCancel, "-12.5", noon, ""},
		{exporter.CorrectCancel, "-12.5", old, ""},
		{exporter.CorrectTotal, "-2.5", noon, ""},
		{exporter.CorrectTotal, "-12.5", noon, ReasonValueDomain},
		{exporter.CorrectTotal, "-2.5", old, ReasonCorrectionLate},
		{exporter.CorrectNegative, "-2.5", noon, ReasonValueDomain},
		{exporter.CorrectNegative, "2.5", noon, ""},
		{exporter.CorrectNegative, "2.5", old, ReasonCorrectionLate},
	} {
		item := exporter.Item{
			Kind: "correction", Account: "acct_1", Mode: "test", Customer: "c", Mapping: map[string]string{"event_name": "x"}, Value: tc.value, Timestamp: tc.at,
			Corrects: &exporter.Corrects{Method: tc.method, Identifier: "fencepost_0", Value: "12.5"},
		}
		if got := Check(m, testDestination, item, noon); got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
	window := exporter.Item{
		Kind: "usage_window", Account: "acct_1", Mode: "test", Customer: "c", Mapping: map[string]string{"event_name": "x"}, Timestamp: old,
	}
	m.Values.Negative = true
	for value, want := range map[string]Reason{"5": ReasonTimestampWindow, "-5": ReasonCorrectionLate} { // Q20
		window.Value = value
		if got := Check(m, testDestination, window, noon); got != want {
			t.Errorf("window of %s: %q", value, got)
		}
	}
}
