package remote

import (
	"cmp"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
)

func checkSnapshot(in *storage.SnapshotQuery, out *storage.Snapshot) error {
	return first(
		holds(out.Version > 0, "a version"),
		holds(out.ColdUntil.UnixMicro()%storage.BucketLength.Microseconds() == 0 && !out.ColdUntil.IsZero(), "the start of a bucket"),
		holds(!out.ColdUntil.Before(in.ColdFloor), "a time of at least the floor"),
		holds(len(out.Credited) == len(in.Meters), "a credit for each meter"),
		each(out.Credited, func(i int, c *storage.MeterCredit) bool { return c.Meter == in.Meters[i] }, errForeign),
		chosen(out.Events, in.Events),
		chosen(out.Receipts, in.Receipts),
	)
}

// chosen checks that out is made of elements of in, each as often at most.
func chosen(out, in []string) error {
	left := make(map[string]int, len(in))
	for _, id := range in {
		left[id]++
	}
	return each(out, func(_ int, id *string) bool {
		left[*id]--
		return left[*id] >= 0
	}, errForeign)
}

func checkAddCredit(in, out *storage.Credit) error {
	return first(
		foreign(out.Tenant == in.Tenant && out.Meter == in.Meter && out.ID == in.ID && out.Kind == in.Kind && out.Reason == in.Reason && out.Amount.Cmp(in.Amount) == 0),
		holds(out.Seq > 0, "a place in the order"),
	)
}

func checkLastSeals(in *storagev1.LastSealsRequest, out *storagev1.LastSealsAnswer) error {
	asked := make(map[string]bool, len(in.Tenants))
	for _, t := range in.Tenants {
		asked[t] = true
	}
	return each(out.Result, func(_ int, s *storage.Seal) bool {
		ok := asked[s.Tenant] && s.Feature == in.Feature
		delete(asked, s.Tenant)
		return ok
	}, errForeign)
}

func checkCredits(in *storage.CreditQuery, out *storage.CreditPage) error {
	next := in.After
	if n := len(out.Credits); n > 0 {
		next = out.Credits[n-1].Seq
	}
	if out.Next != next {
		return errCursor
	}
	return first(
		page{len(out.Credits), in.Limit, out.More}.check(),
		ascending(out.Credits, &storage.Credit{Seq: in.After}, func(a, b *storage.Credit) int { return cmp.Compare(a.Seq, b.Seq) }),
		each(out.Credits, func(_ int, c *storage.Credit) bool {
			return c.Tenant == in.Tenant && matches(in.Meter, c.Meter) && slices.Contains([]storage.CreditKind{storage.CreditGrant, storage.CreditReset}, c.Kind)
		}, errForeign),
	)
}
