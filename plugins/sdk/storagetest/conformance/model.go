package conformance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func modelCases() []Case {
	return []Case{define("model/lockstep", "S16 B49", caps(storage.DurableEvents), lockstepModel)}
}

// lockstep drives an adapter and the reference with the same random
// operations and compares every answer. What an operation is made of follows
// from its seed, so that a failure repeats with the seed of the report.
type lockstep struct {
	*run
	rng    *rand.Rand
	ref    *Reference
	routes [2]int64 // of the adapter and of the reference
	leases map[storage.Hash][2]storage.ClaimedItem
	recent []string // the last operations, for a failure
}

// operation is one kind of step.
type operation struct {
	name   string
	needs  []storage.Capability
	weight int
	do     func(m *lockstep)
}

func operations() []operation {
	durable := storage.DurableEvents
	return []operation{
		{"record", caps(durable), 30, (*lockstep).recordSome},
		{"deliver", caps(durable), 8, (*lockstep).deliverSome},
		{"correct", corrective(), 20, (*lockstep).correctOne},
		{"replace", corrective(), 6, (*lockstep).replaceOne},
		{"load", caps(durable), 6, (*lockstep).loadOne},
		{"totals", caps(durable), 8, (*lockstep).compareTotals},
		{"aggregate", caps(durable), 8, (*lockstep).aggregateOnce},
		{"stream", caps(durable, storage.EventStreaming), 4, (*lockstep).compareStream},
		{"subscribe", caps(durable, storage.Subscriptions), 4, (*lockstep).subscribeOne},
		{"count", caps(storage.Counters), 8, (*lockstep).countSome},
		{"buckets", caps(durable, storage.Buckets), 6, (*lockstep).compareBuckets},
		{"seal", caps(durable, storage.Buckets), 2, (*lockstep).sealOnce},
		{"claim", exporting(), 8, (*lockstep).claimSome},
		{"move", exporting(), 14, (*lockstep).moveSome},
		{"items", exporting(), 4, (*lockstep).compareItems},
	}
}

func lockstepModel(r *run) {
	m := &lockstep{run: r, rng: r.random(2), ref: NewReference(r.opts.Now), leases: map[storage.Hash][2]storage.ClaimedItem{}}
	var ops []operation
	total := 0
	for _, op := range operations() {
		if !slices.ContainsFunc(op.needs, func(c storage.Capability) bool { return !r.manifest.Has(c) }) {
			ops = append(ops, op)
			total += op.weight
		}
	}
	if r.manifest.Has(storage.Outbox) {
		m.routes[0] = r.addRoute("tokens")
		ref := &run{ctx: r.ctx, opts: r.opts, store: m.ref, manifest: m.ref.Describe(), prefix: r.prefix}
		m.routes[1] = ref.addRoute("tokens")
	}
	for step := range r.opts.Steps {
		n := m.rng.IntN(total)
		for _, op := range ops {
			if n -= op.weight; n < 0 {
				m.note("%d %s", step, op.name)
				op.do(m)
				break
			}
		}
		if len(r.messages) > 0 {
			r.errorf("seed %d, step %d; the last operations: %v", r.opts.Seed, step, m.recent)
			return
		}
	}
	for _, op := range ops {
		switch op.name {
		case "totals", "stream", "buckets", "items":
			op.do(m)
		}
	}
}

// note remembers the last operations.
func (m *lockstep) note(format string, args ...any) {
	m.recent = append(m.recent, fmt.Sprintf(format, args...))
	if len(m.recent) > 12 {
		m.recent = m.recent[1:]
	}
}

// must of both sides: an error of either is one.
func (m *lockstep) both(what string, got, want error) {
	if got != nil || want != nil {
		m.fatalf("%s: the adapter answers %v, the reference %v", what, got, want)
	}
}

// pool is how many identities there are of each kind: few, so that they meet.
const pool = 60

