package outbox

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// maxMoreAttempts bounds what one action adds to an item's budget.
const maxMoreAttempts = 1000

// Standing is what settling an item depends on beside the item.
type Standing struct {
	// QuietFor is how long nothing may have been claimed of it: longer than the
	// longest possible send, and the exporter's read-back lag more. // R3, Q23.
	QuietFor time.Duration
	// Horizon is how long an unresolved item may be sent again. Zero: for ever.
	Horizon time.Duration
	// TrustedSince: see [storage.ClaimRequest]. Zero: no such rule.
	TrustedSince time.Time
	// Admissible are the sources of provider evidence of the exporter.
	Admissible []string
	// Budget is how many attempts an item gets that is sent again.
	Budget int
}

// Resolution settles an uncertain item (T8).
type Resolution struct {
	// To is accepted, pending or rejected. An item that was quarantined when a
	// backup was made goes back there instead of to pending, since what it lacked
	// it lacks still; quarantined asks for that by name.
	To storage.ItemState
	// LeaseToken is the one that the item had when somebody looked at it. nil:
	// the one that it has now.
	LeaseToken *int64
	// Evidence is required for accepted, of finding taken, and for rejected, of
	// finding refused; for pending of finding refused, of an item that a restore
	// made uncertain, and for quarantined.
	Evidence *Evidence
	// ProviderRef is the provider's name for it, of accepted.
	ProviderRef string
	// Attempts is how many more it gets, of pending. Zero: the usual number.
	Attempts int
}

// Resolve is T8. There is no way around its conditions. // O26, R3, Q23.
//
// It fails with tag invalid if the resolution breaks a rule and with
// [ErrExpectedStateMismatch] if the item is not what it was taken for.
func Resolve(item storage.Item, r Resolution, s Standing, a Act) (storage.Transition, error) {
	if err := r.check(s, a); err != nil {
		return storage.Transition{}, err
	}
	token := item.LeaseToken
	if r.LeaseToken != nil {
		token = *r.LeaseToken
	}
	quiet, kept := s.QuietFor, item.QuarantineReason
	if r.To == storage.Pending && WasQuarantined(item) {
		r.To = storage.Quarantined
	}
	t := storage.Transition{
		ItemID: item.ItemID,
		Expect: storage.Expect{State: storage.Uncertain, LeaseToken: &token, Settled: new(bool), QuietFor: &quiet},
		Set:    storage.Change{State: r.To},
	}
	settled, detail := true, map[string]any{}
	switch {
	case (r.To == storage.Pending && Restored(item) || r.To == storage.Quarantined) && r.Evidence == nil:
		return storage.Transition{}, refusal("evidence_required", "what the provider's books say of it, finding refused",
			"in the time that the restored store lacks it may have been made anew under another identifier and taken: look before it is sent again")
	case r.To == storage.Quarantined && item.State == storage.Uncertain && !WasQuarantined(item):
		return storage.Transition{}, invalid("to", "accepted, pending or rejected: it was not in quarantine")
	}
	switch r.To {
	case storage.Quarantined: // nothing is sent, so no horizon binds it
		t.Set.QuarantineReason = &kept
		detail["reason"] = kept
	case storage.Accepted:
		t.Set.AcceptedNow, t.Set.Settled = true, &settled
		if ref := clip(r.ProviderRef, maxRef); ref != "" {
			t.Set.ProviderRef = &ref
		}
	case storage.Rejected:
		if item.Identity.SubjectKind != storage.SubjectWindow { // its abandonment says what becomes of the stretch
			t.Set.Settled = &settled
		}
	default:
		if identifierHeld(item) {
			return storage.Transition{}, refusal("identifier_taken", "an item whose identifier the provider does not hold",
				"sent again it is the same answer, or a charge once the provider forgets: resolve it to accepted or rejected, on evidence")
		}
		sendAgain(&t, s)
		t.Set.AddBudget = orDefault(r.Attempts, max(s.Budget, 1))
		detail["attempts"] = t.Set.AddBudget
	}
	t.Waiting, t.Dependents = Effects(item.Identity.SubjectKind, r.To, TriggerRecover)
	action := r.Evidence.with(a.action(storage.ActionResolve, item, r.To, r.Evidence.note(detail)))
	t.Action = &action
	if !Allowed(storage.Uncertain, r.To, TriggerRecover) {
		return storage.Transition{}, invalid("to", "a state that the table has")
	}
	return t, nil
}

// Resendable says why an uncertain item would not be sent if it went back to
// pending, or nil. Original is the item of what a correction takes back: where that
// ended uncharged while the correction was uncertain, nothing would wake the
// correction, and one outside the provider's window would only come back. // Q18.
func Resendable(d storage.ItemDetail, original *storage.Item, m exporter.Manifest, now time.Time) error {
	_, err := Payload(claimedOf(d))
	reason := ReasonNone
	switch ended := original != nil && !Charged(original.State) && (original.State == storage.Rejected || !original.SettledAt.IsZero()); {
	case err != nil:
		reason = ReasonPayloadInvalid
	case ended:
		reason = ReasonOriginalNotCharged
	case original != nil && !Charged(original.State): // waits in order behind it
	default:
		var item exporter.Item
		if item, reason = intent(m, claimedOf(d)); reason == ReasonNone {
			reason = Check(m, Destination{Exporter: d.Item.Identity.Exporter, Account: d.Item.Identity.Account, Mode: d.Item.Identity.Mode}, item, now)
		}
	}
	if reason == ReasonNone {
		return nil
	}
	return refusal("not_sendable", "one that would be sent: "+string(reason), "resolve it to accepted or rejected, on evidence, or abandon it")
}

