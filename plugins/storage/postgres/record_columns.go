package postgres

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// recordColumns are the arrays of the record statement: a row of input is one
// index into each.
type recordColumns struct {
	events   eventArrays
	receipts receiptArrays
	items    itemArrays
}

type eventArrays struct {
	tenant, id, feature, quantity    []string
	occurred, periodStart, periodEnd []time.Time
	periodSource, plan, planVersion  []string
	dimensions, metadata             []string
	payloadHash, dedupeHash          [][]byte
	signed                           []bool
	receipt                          []int32 // order of its receipt, 0: none
	bucketStart                      []*time.Time
	bucketDimensions                 []string
	buckets                          bool // one of them is not empty
}

type receiptArrays struct {
	tenant, receiptID, source, id, typ []string
	occurred                           []time.Time
	dedupeHash                         [][]byte
	features, eventIDs, body           []string
}

type itemArrays struct {
	ord                                        []int32 // of its event
	tenant, kind, ref, exporter, account, mode []string
	mapping                                    []string
	digest, subject                            [][]byte
	route                                      []int64
	serial, customer, payload, quarantine      []string
	settled                                    []bool
	budget                                     []int32
}

// fill writes the columns anew.
func (r *recorder) fill() error {
	r.columns = recordColumns{}
	c := &r.columns
	order := make(map[int]int32, len(r.receipts))
	for n, unit := range r.receipts {
		order[unit] = int32(n + 1)
		if err := c.receipts.add(&r.req.Units[unit]); err != nil {
			return err
		}
	}
	c.events.grow(len(r.entries))
	for n, p := range r.entries {
		e := r.entry(p)
		if err := c.events.add(e, order[p.unit]); err != nil {
			return err
		}
		for k := range e.Items {
			c.items.add(&e.Items[k], int32(n+1))
		}
	}
	return nil
}

func (a *eventArrays) grow(n int) {
	a.tenant, a.id = slices.Grow(a.tenant, n), slices.Grow(a.id, n)
	a.feature, a.quantity = slices.Grow(a.feature, n), slices.Grow(a.quantity, n)
	a.occurred, a.periodStart = slices.Grow(a.occurred, n), slices.Grow(a.periodStart, n)
	a.periodEnd, a.periodSource = slices.Grow(a.periodEnd, n), slices.Grow(a.periodSource, n)
	a.plan, a.planVersion = slices.Grow(a.plan, n), slices.Grow(a.planVersion, n)
	a.dimensions, a.metadata = slices.Grow(a.dimensions, n), slices.Grow(a.metadata, n)
	a.payloadHash, a.dedupeHash = slices.Grow(a.payloadHash, n), slices.Grow(a.dedupeHash, n)
	a.signed, a.receipt = slices.Grow(a.signed, n), slices.Grow(a.receipt, n)
	a.bucketStart, a.bucketDimensions = slices.Grow(a.bucketStart, n), slices.Grow(a.bucketDimensions, n)
}

func (a *eventArrays) add(e *storage.Entry, receipt int32) error {
	ev := &e.Event
	dimensions := ""
	if len(ev.Dimensions) > 0 {
		b, err := json.Marshal(ev.Dimensions)
		if err != nil {
			return err
		}
		dimensions = string(b)
	}
	a.tenant, a.id = append(a.tenant, ev.Tenant), append(a.id, ev.EventID)
	a.feature = append(a.feature, ev.Feature)
	a.quantity = append(a.quantity, ev.Quantity.String())
	a.occurred = append(a.occurred, ev.OccurredAt)
	a.periodStart, a.periodEnd = append(a.periodStart, ev.PeriodStart), append(a.periodEnd, ev.PeriodEnd)
	a.periodSource = append(a.periodSource, string(ev.PeriodSource))
	a.plan, a.planVersion = append(a.plan, ev.Plan), append(a.planVersion, ev.PlanVersion)
	a.dimensions, a.metadata = append(a.dimensions, dimensions), append(a.metadata, string(ev.Metadata))
	a.payloadHash = append(a.payloadHash, ev.PayloadHash[:])
	a.dedupeHash = append(a.dedupeHash, ev.DedupeHash[:])
	a.signed, a.receipt = append(a.signed, e.Signed), append(a.receipt, receipt)
	var start *time.Time
	key := ""
	if e.Bucket != nil {
		start, a.buckets = &e.Bucket.Start, true
		var err error
		if key, err = bucketDimensions(e.Bucket.Dimensions); err != nil {
			return err
		}
	}
	a.bucketStart, a.bucketDimensions = append(a.bucketStart, start), append(a.bucketDimensions, key)
	return nil
}

