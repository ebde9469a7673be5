package outbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Bounds of what is said with an action, in characters.
const (
	MaxActor    = 200
	MaxReason   = 1000
	maxDisputed = 200
)

// Act says who does something, and why. Both are stored with it.
type Act struct {
	Actor  string // 1 to 200 characters
	Reason string // 1 to 1000 characters
	// DryRun asks what would be done and writes nothing. What depends on the
	// store's clock is then told by the program's own.
	DryRun bool
}

// Check fails with tag invalid if the act does not say who or why.
func (a Act) Check() error {
	if !said(a.Actor, MaxActor) {
		return invalid("actor", "who does this: 1 to 200 characters without control characters")
	}
	if !said(a.Reason, MaxReason) {
		return invalid("reason", "why: 1 to 1000 characters without control characters")
	}
	return nil
}

// said reports whether a text says something that a person can read.
func said(s string, most int) bool {
	return strings.TrimSpace(s) != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= most &&
		!strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })
}

// Finding is what evidence says of an item.
type Finding string

// The findings.
const (
	FoundTaken   Finding = "taken"   // the provider counted it
	FoundRefused Finding = "refused" // the provider did not count it, and will not
)

// Kinds of evidence. Sources of the provider's are those that an exporter's
// manifest lists in ReadBack.Evidence.
const (
	EvidenceProvider = "provider"
	EvidenceAsserted = "asserted" // a person's statement

	SourceSumPresent  = "sum_present"
	SourceErrorReport = "error_report"
)

// Evidence is what is known of an item beside what the host saw itself. A search
// that found nothing is none: a provider may show late what it took. // Q23.
type Evidence struct {
	Kind    string // provider or asserted
	Source  string // of kind provider
	Finding Finding
	Text    string // 1 to 1000 characters
}

// Check fails with tag invalid, naming the field and the rule. admissible are the
// sources that the exporter's manifest lists.
func (e Evidence) Check(admissible []string) error {
	switch {
	case e.Finding != FoundTaken && e.Finding != FoundRefused:
		return invalid("evidence.finding", "taken or refused")
	case !said(e.Text, MaxReason):
		return invalid("evidence.text", "what it says: 1 to 1000 characters without control characters")
	case e.Kind == EvidenceAsserted:
		if e.Source != "" {
			return invalid("evidence.source", "empty with a person's statement")
		}
		return nil
	case e.Kind != EvidenceProvider:
		return invalid("evidence.kind", "provider or asserted")
	case !slices.Contains(admissible, e.Source):
		return invalid("evidence.source", "one that the exporter's manifest lists: "+strings.Join(admissible, ", "))
	case e.Source == SourceSumPresent && e.Finding != FoundTaken, e.Source == SourceErrorReport && e.Finding != FoundRefused:
		return invalid("evidence.finding", "what "+e.Source+" can show")
	}
	return nil
}

// action is the line of the log for an act on an item.
func (a Act) action(kind storage.ActionKind, item storage.Item, to storage.ItemState, detail map[string]any) storage.Action {
	out := storage.Action{
		ItemID: item.ItemID, Kind: kind, Actor: a.Actor, Reason: a.Reason, From: item.State, To: to,
	}
	if len(detail) > 0 {
		if raw, err := json.Marshal(detail); err == nil {
			out.Detail = raw
		}
	}
	return out
}

// with adds evidence to an action.
func (e *Evidence) with(a storage.Action) storage.Action {
	if e != nil {
		a.EvidenceKind, a.Evidence = e.Kind, e.Text
	}
	return a
}

// note is what of evidence is stored as detail.
func (e *Evidence) note(detail map[string]any) map[string]any {
	if e == nil {
		return detail
	}
	if detail == nil {
		detail = map[string]any{}
	}
	detail["finding"] = e.Finding
	if e.Source != "" {
		detail["source"] = e.Source
	}
	return detail
}

// found is what the evidence of a stored action says.
func found(a storage.Action) Finding {
	var detail struct {
		Finding Finding `json:"finding"`
	}
	if json.Unmarshal(a.Detail, &detail) != nil {
		return ""
	}
	return detail.Finding
}

// The two ways in which an item is not what somebody who settles it took it for.
// errors.Is answers for both, and both are conflicts.
var (
	ErrExpectedStateMismatch = &sdk.Error{Tag: sdk.TagConflict, Code: "expected_state_mismatch"}
	ErrMappingChanged        = &sdk.Error{Tag: sdk.TagConflict, Code: "mapping_changed"}
)

// StateMismatchError says that an item moved, and where it is now. Nothing was
// written. It is [ErrExpectedStateMismatch].
type StateMismatchError struct {
	ItemID       int64
	Current      storage.ItemState
	LeaseToken   int64
	Settled      bool
	SupersededBy int64 // zero: not superseded
	// Moved says what is not as it was expected, for people; empty where nobody
	// expected anything of the item in particular.
	Moved string
}

