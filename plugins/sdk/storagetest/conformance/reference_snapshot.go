package conformance

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// snapshotState is what outposts are answered from, beside events and buckets.
type snapshotState struct {
	versions map[[2]string]int64
	credits  []storage.Credit
}

// Snapshot answers one question.
func (s *Reference) Snapshot(ctx context.Context, q storage.SnapshotQuery) (storage.Snapshot, error) {
	if err := checkSnapshotQuery(&q); err != nil {
		return storage.Snapshot{}, err
	}
	if err := s.begin(ctx); err != nil {
		return storage.Snapshot{}, err
	}
	defer s.mu.Unlock()
	now := s.clock()
	out := storage.Snapshot{AsOf: now, ColdUntil: now.Truncate(storage.BucketLength), Events: []string{}, Receipts: []string{}, Credited: []storage.MeterCredit{}}
	end := out.ColdUntil.Add(storage.BucketLength)
	if q.Bootstrap {
		out.ColdUntil = end
	}
	if q.ColdFloor.After(end) {
		return storage.Snapshot{}, clash("cold_regressed")
	}
	if q.ColdFloor.After(out.ColdUntil) && !s.flaws.has(flawFloorIgnored) {
		out.ColdUntil = q.ColdFloor.UTC()
	}
	s.snapshotVersion(&q, &out)
	s.snapshotTotals(&q, &out)
	s.snapshotEvents(&q, &out)
	for _, m := range q.Meters {
		out.Credited = append(out.Credited, storage.MeterCredit{Meter: m, Amount: s.credited(q.Tenant, m)})
	}
	_, subscribed := s.subscriptions[q.Tenant]
	out.Known = subscribed || slices.ContainsFunc(s.settled.credits, func(c storage.Credit) bool { return c.Tenant == q.Tenant }) ||
		slices.ContainsFunc(s.events, func(e storage.Event) bool { return e.Tenant == q.Tenant })
	return out, nil
}

// checkSnapshotQuery names what is wrong with a question.
func checkSnapshotQuery(q *storage.SnapshotQuery) error {
	switch {
	case q.Tenant == "":
		return sdk.Invalid("tenant", "required")
	case q.Feature == "":
		return sdk.Invalid("feature", "required")
	case q.Reducer == "" || len(q.Reducer) > 128:
		return sdk.Invalid("reducer", "1 to 128 bytes")
	case len(q.Meters) > 100:
		return sdk.Invalid("meters", "at most 100")
	case len(q.Events)+len(q.Receipts) > 1000:
		return sdk.Invalid("events", "with the receipts at most 1000")
	case !q.ColdFloor.IsZero() && q.ColdFloor.UnixMicro()%storage.BucketLength.Microseconds() != 0:
		return sdk.Invalid("cold_floor", "the start of a bucket")
	}
	return nil
}

func (s *Reference) snapshotVersion(q *storage.SnapshotQuery, out *storage.Snapshot) {
	key := [2]string{q.Tenant, q.Reducer}
	out.Version = max(s.settled.versions[key]+1, out.AsOf.UnixMicro())
	if s.flaws.has(flawVersionStands) {
		out.Version = 1
	}
	s.settled.versions[key] = out.Version
}

func (s *Reference) snapshotTotals(q *storage.SnapshotQuery, out *storage.Snapshot) {
	if seals := s.seals[[2]string{q.Tenant, q.Feature}]; len(seals) > 0 {
		out.WindowStart = seals[len(seals)-1].Before.UTC()
	}
	for _, b := range s.bucketsOf(q.Tenant, q.Feature, time.Time{}, out.ColdUntil) {
		if b.Sealed && !s.flaws.has(flawSnapshotCountsSealed) || !s.flaws.has(flawSnapshotUnfiltered) && !holdsAll(b.Dimensions, q.Filter) {
			continue
		}
		out.Sum = out.Sum.Add(b.Sum)
		out.Count += b.Count
		out.Min, out.Max = least(out.Min, b.Min), most(out.Max, b.Max)
	}
}

