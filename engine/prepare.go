package engine

import (
	"encoding/json"
	"time"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// prepared is one input on its way through a call.
type prepared struct {
	index int
	in    Input
	now   time.Time
	hash  storage.Hash // of the delivery: tells a duplicate from a conflict

	receipt *storage.Receipt
	events  []storage.Event // without period and plan

	// refused is set when the input is invalid; nothing is written for it.
	refused error
	// unmeasured is set when today's meters cannot measure a CloudEvent; that
	// is how it is refused, unless it was received before.
	unmeasured error
	// leader is the first input of the call with the same identity and
	// content; this one is its duplicate.
	leader *prepared
	// rival is the first input of the call with the same identity and other
	// content; this one is in conflict with it, see promote.
	rival *prepared
	// result is the store's word, once written is set.
	result  storage.UnitResult
	written bool
}

// prepareAll validates, hashes and folds. It does no I/O. // S5.
func (r recorder) prepareAll(inputs []Input, now time.Time) []*prepared {
	all := make([]*prepared, len(inputs))
	first := make(map[storage.EventKey]*prepared, len(inputs))
	for i, in := range inputs {
		p := &prepared{index: i, in: in, now: now}
		all[i] = p
		p.refused = r.engine.prepare(p)
		if p.refused != nil || p.unmeasured != nil {
			continue
		}
		id := in.identity()
		switch lead := first[id]; {
		case lead == nil:
			first[id] = p
		case lead.hash == p.hash:
			p.leader = lead
		default:
			p.rival = lead
		}
	}
	return all
}

// leaders are the inputs to write first: one for each identity.
func leaders(all []*prepared) []*prepared {
	var out []*prepared
	for _, p := range all {
		if p.refused == nil && p.leader == nil && p.rival == nil && !p.written {
			out = append(out, p)
		}
	}
	return out
}

// promote returns the inputs to write next. When the store holds other content
// than the leader, the content of its rival may be the one that is stored, and
// that delivery then is a duplicate like any other: what else was in the call,
// perhaps from another caller, must not turn it into a conflict.
func promote(all []*prepared) []*prepared {
	var out []*prepared
	next := map[*prepared]*prepared{} // the leader that lost → the one after it
	for _, p := range all {
		lost := p.rival
		if lost == nil || !lost.written || lost.result.Outcome != storage.Conflict {
			continue
		}
		switch lead := next[lost]; {
		case lead == nil:
			next[lost] = p
			p.rival = nil
			out = append(out, p)
		case lead.hash == p.hash:
			p.rival, p.leader = nil, lead
		default:
			p.rival = lead
		}
	}
	return out
}

func (e *Engine) prepare(p *prepared) error {
	rules := e.rules(p.now)
	switch {
	case p.in.Plain != nil && p.in.Cloud == nil:
		return p.plain(rules)
	case p.in.Cloud != nil && p.in.Plain == nil:
		return p.cloud(rules, e.cfg.Meters)
	}
	return meter.Errors{sdk.Invalid("events", "a plain event or a CloudEvent, not both and not neither")}
}

func (p *prepared) plain(rules meter.Rules) error {
	in := *p.in.Plain
	in.Time = meter.Truncate(in.Time)
	if err := rules.Plain(in).Err(); err != nil {
		return err
	}
	hash, err := in.DedupeHash()
	if err != nil {
		return err
	}
	ev := storage.Event{
		Tenant: in.Tenant, EventID: in.ID, Feature: in.Feature, Quantity: in.Quantity, Kind: storage.Usage,
		OccurredAt: in.Time, Dimensions: in.Dimensions, Metadata: in.Metadata,
		DedupeHash: hash, PayloadHash: hash,
	}
	if in.Time.IsZero() {
		ev.OccurredAt = p.now
		if ev.PayloadHash, err = canon.EventHash(ev); err != nil {
			return err
		}
	}
	p.hash, p.events = hash, []storage.Event{ev}
	return nil
}

func (p *prepared) cloud(rules meter.Rules, meters meter.Set) error {
	in := *p.in.Cloud
	in.Time = meter.Truncate(in.Time)
	if err := rules.CloudEvent(in).Err(); err != nil {
		return err
	}
	var err error
	if p.hash, err = in.DedupeHash(); err != nil {
		return err
	}
	measured, err := meters.Apply(in)
	if err == nil {
		err = rules.Measurements(measured).Err()
	}
	if err != nil {
		p.unmeasured = err
		return nil //nolint:nilerr // an earlier receipt may still settle it
	}
	at := in.Time
	if at.IsZero() {
		at = p.now
	}
	body, err := json.Marshal(in)
	if err != nil {
		return sdk.Invalid("data", "a value that can be stored as JSON")
	}
	p.receipt = &storage.Receipt{
		Tenant: in.Subject, ReceiptID: in.ReceiptID(), Source: in.Source, ID: in.ID, Type: in.Type,
		OccurredAt: at, DedupeHash: p.hash, Body: body,
	}
	for _, m := range measured {
		ev := storage.Event{
			Tenant: in.Subject, EventID: in.EventID(m.Feature), Feature: m.Feature, Quantity: m.Quantity,
			Kind: storage.Usage, OccurredAt: at, Dimensions: m.Dimensions, DedupeHash: p.hash,
		}
		if ev.PayloadHash, err = canon.EventHash(ev); err != nil {
			return err
		}
		p.receipt.Features = append(p.receipt.Features, m.Feature)
		p.events = append(p.events, ev)
	}
	return nil
}

// answer is the result of one input after the store has spoken.
func (p *prepared) answer() Result {
	res := Result{Index: p.index, ID: p.in.id()}
	if p.refused != nil {
		res.Outcome, res.Err = Invalid, p.refused
		return res
	}
	stored, outcome := p.result, Outcome(p.result.Outcome)
	if p.leader != nil {
		stored = p.leader.result
		outcome = Duplicate
		if stored.Outcome == storage.Conflict {
			outcome = Conflict
		}
	}
	if outcome == Conflict || p.rival != nil {
		res.Outcome, res.Err = Conflict, conflictError()
		return res
	}
	res.Outcome = outcome
	if p.in.Cloud == nil {
		if len(stored.Entries) == 1 {
			res.Seq = stored.Entries[0].Seq
		}
		return res
	}
	if outcome == Inserted && len(stored.Entries) == 0 {
		res.Outcome = Unmatched
	}
	for _, en := range stored.Entries {
		res.Entries = append(res.Entries, Entry{Feature: en.Feature, EventID: en.EventID, Outcome: outcome, Seq: en.Seq})
	}
	return res
}
