package outbox

import "github.com/fencepost/fencepost/plugins/sdk/exporter"

// Reasons that cells share, by key. docs/outbox-transitions.md prints them.
const (
	whyAgree       = "agree"
	whyEarlier     = "earlier"
	whyEarlierSeen = "earlier-seen"
	whyPattern     = "pattern"
	whyUnseen      = "unseen"
	whyNoClaim     = "no-claim"
	whyNotSent     = "not-sent"
	whyStatus      = "status"
	whyContrary    = "contrary"
	whyMaybe       = "maybe"
	whyLimit       = "limit"
	whyTerminal    = "terminal"
	whySoft        = "soft"
	whyContent     = "content"
	whyGarbled     = "garbled"
	whyHeldBack    = "held-back"
	whyIndefinte   = "indefinite"
)

// Reasons explains the keys that the outcome table uses.
func Reasons() map[string]string {
	return map[string]string{
		whyAgree:       "Host and plugin agree, and the host saw the answer.",
		whyEarlier:     "The provider knew the identifier. That is our own charge only if an attempt of ours is open; otherwise somebody else holds it, and a person must look.",
		whyEarlierSeen: "As above, but the host saw no duplicate, it saw a success: if nothing of ours was open, this attempt may be the charge.",
		whyPattern:     "The host itself read our identifier in the provider's answer, which is stronger than what the plugin makes of it. Ours only if an attempt is open.",
		whyUnseen:      "The plugin claims an answer to a request that the host never saw. Its claim is not evidence, and a plugin that claims this may have sent unseen.",
		whyNoClaim:     "No request covered the item and the plugin claims none: it had no effect. The attempt counts, so that an item that kills its plugin is finite.",
		whyNotSent:     "The host stopped the request before a byte left. That is definite whatever the plugin says, and costs no attempt.",
		whyStatus:      "A success status alone is not acceptance: some providers refuse single items inside it, and the plugin did not confirm this one. The same key is sent again, and the duplicate answer settles it.",
		whyContrary:    "Host and plugin contradict each other about whether it was taken. Neither is believed; a person or read-back decides.",
		whyMaybe:       "The plugin cannot say what the answer means.",
		whyLimit:       "The provider turned the request away before looking at it. Definite, and it counts as an attempt.",
		whyTerminal:    "A refusal about this event, seen by the host and read as final by the plugin. Final only if no earlier attempt is open (R1).",
		whySoft:        "The host saw a refusal, so it had no effect, but the plugin does not read it as final. Trying again within the budget loses nothing.",
		whyContent:     "The identifier is taken with other content. The row is frozen, so it cannot be ours; sending again cannot help.",
		whyGarbled:     "An answer that names an item twice, or items that are not in the batch, may have been meant for another item. It is never the basis of an end state.",
		whyHeldBack:    "The plugin chose not to send. Definite; the attempt counts.",
		whyIndefinte:   "Something was sent and no usable answer came back. The key is stable, so it is sent again within budget and horizon; nothing the plugin says replaces the answer.",
	}
}

// outcomeTable is the total table: what the plugin said by what the host saw.
// Classes and sayings that are not in it read as the ones that claim nothing.
func outcomeTable(said Said, class exporter.HostClass) cell {
	row, ok := outcomes[said]
	if !ok {
		row = outcomes[SaidNothing]
	}
	switch class {
	case ClassNone:
		return row.none
	case exporter.ClassNotSent:
		return row.notSent
	case exporter.ClassSuccess:
		return row.success
	case exporter.ClassDuplicateOwn:
		return row.duplicate
	case exporter.ClassRefused:
		return row.refused
	case exporter.ClassThrottled:
		return row.throttled
	default:
		return row.indefinite
	}
}

type outcomeRow struct {
	none, notSent, success, duplicate, refused, throttled, indefinite cell
}

// outcomes is never written after it is built.
var outcomes = rows()

