package remote

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
)

func checkRecordEvents(in *storage.RecordRequest, out *storage.RecordResult) error {
	if out.Stale != nil {
		return first(count(len(out.Units), 0), checkStale(out.Stale))
	}
	if err := first(count(len(out.Units), len(in.Units)), holds(out.Superseded >= 0, "a count")); err != nil {
		return err
	}
	conflict, inserted := false, false
	for i := range out.Units {
		conflict = conflict || out.Units[i].Outcome == storage.Conflict
		inserted = inserted || out.Units[i].Outcome == storage.Inserted
	}
	rolledBack := in.Mode == storage.Atomic && conflict
	if rolledBack && inserted {
		return errors.New("nothing written beside a conflict of an atomic call")
	}
	for i := range out.Units {
		if err := checkUnit(&in.Units[i], &out.Units[i], rolledBack); err != nil {
			return err
		}
	}
	return nil
}

func checkStale(s *storage.Stale) error {
	return holds(s.Routes || s.Items || len(s.Tenants) > 0, "what is stale")
}

func checkUnit(in *storage.Unit, out *storage.UnitResult, rolledBack bool) error {
	switch out.Outcome {
	case storage.Inserted:
		if err := count(len(out.Entries), len(in.Entries)); err != nil {
			return err
		}
		return each(out.Entries, func(i int, e *storage.EntryResult) bool {
			return e.EventID == in.Entries[i].Event.EventID && e.Feature == in.Entries[i].Event.Feature && e.Seq > 0
		}, errForeign)
	case storage.Duplicate:
		if in.Receipt != nil {
			// As first recorded: of other features, perhaps.
			return each(out.Entries, func(_ int, e *storage.EntryResult) bool { return e.EventID != "" && e.Feature != "" }, errForeign)
		}
		return first(count(len(out.Entries), len(in.Entries)), each(out.Entries, func(i int, e *storage.EntryResult) bool {
			return e.EventID == in.Entries[i].Event.EventID
		}, errForeign))
	case storage.Conflict:
		return nil
	default:
		return holds(rolledBack, "an outcome for each unit")
	}
}

func checkLoadEvent(in *storage.EventKey, out *storage.Event) error {
	return foreign(out.Tenant == in.Tenant && out.EventID == in.EventID)
}

func checkLoadReceipt(in *storage.ReceiptKey, out *storage.Receipt) error {
	return foreign(out.Tenant == in.Tenant && out.ReceiptID == in.ReceiptID)
}

func checkLoadTotals(in *storage.TotalsQuery, out *storagev1.LoadTotalsAnswer) error {
	return first(
		each(out.Result, func(_ int, t *storage.Total) bool {
			return t.Tenant == in.Tenant && matches(in.Feature, t.Feature) &&
				(in.From.IsZero() || !t.PeriodStart.Before(in.From)) && (in.To.IsZero() || t.PeriodStart.Before(in.To))
		}, errForeign),
		ascending(out.Result, nil, func(a, b *storage.Total) int {
			return cmp.Or(strings.Compare(a.Feature, b.Feature), a.PeriodStart.Compare(b.PeriodStart))
		}),
	)
}

func checkStreamEvents(in *storage.StreamQuery, out *storage.EventPage) error {
	end := lastSeq(out, in.After)
	// With a filter the last page ends where the store has looked, so that it
	// does not look again.
	beyond := (in.Tenant != "" || in.Feature != "") && !out.More && out.Next > end
	if out.Next != end && !beyond {
		return errCursor
	}
	return first(
		checkEvents(out, in.After, in.Limit),
		each(out.Events, func(_ int, e *storage.Event) bool {
			return matches(in.Tenant, e.Tenant) && matches(in.Feature, e.Feature)
		}, errForeign),
	)
}

func lastSeq(out *storage.EventPage, after int64) int64 {
	if n := len(out.Events); n > 0 {
		return out.Events[n-1].Seq
	}
	return after
}

func checkEvents(out *storage.EventPage, after int64, limit int) error {
	return first(
		page{len(out.Events), limit, out.More}.check(),
		ascending(out.Events, &storage.Event{Seq: after}, func(a, b *storage.Event) int { return cmp.Compare(a.Seq, b.Seq) }),
	)
}

func checkLoadCorrectable(in *storage.EventKey, out *storage.Correctable) error {
	return first(
		checkLoadEvent(in, &out.Original),
		holds(out.Corrected.Sign() >= 0, "magnitudes"),
		each(out.Items, func(_ int, i *storage.Item) bool {
			return i.Identity.Tenant == in.Tenant && i.Identity.SubjectRef == in.EventID
		}, errForeign),
	)
}