// usageOf is the event that an id stands for. Variant 0 is the usual one; any
// other is another fact under the same id.
func (m *lockstep) usageOf(n, variant int) storage.Event {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(variant))) //nolint:gosec // a function of the id
	t := m.tenant([]string{"a", "b"}[n%2])
	e := usage(t, "u"+decimalInt(n), decimalInt(rng.IntN(50))+"."+decimalInt(100+rng.IntN(900)))
	if n%3 == 0 {
		e.Feature = "net"
		if rng.IntN(2) == 0 {
			e.Quantity = e.Quantity.Neg()
		}
	}
	month := n % 2
	e.PeriodStart, e.PeriodEnd = period.AddDate(0, month, 0), period.AddDate(0, month+1, 0)
	e.OccurredAt = e.PeriodStart.Add(time.Duration(n) * 77 * time.Second).Add(time.Duration(variant) * time.Microsecond)
	for _, k := range []string{"m", "r", "value"} {
		if rng.IntN(3) > 0 {
			if e.Dimensions == nil {
				e.Dimensions = map[string]string{}
			}
			e.Dimensions[k] = decimalInt(rng.IntN(4))
		}
	}
	if rng.IntN(3) == 0 {
		e.Metadata = json.RawMessage(`{"n":` + decimalInt(n) + `}`)
	}
	e.DedupeHash = hash("model", t, e.EventID, decimalInt(variant))
	return e
}

// bucketOf is the bucket of an event, or nil for a feature without buckets.
func bucketOf(e *storage.Event) *storage.BucketKey {
	if e.Feature != "tokens" {
		return nil
	}
	k := storage.BucketKey{Start: e.OccurredAt.UTC().Truncate(storage.BucketLength)}
	if v, ok := e.Dimensions["m"]; ok {
		k.Dimensions = map[string]string{"m": v}
	}
	return &k
}

// entryOf is an entry for one side: 0 the adapter, 1 the reference.
func (m *lockstep) entryOf(e storage.Event, side int) storage.Entry {
	out := storage.Entry{Event: e, Signed: e.Feature == "net", Bucket: bucketOf(&e)}
	if !m.manifest.Has(storage.Buckets) {
		out.Bucket = nil
	}
	if m.manifest.Has(storage.Outbox) && e.PayloadHash[0]%2 == 0 {
		out.Items = []storage.NewItem{m.item(&e, m.routes[side])}
	}
	out.Bucket = cloneKey(out.Bucket)
	return out
}

func (m *lockstep) variant() int {
	if m.rng.IntN(6) == 0 {
		return 1
	}
	return 0
}

// recordSome records a batch of distinct ids in any order.
func (m *lockstep) recordSome() {
	var sides [2][]storage.Unit
	for _, n := range m.rng.Perm(pool)[:1+m.rng.IntN(6)] {
		e := m.usageOf(n, m.variant())
		for side := range sides {
			sides[side] = append(sides[side], storage.Unit{Entries: []storage.Entry{m.entryOf(e, side)}})
		}
	}
	m.recordBoth(sides)
}

// deliverSome records CloudEvents that feed none, one or two features.
func (m *lockstep) deliverSome() {
	var sides [2][]storage.Unit
	for _, n := range m.rng.Perm(12)[:1+m.rng.IntN(3)] {
		features := [][]string{{}, {"tokens"}, {"net", "tokens"}}[n%3]
		u := delivery(m.tenant("a"), "d"+decimalInt(n), decimalInt(1+m.variant()), features...)
		for i := range u.Entries {
			u.Entries[i].Signed = u.Entries[i].Event.Feature == "net"
		}
		for side := range sides {
			sides[side] = append(sides[side], u)
		}
	}
	m.recordBoth(sides)
}

func (m *lockstep) recordBoth(sides [2][]storage.Unit) {
	mode := storage.Each
	if m.rng.IntN(2) == 0 {
		mode = storage.Atomic
	}
	got, gotErr := m.try(sides[0], mode)
	want, wantErr := m.ref.RecordEvents(m.ctx, m.refRequest(sides[1], mode))
	m.both("record", gotErr, wantErr)
	m.same(string(mode)+" record of "+unitIDs(sides[0]), unitLines(got), unitLines(want))
}

// refRequest has the revisions of the reference.
func (m *lockstep) refRequest(all []storage.Unit, mode storage.RecordMode) storage.RecordRequest {
	set, err := m.ref.Routes(m.ctx)
	m.must("routes of the reference", err)
	req := storage.RecordRequest{Units: all, Mode: mode, RoutesRevision: set.Revision}
	for _, t := range []string{m.tenant("a"), m.tenant("b")} {
		req.Subscriptions = append(req.Subscriptions, m.refSubscription(t))
	}
	return req
}

