package stripedouble

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// cancelTrigger begins what triggers of faults see of an adjustment.
const cancelTrigger = "cancel:"

// cancelWithin is how long after it was received an event can be cancelled.
const cancelWithin = 24 * time.Hour

const (
	paramType  = "type"
	typeCancel = "cancel"
)

// parseAdjustment checks the parameters of an adjustment.
func parseAdjustment(params map[string]string) (meterEvent, *apiError) {
	ev := meterEvent{cancels: true, eventName: params[paramEventName], identifier: params[paramCancelID]}
	keys := make([]string, 0, len(params))
	for k := range params {
		keys = append(keys, k)
	}
	slices.Sort(keys) // the first complaint is always the same
	for _, k := range keys {
		if _, expand := nested(k, "expand"); !expand && k != paramEventName && k != paramCancelID && k != paramType {
			return ev, invalid(codeParameterUnknown, k, "Received unknown parameter: "+k)
		}
		if utf8.RuneCountInString(params[k]) > maxNameLength {
			return ev, invalid("", k, "Invalid string: must be at most 100 characters")
		}
	}
	for _, k := range []string{paramEventName, paramType, paramCancelID} {
		if params[k] == "" {
			return ev, invalid(codeParameterMissing, k, "Missing required param: "+k+".")
		}
	}
	if params[paramType] != typeCancel {
		return ev, invalid("", paramType, "Invalid type: must be one of cancel")
	}
	return ev, nil
}

// adjust cancels an event, or says why not. r becomes the record of it. The
// lock is held.
func (s *Server) adjust(rq *request, ev meterEvent, now time.Time, r *record) answer {
	e := rq.book.entries[owned{rq.account, rq.live, ev.identifier}]
	switch {
	case e == nil || e.EventName != ev.eventName || e.Charges == 0:
		return s.refuse(rq, invalid(codeResourceMissing, paramCancelID, "No such meter event: '"+ev.identifier+"'"))
	case !e.CancelledAt.IsZero() && s.cfg.RepeatedCancel == RepeatedCancelTaken:
		return ev.adjusted(rq.live)
	case !e.CancelledAt.IsZero():
		again := invalid("", paramCancelID, "The meter event with identifier "+ev.identifier+" has already been canceled.")
		again.noRetry = true
		return s.refuse(rq, again)
	case now.Sub(e.LastCharged) >= cancelWithin:
		return s.refuse(rq, invalid("", paramCancelID, "You can only cancel events within 24 hours of Stripe receiving them."))
	}
	r.Op, r.Identifier = opCancel, ev.identifier
	return ev.adjusted(rq.live)
}

// cancel takes back one charge. r passed [record.check].
func (b *book) cancel(r record) {
	e := b.entries[owned{r.Account, r.Live, r.Identifier}]
	if e == nil || !e.CancelledAt.IsZero() {
		return
	}
	e.CancelledAt = time.UnixMicro(r.At).UTC()
	v, _ := parseValue(e.Value) // checked before
	t := b.totals[e.EventName]
	t.net = t.net.Sub(v)
	b.cancelled++
}

type adjustmentBody struct {
	Object    string            `json:"object"`
	Cancel    map[string]string `json:"cancel"`
	EventName string            `json:"event_name"`
	Livemode  bool              `json:"livemode"`
	Status    string            `json:"status"`
	Type      string            `json:"type"`
}

// adjusted renders the answer to a cancellation that was taken.
func (ev meterEvent) adjusted(live bool) answer {
	body, err := json.Marshal(adjustmentBody{
		Object: "billing.meter_event_adjustment", Cancel: map[string]string{paramIdentifier: ev.identifier},
		EventName: ev.eventName, Livemode: live, Status: "pending", Type: typeCancel,
	})
	if err != nil { // strings always encode
		return statusError(500).answer(CodesDefault, "", live)
	}
	return answer{status: 200, body: body}
}

// lateFaults writes into a charge's record what will come of it.
func (rq *request) lateFaults(ev meterEvent, now time.Time, r *record) {
	if f := rq.turn.fireLate(kindReject, ev); f != nil {
		r.Code, r.LateAt = f.code, now.Add(f.delay).UnixMicro()
	}
	r.Omit = rq.turn.fireLate(kindOmit, ev) != nil
}

// quoted makes a name fit for a sentence.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "") + "'" }