func checkListCorrections(in *storagev1.ListCorrectionsRequest, out *storage.EventPage) error {
	if out.Next != lastSeq(out, in.After) {
		return errCursor
	}
	return first(
		checkEvents(out, in.After, in.Limit),
		each(out.Events, func(_ int, e *storage.Event) bool {
			return e.Tenant == in.Original.Tenant && e.OriginalEventID == in.Original.EventID && e.Kind == storage.Correction
		}, errForeign),
	)
}

var refusals = []string{
	storage.RefusedNotFound, storage.RefusedNotUsage, storage.RefusedNothingRemaining, storage.RefusedExceedsOriginal, storage.RefusedPartial,
}

func checkRecordCorrection(in *storage.CorrectRequest, out *storage.CorrectResult) error {
	set := 0
	for _, is := range []bool{out.Stale != nil, out.Refused != "", out.Outcome != ""} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return errors.New("one of stale, refused and an outcome")
	case out.Refused != "":
		return holds(slices.Contains(refusals, out.Refused), "a known reason of refusal")
	case out.Stale != nil || out.Outcome == storage.Conflict:
		return nil
	}
	if out.Correction.EventID != in.Event.EventID || out.Correction.Seq <= 0 || (out.Replacement != nil) != (in.Replacement != nil) {
		return errForeign
	}
	return foreign(out.Replacement == nil || (out.Replacement.EventID == in.Replacement.Event.EventID && out.Replacement.Seq > 0))
}

func checkAggregate(in *storage.AggregateQuery, out *storage.Aggregates) error {
	return first(
		page{len(out.Rows), in.Limit, out.More}.check(),
		each(out.Rows, func(_ int, r *storage.AggregateRow) bool {
			extremes := r.Min != nil || r.Max != nil || r.Latest != nil
			return r.Window >= 0 && r.Window < len(in.Edges)-1 && len(r.Group) == len(in.GroupBy) && (in.Extremes || !extremes)
		}, errForeign),
		ascending(out.Rows, nil, func(a, b *storage.AggregateRow) int {
			return cmp.Or(cmp.Compare(a.Window, b.Window), slices.CompareFunc(a.Group, b.Group, compareGroups))
		}),
	)
}

// compareGroups puts nil first.
func compareGroups(a, b *string) int {
	switch {
	case a == nil || b == nil:
		return cmp.Compare(boolean(a != nil), boolean(b != nil))
	default:
		return strings.Compare(*a, *b)
	}
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

func checkAggregateBuckets(in *storage.AggregateQuery, out *storage.Aggregates) error {
	return checkAggregate(in, out)
}

func checkLoadBuckets(in *storage.BucketQuery, out *storage.BucketPage) error {
	return first(
		page{len(out.Buckets), in.Limit, out.More}.check(),
		each(out.Buckets, func(i int, b *storage.Bucket) bool {
			return b.Tenant == in.Tenant && b.Feature == in.Feature && inside(b.Start, in.From, in.To) && !(in.Unsealed && b.Sealed)
		}, errForeign),
		each(out.Buckets, func(i int, b *storage.Bucket) bool { return i == 0 || !b.Start.Before(out.Buckets[i-1].Start) }, errOrder),
	)
}

func checkSealBuckets(in, out *storage.Seal) error {
	return foreign(out.Tenant == in.Tenant && out.Feature == in.Feature)
}

func checkSubscriptions(in *storagev1.SubscriptionsRequest, out *storagev1.SubscriptionsAnswer) error {
	asked := make(map[string]bool, len(in.Tenants))
	for _, t := range in.Tenants {
		asked[t] = true
	}
	return each(out.Result, func(_ int, s *storage.Subscription) bool {
		ok := asked[s.Tenant]
		delete(asked, s.Tenant)
		return ok
	}, errForeign)
}

func checkPutSubscription(in, out *storage.Subscription) error {
	return first(
		foreign(out.Tenant == in.Tenant && out.Plan == in.Plan && out.Interval == in.Interval && out.Timezone == in.Timezone),
		holds(out.Revision > 0, "a revision that rose"),
	)
}

func checkListSubscriptions(in *storagev1.ListSubscriptionsRequest, out *storagev1.ListSubscriptionsAnswer) error {
	return first(
		atMost(len(out.Result), in.Limit),
		ascending(out.Result, &storage.Subscription{Tenant: in.After}, func(a, b *storage.Subscription) int { return strings.Compare(a.Tenant, b.Tenant) }),
	)
}
