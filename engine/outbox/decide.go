package outbox

import (
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Observation is everything that decides what one attempt means for its item.
type Observation struct {
	Said  Said
	Class exporter.HostClass // ClassNone: no request covered the item
	// OpenBefore: see [Seen].
	OpenBefore bool
	// Grade is who vouches for Class; Trusted that the operator takes the
	// plugin's word for refusals too (trust: outcomes).
	Grade   Grade
	Trusted bool
	// Called is false if the plugin was never entered: nothing was sent.
	Called bool
	// Unresolved is the item's flag before this attempt.
	Unresolved bool
	// Mendable is set if host or plugin marked the refusal as one that an
	// operator can mend.
	Mendable bool
	// DestinationDown is set if the breaker was open before this attempt, so
	// that the item was the probe, and the answer again was one that concerns
	// the destination: not the item's failure, so not its attempt either.
	DestinationDown bool
	Attempts        int // this one included
	Budget          int
}

// Wait says which delay precedes the next attempt.
type Wait string

// The delays.
const (
	WaitNone      Wait = ""
	WaitBackoff   Wait = "backoff"
	WaitRateLimit Wait = "rate_limit"
	WaitReturned  Wait = "returned" // nothing was sent: short, the attempt does not count
)

// Codes that this package writes as last error or reason.
const (
	CodeForeignDuplicate       = "foreign_duplicate"
	CodePluginLied             = "plugin_lied"
	CodeConflict               = "conflict"
	CodeContradicted           = "contradicted"
	CodeRefusedWhileUnresolved = "refused_while_unresolved"
	CodeProviderRefused        = "provider_refused"
	CodeNotSent                = "not_sent"
	CodeNoAnswer               = "no_answer"
	CodeUnknown                = "unknown"
	CodeThrottled              = "throttled"
	CodeRefused                = "refused"
	CodeRetry                  = "retry"
)

// Decision is what one attempt means for its item.
type Decision struct {
	State   storage.ItemState
	Trigger Trigger
	// MarkUnresolved: this attempt has no definite answer.
	MarkUnresolved bool
	// ReturnAttempt: this attempt does not count.
	ReturnAttempt bool
	Wait          Wait
	// Code is this package's reason. Empty if the provider's own code says
	// it best, or nothing went wrong.
	Code string
	// QuarantineReason is set if State is quarantined.
	QuarantineReason string
	// Lied is set if the plugin claimed what the host's evidence excludes,
	// or answered out of contract.
	Lied bool
	// Evidence is who vouches for the decision.
	Evidence Grade
}

// action is what a cell of the outcome table does.
type action uint8

const (
	actAccept        action = iota // accepted
	actAcceptOwn                   // accepted if something of ours was open, else uncertain foreign_duplicate
	actAcceptOwnOpen               // as actAcceptOwn, but uncertain may be this attempt's effect
	actRetry                       // pending after backoff; this attempt had no effect
	actRetryOpen                   // pending after backoff; this attempt may have had an effect
	actWait                        // pending after the rate limit's delay; no effect
	actWaitOpen                    // pending after the rate limit's delay; maybe an effect
	actReturn                      // pending, attempt returned
	actRefuse                      // rejected, or quarantined if mendable; uncertain if something is open
	actUncertain                   // uncertain; this attempt had no effect
	actUncertainOpen               // uncertain; this attempt may have had an effect
)

// cell is one cell of the outcome table.
type cell struct {
	act  action
	code string
	lied bool
	why  string // a key into the documented reasons
}

// Decide is total: every observation has exactly one decision. It reads the
// outcome table and then applies, in this order: what is open turns a refusal
// into uncertain (R1), a mendable refusal into quarantine, a destination that
// is down returns the attempt, and a retry beyond the budget into uncertain.
func Decide(o Observation) Decision {
	class := effective(o)
	c := outcomeTable(o.Said, class)
	d := Decision{Code: c.code, Lied: c.lied, Evidence: vouched(o)}
	open := o.Unresolved || o.OpenBefore
	act := c.act
	if act == actAcceptOwnOpen {
		act, d.MarkUnresolved = actAcceptOwn, !open
	}
	switch act {
	case actAccept:
		d.State, d.Trigger = storage.Accepted, TriggerAccepted
	case actAcceptOwn:
		if open {
			d.State, d.Trigger = storage.Accepted, TriggerAccepted
		} else {
			d.State, d.Trigger, d.Code = storage.Uncertain, TriggerUnknown, CodeForeignDuplicate
		}
	case actRetry, actWait, actRetryOpen, actWaitOpen:
		again(&d, act, o, class)
	case actReturn:
		d.State, d.Trigger, d.Wait, d.ReturnAttempt = storage.Pending, TriggerNotSent, WaitReturned, true
	case actRefuse:
		refuse(&d, open, o.Mendable)
	default:
		d.State, d.Trigger = storage.Uncertain, TriggerUnknown
		d.MarkUnresolved = act == actUncertainOpen
	}
	return d
}

func again(d *Decision, act action, o Observation, class exporter.HostClass) {
	d.State, d.Trigger, d.Wait = storage.Pending, TriggerRetry, WaitBackoff
	if act == actWait || act == actWaitOpen {
		d.Wait = WaitRateLimit
	}
	d.MarkUnresolved = act == actRetryOpen || act == actWaitOpen
	if o.DestinationDown && class == exporter.ClassIndefinite {
		d.ReturnAttempt = true
		return
	}
	if o.Attempts >= o.Budget {
		d.State, d.Trigger, d.Wait, d.Code = storage.Uncertain, TriggerUnknown, WaitNone, storage.CodeAttemptsExhausted
	}
}

func refuse(d *Decision, open, mendable bool) {
	switch {
	case open: // R1: the refusal says nothing of the attempt that is open
		d.State, d.Trigger = storage.Uncertain, TriggerUnknown
		d.Code = CodeRefusedWhileUnresolved
	case mendable:
		d.State, d.Trigger = storage.Quarantined, TriggerProblem
		d.QuarantineReason = CodeProviderRefused
	default:
		d.State, d.Trigger = storage.Rejected, TriggerRefused
	}
}

// effective is the class that the table is read with: what the host saw, as far
// as it vouches for having seen everything.
func effective(o Observation) exporter.HostClass {
	class := o.Class
	if class != ClassNone {
		class = known(class)
	}
	if !o.Called && class == ClassNone {
		return exporter.ClassNotSent
	}
	switch o.Grade {
	case GradeHost:
		return class
	case GradePlugin:
		return byWord(o, class)
	default:
		return exporter.ClassIndefinite
	}
}

// byWord is the class for a plugin that the host cannot watch. What it says was
// taken is believed; that something was not taken, only if it is trusted.
func byWord(o Observation, class exporter.HostClass) exporter.HostClass {
	switch class {
	case exporter.ClassSuccess, exporter.ClassDuplicateOwn:
		return class
	case exporter.ClassRefused, exporter.ClassThrottled, exporter.ClassNotSent:
		if o.Trusted {
			return class
		}
		return exporter.ClassIndefinite
	case exporter.ClassIndefinite:
		return class
	}
	switch o.Said {
	case Said(exporter.Accepted):
		return exporter.ClassSuccess
	case Said(exporter.AcceptedEarlier):
		return exporter.ClassDuplicateOwn
	default:
	}
	if !o.Trusted {
		return exporter.ClassIndefinite
	}
	switch o.Said {
	case Said(exporter.Rejected), Said(exporter.Conflict):
		return exporter.ClassRefused
	case Said(exporter.RateLimited):
		return exporter.ClassThrottled
	default:
		return exporter.ClassIndefinite
	}
}

// vouched is who vouches for the decision.
func vouched(o Observation) Grade {
	switch {
	case !o.Called && o.Class == ClassNone:
		return GradeHost
	case o.Grade == GradeHost, o.Grade == GradePlugin:
		return o.Grade
	default:
		return GradeNone
	}
}
