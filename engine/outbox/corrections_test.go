package outbox

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Q18, B32, A49: a correction's items copy their originals' destinations, stay
// out of the way of what is sent, and none is dropped whatever the original's
// state.
func TestBuildCorrectionItems(t *testing.T) {
	t.Parallel()
	event := sample("req_1", noon).Event
	settled := func(i *storage.Item) { i.SettledAt = noon }
	for name, tc := range map[string]struct {
		state  storage.ItemState
		change func(*storage.Item)
		want   Reason
	}{
		"pending":     {storage.Pending, nil, ReasonNone},
		"leased":      {storage.Leased, nil, ReasonNone},
		"accepted":    {storage.Accepted, settled, ReasonNone},
		"confirmed":   {storage.Confirmed, settled, ReasonNone},
		"uncertain":   {storage.Uncertain, nil, ReasonNone},
		"quarantined": {storage.Quarantined, func(i *storage.Item) { i.QuarantineReason = "no_customer" }, ReasonNone},
		"no candidate": {storage.Quarantined, func(i *storage.Item) {
			i.QuarantineReason, i.SettledAt = "period_buffered", noon
		}, ReasonOriginalIneligible},
		"a candidate after all": {storage.Pending, func(i *storage.Item) { i.QuarantineReason = "period_buffered" }, ReasonNone},
		"rejected":              {storage.Rejected, nil, ReasonOriginalNotCharged},
		"given up":              {storage.Uncertain, settled, ReasonOriginalNotCharged},
		"abandoned":             {storage.Quarantined, settled, ReasonOriginalNotCharged},
	} {
		of := storage.Item{ItemID: 5, Digest: storage.Hash{9}, Identity: sample("req_1", noon).Identity, RouteID: 7, Customer: "cus_1", SerialKey: "s", State: tc.state, Attempts: 3, LeaseToken: 9}
		if tc.change != nil {
			tc.change(&of)
		}
		got := BuildCorrectionItems(Corrected{
			Correction: storage.EventKey{Tenant: event.Tenant, EventID: "cor_1"}, Effect: decimal.MustParse("-2.5"),
			Original: event, Items: []storage.Item{of}, AttemptBudget: 20,
		})
		identity := of.Identity
		identity.SubjectKind, identity.SubjectRef = storage.SubjectCorrection, "cor_1"
		digest, _ := Identifier(identity)
		want := []storage.NewItem{{
			Identity: identity, Digest: digest, SubjectKey: SubjectKey(identity), RouteID: 7, SerialKey: "s", Customer: "cus_1",
			QuarantineReason: string(tc.want), AttemptBudget: 20,
			DependsOn: &storage.Dependency{
				ItemID: 5, State: tc.state, Settled: !of.SettledAt.IsZero(),
				Wait: tc.want == ReasonNone && tc.state != storage.Accepted && tc.state != storage.Confirmed,
			},
		}}
		var payload []byte
		if len(got) == 1 {
			payload, got[0].Payload = got[0].Payload, nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		// The stored payload is what an exporter will get: the original's
		// feature and time, and the effect.
		item, err := Payload(storage.ClaimedItem{Identity: identity, Digest: digest, Payload: payload})
		corrects := exporter.Corrects{Identifier: IdentifierOf(storage.Hash{9}), Value: "12.5"}
		if item.Corrects == nil || *item.Corrects != corrects {
			t.Errorf("%s: corrects %+v", name, item.Corrects)
		}
		if err != nil || item.Value != "-2.5" || !item.Timestamp.Equal(event.OccurredAt) || item.Feature != event.Feature || item.Kind != "correction" {
			t.Errorf("%s: payload %+v, %v", name, item, err)
		}
	}
}

// A correction of what has no item has none; windows are no business of a
// correction; two destinations are two items.
func TestBuildCorrectionItemsOfSeveral(t *testing.T) {
	t.Parallel()
	of := func(exporter string, kind storage.SubjectKind) storage.Item {
		return storage.Item{Identity: storage.Identity{Tenant: "t", SubjectKind: kind, SubjectRef: "r", Exporter: exporter, Mode: "test"}}
	}
	c := Corrected{Correction: storage.EventKey{Tenant: "t", EventID: "c"}, Effect: decimal.One, Original: storage.Event{OccurredAt: time.Now()}}
	if got := BuildCorrectionItems(c); got != nil {
		t.Errorf("%+v", got)
	}
	c.Items = []storage.Item{of("a", storage.SubjectEvent), of("a", storage.SubjectWindow), of("b", storage.SubjectEvent)}
	got := BuildCorrectionItems(c)
	if len(got) != 2 || got[0].Identity.Exporter != "a" || got[1].Identity.Exporter != "b" || got[0].Digest == got[1].Digest {
		t.Errorf("%+v", got)
	}
}