func (m *lockstep) refSubscription(tenant string) storage.SubscriptionRevision {
	rev := storage.SubscriptionRevision{Tenant: tenant}
	subs, err := m.ref.Subscriptions(m.ctx, []string{tenant})
	m.must("subscriptions of the reference", err)
	for _, s := range subs {
		rev.Revision = s.Revision
	}
	return rev
}

func unitIDs(all []storage.Unit) string {
	var ids []string
	for i := range all {
		ids = append(ids, unitKey(&all[i]).EventID)
	}
	return text(ids)
}

// unitLines are results without the seqs, which differ.
func unitLines(res storage.RecordResult) []string {
	lines := []string{"superseded " + decimalInt(res.Superseded)}
	for _, u := range res.Units {
		words := []string{string(u.Outcome)}
		for _, e := range u.Entries {
			words = append(words, e.EventID+"/"+e.Feature)
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}

// correctOne corrects an event that may be there or not, by an amount that
// fits or not, under an id that may be taken.
func (m *lockstep) correctOne() {
	original := m.usageOf(m.rng.IntN(pool), 0)
	amount := []string{"0", "0.001", "1", "5.5", original.Quantity.Abs().String()}[m.rng.IntN(5)]
	c := correction(&original, "k"+decimalInt(m.rng.IntN(pool)), amount)
	if m.rng.IntN(20) == 0 {
		c.EventID = m.usageOf(m.rng.IntN(pool), 0).EventID
	}
	req := storage.CorrectRequest{
		Event: c, WholeOnly: m.rng.IntN(5) == 0, Signed: original.Feature == "net", Bucket: bucketOf(&original),
	}
	if known, err := m.ref.LoadCorrectable(m.ctx, storage.EventKey{Tenant: c.Tenant, EventID: c.OriginalEventID}); err == nil &&
		m.rng.IntN(4) == 0 {
		expect := known.Corrected
		if m.rng.IntN(2) == 0 {
			expect = expect.Add(decimal.One)
		}
		req.ExpectCorrected = &expect
	}
	m.correctBoth(req, nil)
}

// replaceOne reverses an event as a whole and records another one.
func (m *lockstep) replaceOne() {
	original := m.usageOf(m.rng.IntN(pool), 0)
	by := m.usageOf(m.rng.IntN(pool), m.variant())
	by.Tenant = original.Tenant
	by.DedupeHash = hash("model", by.Tenant, by.EventID, by.Quantity.String())
	c := correction(&original, "r"+decimalInt(m.rng.IntN(pool)), original.Quantity.Abs().String())
	c.DedupeHash = hash("model", c.Tenant, c.EventID, c.OriginalEventID, c.Quantity.String(), by.EventID, by.Quantity.String())
	m.correctBoth(storage.CorrectRequest{Event: c, Signed: original.Feature == "net", Bucket: bucketOf(&original)}, &by)
}

func (m *lockstep) correctBoth(req storage.CorrectRequest, by *storage.Event) {
	if !m.manifest.Has(storage.Buckets) {
		req.Bucket = nil
	}
	side := func(n int) storage.CorrectRequest {
		out := req
		out.Bucket = cloneKey(req.Bucket)
		if by != nil {
			e := m.entryOf(*by, n)
			e.Items = nil
			out.Replacement = &e
		}
		return out
	}
	got, gotErr := m.tryCorrect(side(0))
	ref := side(1)
	set, err := m.ref.Routes(m.ctx)
	m.must("routes of the reference", err)
	ref.RoutesRevision, ref.Subscriptions = set.Revision, []storage.SubscriptionRevision{m.refSubscription(req.Event.Tenant)}
	want, wantErr := m.ref.RecordCorrection(m.ctx, ref)
	m.both("correct", gotErr, wantErr)
	m.note("correct %s of %s by %s", req.Event.EventID, req.Event.OriginalEventID, req.Event.Quantity)
	m.same("correction "+req.Event.EventID+" of "+req.Event.OriginalEventID+" by "+req.Event.Quantity.String(),
		correctLine(got), correctLine(want))
}

func correctLine(res storage.CorrectResult) string {
	switch {
	case res.Stale != nil:
		return "stale"
	case res.Refused != "":
		return "refused " + res.Refused
	case res.Outcome == storage.Conflict:
		return "conflict"
	}
	line := string(res.Outcome) + " " + res.Correction.EventID + "/" + res.Correction.Feature + " left " + res.Remaining.String()
	if res.Replacement != nil {
		line += " by " + res.Replacement.EventID + "/" + res.Replacement.Feature
	}
	return line
}