func mismatched(i storage.Item, moved ...string) error {
	return &StateMismatchError{
		ItemID: i.ItemID, Current: i.State, LeaseToken: i.LeaseToken, Settled: !i.SettledAt.IsZero(), SupersededBy: i.SupersededBy,
		Moved: strings.Join(moved, "; "),
	}
}

// Error says where the item is now.
func (e *StateMismatchError) Error() string {
	return fmt.Sprintf("conflict: item %d is %s, expected_state_mismatch", e.ItemID, e.Now())
}

// Now says where the item is, for people.
func (e *StateMismatchError) Now() string {
	s := string(e.Current)
	if e.Settled {
		s += ", settled"
	}
	if e.SupersededBy != 0 {
		s += fmt.Sprintf(", superseded by item %d", e.SupersededBy)
	}
	s += fmt.Sprintf(", lease token %d", e.LeaseToken)
	if e.Moved != "" {
		s += " (" + e.Moved + ")"
	}
	return s
}

// differences says what of an item is not as it is expected to be.
func differences(e storage.Expect, i storage.Item) []string {
	var all []string
	note := func(differs bool, form string, args ...any) {
		if differs {
			all = append(all, fmt.Sprintf(form, args...))
		}
	}
	note(i.SupersededBy != 0, "another item has taken its place")
	note(i.State != e.State, "its state was to be %s", e.State)
	note(e.LeaseToken != nil && *e.LeaseToken != i.LeaseToken, "its lease token was to be %d", deref(e.LeaseToken))
	note(e.Settled != nil && *e.Settled == i.SettledAt.IsZero(), "it was to be %s", settledText(deref(e.Settled)))
	note(e.Attempts != nil && *e.Attempts != i.Attempts, "it was to have %d attempts, it has %d", deref(e.Attempts), i.Attempts)
	note(e.Unresolved != nil && *e.Unresolved != i.Unresolved, "an attempt without an answer was opened or closed")
	return all
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

func settledText(settled bool) string {
	if settled {
		return "settled"
	}
	return "open"
}

// Unwrap returns the tagged error.
func (e *StateMismatchError) Unwrap() error { return ErrExpectedStateMismatch }

// MappingChangedError says that what an item was made with is not in force any
// more, and that it cannot be made anew. Nothing was written. It is
// [ErrMappingChanged].
type MappingChangedError struct {
	ItemID     int64
	Current    string // the version in force; empty: none
	State      storage.ItemState
	LeaseToken int64
	Settled    bool
	Why        string
}

func mappingChanged(i storage.Item, current, why string) error {
	return &MappingChangedError{
		ItemID: i.ItemID, Current: current, State: i.State, LeaseToken: i.LeaseToken, Settled: !i.SettledAt.IsZero(), Why: why,
	}
}

// Error says why the item stays as it was made.
func (e *MappingChangedError) Error() string {
	return fmt.Sprintf("conflict: item %d: %s, mapping_changed", e.ItemID, e.Why)
}

// Unwrap returns the tagged error.
func (e *MappingChangedError) Unwrap() error { return ErrMappingChanged }

// Unmet is the first expectation that an item does not meet, as an error, or nil.
// now is an estimate of the store's clock, so only the store's own answer decides
// about durations.
func Unmet(e storage.Expect, i storage.Item, now time.Time) error {
	if moved := differences(e, i); len(moved) > 0 {
		return mismatched(i, moved...)
	}
	if e.MappingVersion != nil && *e.MappingVersion != i.Identity.MappingVersion {
		return mappingChanged(i, i.Identity.MappingVersion, "made with another mapping than expected")
	}
	since := i.FirstUnresolvedAt
	switch {
	case e.QuietFor != nil && !i.ClaimedAt.IsZero() && now.Sub(i.ClaimedAt) < *e.QuietFor:
		return refusal("too_early", fmt.Sprintf("nothing was claimed of it for %s", *e.QuietFor), "a request may still be on its way: wait and try again")
	case e.Within != nil && !since.IsZero() && now.Sub(since) >= *e.Within:
		return refusal(storage.CodeHorizonPassed, fmt.Sprintf("unresolved for less than %s", *e.Within), "the provider may have forgotten the identifier: resolve it to accepted or rejected, on evidence")
	case e.TrustedSince != nil && !since.IsZero() && since.Before(*e.TrustedSince):
		return refusal(storage.CodeClockUntrusted, "unresolved since a time that the clock can tell", "resolve it to accepted or rejected, on evidence")
	}
	return nil
}

func refusal(code, rule, hint string) error {
	return &sdk.Error{Tag: sdk.TagConflict, Code: code, Field: "item", Rule: rule, Hint: hint}
}

// Evidence against an item is shown beside its state in this form.
func disputeText(e Evidence) string {
	text := e.Text
	if e.Source != "" {
		text = e.Source + ": " + text
	}
	return clip(cleanMessage(text), maxDisputed)
}