func (a *receiptArrays) add(u *storage.Unit) error {
	rc := u.Receipt
	ids := make([]string, len(u.Entries))
	for j, e := range u.Entries {
		ids[j] = e.Event.EventID
	}
	features := rc.Features
	if features == nil {
		features = []string{}
	}
	f, err := json.Marshal(features)
	if err != nil {
		return err
	}
	e, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	a.tenant, a.receiptID = append(a.tenant, rc.Tenant), append(a.receiptID, rc.ReceiptID)
	a.source, a.id, a.typ = append(a.source, rc.Source), append(a.id, rc.ID), append(a.typ, rc.Type)
	a.occurred = append(a.occurred, rc.OccurredAt)
	a.dedupeHash = append(a.dedupeHash, rc.DedupeHash[:])
	a.features, a.eventIDs = append(a.features, string(f)), append(a.eventIDs, string(e))
	a.body = append(a.body, string(rc.Body))
	return nil
}

func (a *itemArrays) add(n *storage.NewItem, ord int32) {
	a.ord = append(a.ord, ord)
	a.tenant, a.kind = append(a.tenant, n.Identity.Tenant), append(a.kind, string(n.Identity.SubjectKind))
	a.ref, a.exporter = append(a.ref, n.Identity.SubjectRef), append(a.exporter, n.Identity.Exporter)
	a.account, a.mode = append(a.account, n.Identity.Account), append(a.mode, n.Identity.Mode)
	a.mapping = append(a.mapping, n.Identity.MappingVersion)
	a.digest, a.subject = append(a.digest, n.Digest[:]), append(a.subject, n.SubjectKey[:])
	a.route, a.serial = append(a.route, n.RouteID), append(a.serial, n.SerialKey)
	a.customer, a.payload = append(a.customer, n.Customer), append(a.payload, string(n.Payload))
	a.quarantine = append(a.quarantine, n.QuarantineReason)
	a.settled = append(a.settled, n.Settled)
	a.budget = append(a.budget, int32(n.AttemptBudget))
}

// args are the values of the record statement with all its parts.
func (r *recorder) args() []any {
	e, c, i := &r.columns.events, &r.columns.receipts, &r.columns.items
	tenants := make([]string, len(r.req.Subscriptions))
	revisions := make([]int64, len(r.req.Subscriptions))
	for n, s := range r.req.Subscriptions {
		tenants[n], revisions[n] = s.Tenant, s.Revision
	}
	args := []any{
		e.tenant, e.id, e.feature, e.quantity, e.occurred, e.periodStart, e.periodEnd,
		e.periodSource, e.plan, e.planVersion, e.dimensions, e.metadata, e.payloadHash, e.dedupeHash, e.signed,
		e.receipt, e.bucketStart, e.bucketDimensions,
		c.tenant, c.receiptID, c.source, c.id, c.typ, c.occurred, c.dedupeHash,
		c.features, c.eventIDs, c.body,
		i.ord,
	}
	args = append(args, i.args()...)
	return append(args, r.req.RoutesRevision, tenants, revisions, r.guard, r.req.Mode == storage.Atomic, !r.still)
}