func holdsAll(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

func (s *Reference) snapshotEvents(q *storage.SnapshotQuery, out *storage.Snapshot) {
	cold := func(at time.Time) bool { return at.Before(out.ColdUntil) || s.flaws.has(flawConfirmsHot) }
	for _, id := range q.Events {
		seq, ok := s.byKey[storage.EventKey{Tenant: q.Tenant, EventID: id}]
		if !ok {
			continue
		}
		ev := s.event(seq)
		if ev == nil || !cold(ev.OccurredAt) {
			continue
		}
		sealed := s.sealsOver(q.Tenant, ev.Feature, ev.OccurredAt.Truncate(storage.BucketLength), ev.Seq) < s.sealsOver(q.Tenant, ev.Feature, ev.OccurredAt.Truncate(storage.BucketLength), 1<<62)
		if sealed && s.flaws.has(flawConfirmsCountedOnly) {
			continue
		}
		out.Events = append(out.Events, id)
	}
	for _, id := range q.Receipts {
		if r, ok := s.receipts[storage.ReceiptKey{Tenant: q.Tenant, ReceiptID: id}]; ok && cold(r.OccurredAt) {
			out.Receipts = append(out.Receipts, id)
		}
	}
}

// credited adds up a meter's credits since its last reset.
func (s *Reference) credited(tenant, meter string) decimal.Decimal {
	var sum decimal.Decimal
	for _, c := range s.settled.credits {
		if c.Tenant != tenant || c.Meter != meter {
			continue
		}
		if c.Kind == storage.CreditReset && !s.flaws.has(flawResetAdds) {
			sum = decimal.Decimal{}
		}
		sum = sum.Add(c.Amount)
	}
	return sum
}

// AddCredit appends a credit.
func (s *Reference) AddCredit(ctx context.Context, c storage.Credit) (storage.Credit, error) {
	if err := checkCredit(&c); err != nil {
		return storage.Credit{}, err
	}
	if err := s.begin(ctx); err != nil {
		return storage.Credit{}, err
	}
	defer s.mu.Unlock()
	return s.addCredit(c)
}

func (s *Reference) addCredit(c storage.Credit) (storage.Credit, error) {
	for _, old := range s.settled.credits {
		if old.Tenant == c.Tenant && old.Meter == c.Meter && old.ID == c.ID && !s.flaws.has(flawCreditTwice) {
			if old.Kind != c.Kind || !old.Amount.Equal(c.Amount) || old.Reason != c.Reason {
				return storage.Credit{}, clash("credit_exists")
			}
			return old, nil
		}
	}
	c.Seq, c.CreatedAt = int64(len(s.settled.credits))+1, s.clock()
	s.settled.credits = append(s.settled.credits, c)
	return c, nil
}

// checkCredit names what is wrong with a credit.
func checkCredit(c *storage.Credit) error {
	switch {
	case c.Tenant == "":
		return sdk.Invalid("tenant", "required")
	case c.Meter == "" || len(c.Meter) > 128:
		return sdk.Invalid("meter", "1 to 128 bytes")
	case c.ID == "" || len(c.ID) > 128:
		return sdk.Invalid("id", "1 to 128 bytes")
	case c.Kind != storage.CreditGrant && c.Kind != storage.CreditReset:
		return sdk.Invalid("kind", "grant or reset")
	case len(c.Reason) > 1000:
		return sdk.Invalid("reason", "at most 1000 bytes")
	}
	return nil
}

// sealCredits appends the credits of a seal, all or none.
func (s *Reference) sealCredits(seal *storage.Seal) error {
	if s.flaws.has(flawSealForgetsCredits) {
		return nil
	}
	before := len(s.settled.credits)
	for i := range seal.Credits {
		c := seal.Credits[i]
		err := checkCredit(&c)
		if err == nil && c.Tenant != seal.Tenant {
			err = sdk.Invalid("credits", "of the tenant whose buckets are sealed")
		}
		if err == nil {
			_, err = s.addCredit(c)
		}
		if err != nil {
			s.settled.credits = s.settled.credits[:before]
			return err
		}
	}
	return nil
}

// LastSeals returns the last seal of each tenant.
func (s *Reference) LastSeals(ctx context.Context, feature string, tenants []string) ([]storage.Seal, error) {
	if len(tenants) > 1000 {
		return nil, sdk.Invalid("tenants", "at most 1000")
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	all := []storage.Seal{}
	for _, t := range tenants {
		if seals := s.seals[[2]string{t, feature}]; len(seals) > 0 {
			all = append(all, seals[len(seals)-1].Seal)
		}
	}
	return all, nil
}

// Credits returns a page of credits.
func (s *Reference) Credits(ctx context.Context, q storage.CreditQuery) (storage.CreditPage, error) {
	if err := s.begin(ctx); err != nil {
		return storage.CreditPage{}, err
	}
	defer s.mu.Unlock()
	if q.Limit < 1 || q.Limit > 1000 {
		return storage.CreditPage{}, sdk.Invalid("limit", "1 to 1000")
	}
	page := storage.CreditPage{Credits: []storage.Credit{}, Next: q.After}
	for _, c := range s.settled.credits {
		if c.Tenant != q.Tenant || c.Seq <= q.After || cmp.Or(q.Meter, c.Meter) != c.Meter {
			continue
		}
		if len(page.Credits) == q.Limit {
			page.More = true
			break
		}
		page.Credits = append(page.Credits, c)
		page.Next = c.Seq
	}
	return page, nil
}