// rows is the table itself.
func rows() map[Said]outcomeRow {
	returned := cell{actReturn, CodeNotSent, false, whyNotSent}
	returnedLie := cell{actReturn, CodePluginLied, true, whyNotSent}
	own := cell{actAcceptOwn, "", false, whyPattern}
	limit := cell{actWait, CodeThrottled, false, whyLimit}
	limitLie := cell{actWait, CodePluginLied, true, whyLimit}
	open := cell{actRetryOpen, CodeUnknown, false, whyIndefinte}
	openLie := cell{actRetryOpen, CodePluginLied, true, whyIndefinte}
	contrary := cell{actUncertainOpen, CodePluginLied, true, whyContrary}
	garbled := outcomeRow{
		none:       cell{actRetry, CodeContradicted, true, whyNoClaim},
		notSent:    returnedLie,
		success:    cell{actUncertainOpen, CodeContradicted, true, whyGarbled},
		duplicate:  cell{actUncertain, CodeContradicted, true, whyGarbled},
		refused:    cell{actUncertainOpen, CodeContradicted, true, whyGarbled},
		throttled:  cell{actUncertainOpen, CodeContradicted, true, whyGarbled},
		indefinite: cell{actUncertainOpen, CodeContradicted, true, whyGarbled},
	}
	return map[Said]outcomeRow{
		Said(exporter.Accepted): {
			none: cell{actRetryOpen, CodePluginLied, true, whyUnseen}, notSent: returnedLie,
			success: cell{actAccept, "", false, whyAgree}, duplicate: own,
			refused: contrary, throttled: limitLie, indefinite: openLie,
		},
		Said(exporter.AcceptedEarlier): {
			none: cell{actRetryOpen, CodePluginLied, true, whyUnseen}, notSent: returnedLie,
			success: cell{actAcceptOwnOpen, "", false, whyEarlierSeen}, duplicate: cell{actAcceptOwn, "", false, whyEarlier},
			refused: contrary, throttled: limitLie, indefinite: openLie,
		},
		Said(exporter.Retry): {
			none: cell{actRetry, CodeRetry, false, whyHeldBack}, notSent: returned,
			success: cell{actRetryOpen, CodeUnknown, false, whyStatus}, duplicate: own,
			refused: cell{actRetry, CodeRefused, false, whySoft}, throttled: limit, indefinite: open,
		},
		Said(exporter.RateLimited): {
			none: cell{actWait, CodeThrottled, false, whyHeldBack}, notSent: returned,
			success: cell{actWaitOpen, CodeUnknown, false, whyStatus}, duplicate: own,
			refused: cell{actWait, CodeRefused, false, whySoft}, throttled: limit,
			indefinite: cell{actWaitOpen, CodeUnknown, false, whyIndefinte},
		},
		Said(exporter.Rejected): {
			none: cell{actUncertainOpen, CodePluginLied, true, whyUnseen}, notSent: returnedLie,
			success: contrary, duplicate: own,
			refused: cell{actRefuse, "", false, whyTerminal}, throttled: limitLie, indefinite: open,
		},
		Said(exporter.Conflict): {
			none: cell{actUncertainOpen, CodePluginLied, true, whyUnseen}, notSent: returnedLie,
			success:   cell{actUncertainOpen, CodeConflict, false, whyContent},
			duplicate: cell{actUncertain, CodeConflict, false, whyContent},
			refused:   cell{actRefuse, CodeConflict, false, whyTerminal}, throttled: limitLie, indefinite: open,
		},
		Said(exporter.Uncertain): {
			none: cell{actRetryOpen, CodeUnknown, false, whyMaybe}, notSent: returned,
			success:   cell{actUncertainOpen, CodeUnknown, false, whyMaybe},
			duplicate: cell{actUncertain, CodeUnknown, false, whyMaybe},
			refused:   cell{actUncertainOpen, CodeUnknown, false, whyMaybe}, throttled: limit, indefinite: open,
		},
		SaidNothing: {
			none: cell{actRetry, CodeNoAnswer, false, whyNoClaim}, notSent: returned,
			success: cell{actRetryOpen, CodeNoAnswer, false, whyStatus}, duplicate: own,
			refused: cell{actRetry, CodeNoAnswer, false, whySoft}, throttled: limit, indefinite: open,
		},
		SaidTwice:     garbled,
		SaidElsewhere: garbled,
	}
}