// Restored reports whether an item is uncertain because the store went back in
// time: what it was by then is not known, nor what took its place.
func Restored(i storage.Item) bool {
	return i.State == storage.Uncertain && i.LastError != nil && i.LastError.Code == codeRestored
}

// WasQuarantined reports whether an uncertain item was in quarantine before the store went
// back in time. Only a restore leaves it the reason.
func WasQuarantined(i storage.Item) bool {
	return i.State == storage.Uncertain && i.QuarantineReason != ""
}

// codeRestored is of what [storage.SettlementStore].MarkRestored made uncertain.
const codeRestored = "restored"

// identifierHeld reports whether an uncertain item got there because the provider
// holds its identifier for another body, or although no attempt of ours is open.
// Without that, only attempts that were all definite and used up leave it
// uncertain without being unresolved.
func identifierHeld(i storage.Item) bool {
	code := ""
	if i.LastError != nil {
		code = i.LastError.Code
	}
	return i.State == storage.Uncertain && (code == CodeConflict || !i.Unresolved && code != storage.CodeAttemptsExhausted)
}

// sendAgain adds what binds only an item that may be sent again.
func sendAgain(t *storage.Transition, s Standing) {
	now := time.Duration(0)
	t.Set.NextAttemptAfter = &now
	if s.Horizon > 0 {
		horizon := s.Horizon
		t.Expect.Within = &horizon
	}
	if !s.TrustedSince.IsZero() {
		since := s.TrustedSince
		t.Expect.TrustedSince = &since
	}
}

func (r Resolution) check(s Standing, a Act) error {
	if err := a.Check(); err != nil {
		return err
	}
	want := map[storage.ItemState]Finding{storage.Accepted: FoundTaken, storage.Rejected: FoundRefused, storage.Pending: FoundRefused, storage.Quarantined: FoundRefused}
	finding, known := want[r.To]
	switch {
	case !known:
		return invalid("to", "accepted, pending or rejected")
	case r.Attempts < 0 || r.Attempts > maxMoreAttempts, r.Attempts != 0 && r.To != storage.Pending:
		return invalid("attempts", "0 to 1000, of pending")
	case r.ProviderRef != "" && r.To != storage.Accepted:
		return invalid("provider_ref", "of accepted")
	case r.Evidence == nil:
		if r.To != storage.Pending && r.To != storage.Quarantined {
			return invalid("evidence", "required: nothing else says what the provider did")
		}
		return nil
	case r.Evidence.Finding != finding:
		return invalid("evidence.finding", string(finding)+", to resolve to "+string(r.To))
	}
	return r.Evidence.Check(s.Admissible)
}

// Abandonment gives an item up: nothing is sent, its state stays, it is settled.
type Abandonment struct {
	LeaseToken *int64 // as in [Resolution]
	// Disposition is of a window: write_off, or restage after a definite
	// refusal. Empty for anything else. // Q20.
	Disposition storage.WindowDisposition
}

// Abandon settles what cannot be mended: rejected, quarantined and uncertain
// items, and accepted ones that are disputed. // O11, O27.
func Abandon(item storage.Item, b Abandonment, s Standing, a Act) (storage.Transition, error) {
	if err := b.check(item, a); err != nil {
		return storage.Transition{}, err
	}
	token, settled := item.LeaseToken, true
	if b.LeaseToken != nil {
		token = *b.LeaseToken
	}
	t := storage.Transition{
		ItemID: item.ItemID,
		Expect: storage.Expect{State: item.State, LeaseToken: &token, Settled: new(bool)},
		Set:    storage.Change{State: item.State, Settled: &settled},
	}
	switch {
	case item.State == storage.Uncertain: // its corrections are told that it was not charged
		quiet := s.QuietFor
		t.Expect.QuietFor = &quiet
	case Charged(item.State) && item.Disputed != "":
	case item.State == storage.Rejected, item.State == storage.Quarantined:
	default:
		return storage.Transition{}, mismatched(item)
	}
	t.Waiting, t.Dependents = Effects(item.Identity.SubjectKind, item.State, TriggerAbandon)
	detail := map[string]any{}
	if b.Disposition != "" {
		detail["disposition"] = b.Disposition
	}
	action := a.action(storage.ActionAbandon, item, item.State, detail)
	t.Action = &action
	return t, nil
}

func (b Abandonment) check(item storage.Item, a Act) error {
	window := item.Identity.SubjectKind == storage.SubjectWindow
	switch {
	case !window && b.Disposition != "":
		return invalid("disposition", "of a usage window")
	case window && b.Disposition != storage.WindowWrittenOff && b.Disposition != storage.WindowRestage:
		return invalid("disposition", "write_off or restage")
	case b.Disposition == storage.WindowRestage && (item.Unresolved || item.State == storage.Uncertain || Charged(item.State)):
		// Reported again it would be a second charge of what may have been taken.
		return refusal("not_refused", "restage is for a window that the provider itself refused; a person's word does not make it so", "write it off")
	}
	return a.Check()
}
