package engine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// anna settles items.
var anna = engine.Act{Actor: "anna", Reason: "ticket 7"}

func asserted(f outbox.Finding) *engine.Evidence {
	return &engine.Evidence{Kind: outbox.EvidenceAsserted, Finding: f, Text: "seen in the dashboard"}
}

// O18, O19, O27, Q6, Q18: an item without a customer is requeued with the one
// that is known now, and its correction follows it to the provider.
func TestRequeueWithACustomer(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"tokens": "llm"}))
		record(d.t, d.Engine, plain("req_1", "10"))
		d.correct("cor_1", "")
		items := d.want("quarantined no_customer", "pending waits")
		if _, err := d.Requeue(d.t.Context(), items[0].ItemID, engine.Requeue{}, anna); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "still_ineligible"}) {
			d.t.Errorf("%v", err)
		}
		d.customer("cus_1")
		dry := anna
		dry.DryRun = true
		if got, err := d.Requeue(d.t.Context(), items[0].ItemID, engine.Requeue{}, dry); err != nil || !got.DryRun || got.To != storage.Pending {
			d.t.Errorf("%+v, %v", got, err)
		}
		d.want("quarantined no_customer", "pending waits")
		d.log()
		if got, err := d.Requeue(d.t.Context(), items[0].ItemID, engine.Requeue{}, anna); err != nil || got.From != storage.Quarantined || got.Superseded {
			d.t.Errorf("%+v, %v", got, err)
		}
		for _, i := range d.want("pending", "pending waits") {
			if i.Customer != "cus_1" || i.SerialKey == "" {
				d.t.Errorf("%+v", i)
			}
		}
		d.deliver()
		items = d.want("accepted", "accepted")
		if len(d.sent) != 2 || d.sent[0].Kind != "event" || d.sent[1].Kind != "correction" || d.sent[1].Customer != "cus_1" || d.sent[1].Value != "-10" ||
			d.sent[1].Corrects.Identifier != outbox.IdentifierOf(items[0].Digest) || items[1].Method != "cancel" || d.sent[1].Corrects.Method != exporter.CorrectCancel || d.sent[1].Covers != d.sent[0].Identifier {
			d.t.Errorf("%+v", d.sent)
		}
		d.log(storage.ActionRequeue)
		if _, err := d.Requeue(d.t.Context(), items[0].ItemID, engine.Requeue{}, anna); !errors.Is(err, outbox.ErrExpectedStateMismatch) {
			d.t.Errorf("%v", err)
		}
	})
}

// O19, O24, Q5, F55: a feature that was mapped late is made anew with its
// corrections, in one transaction, and each is sent once.
func TestRequeueUnderANewMapping(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"other": "x"}))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		d.correct("cor_1", "2.5")
		items := d.want("quarantined feature_unmapped", "pending waits")
		d.apply(plan(map[string]string{"other": "x", "tokens": "llm"}))
		got, err := d.Requeue(d.t.Context(), items[0].ItemID, engine.Requeue{}, anna)
		if err != nil || !got.Superseded || got.NewItemID == 0 {
			d.t.Fatalf("%+v, %v", got, err)
		}
		d.want("quarantined feature_unmapped superseded", "pending waits superseded", "pending", "pending waits")
		d.deliver()
		items = d.want("quarantined feature_unmapped superseded", "pending waits superseded", "accepted", "accepted")
		if len(d.sent) != 2 || d.sent[0].Identifier != outbox.IdentifierOf(items[2].Digest) || d.sent[1].Corrects.Identifier != d.sent[0].Identifier || d.sent[1].Mapping["event_name"] != "llm" {
			d.t.Errorf("%+v", d.sent)
		}
		d.log(storage.ActionSupersede)
		if _, err := d.Requeue(d.t.Context(), items[0].ItemID, engine.Requeue{}, anna); !errors.Is(err, outbox.ErrExpectedStateMismatch) {
			d.t.Errorf("%v", err)
		}
	})
}

// O26, R3: a plan is applied item by item, what moved since is refused, and the
// rest goes on.
func TestRecoverPlanAndApply(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"tokens": "llm"}))
		d.customer("cus_1")
		for _, id := range []string{"req_1", "req_2", "req_3", "req_4"} {
			record(d.t, d.Engine, plain(id, "10"))
		}
		d.correct("cor_1", "1")
		d.answer = exporter.ClassIndefinite
		d.deliver()
		items := d.want("uncertain", "uncertain", "uncertain", "uncertain", "pending waits")
		d.pass(time.Minute)
		p, err := d.RecoverPlan(d.t.Context(), engine.RecoverFilter{Exporter: "stripe"})
		if err != nil || len(p.Items) != 4 || p.Next != 0 {
			d.t.Fatalf("%+v, %v", p, err)
		}
		for _, i := range p.Items {
			if !slices.Contains(i.May, storage.Accepted) || !slices.Contains(i.May, storage.Rejected) || i.Identifier == "" || i.LastError == "" {
				d.t.Errorf("%+v", i)
			}
		}
		p.Items[0].To, p.Items[0].Evidence = storage.Rejected, asserted(outbox.FoundRefused)
		p.Items[1].To, p.Items[1].Evidence, p.Items[1].ProviderRef = storage.Accepted, asserted(outbox.FoundTaken), "evt_2"
		p.Items[2].To = storage.Accepted // without evidence
		p.Items[3].To, p.Items[3].Evidence = storage.Rejected, asserted(outbox.FoundRefused)
		// Somebody else settles the last one meanwhile.
		if _, err := d.Resolve(d.t.Context(), items[3].ItemID, engine.Resolution{To: storage.Accepted, Evidence: asserted(outbox.FoundTaken)}, anna); err != nil {
			d.t.Fatal(err)
		}
		dry := anna
		dry.DryRun = true
		for _, act := range []engine.Act{dry, anna} {
			got, err := d.RecoverApply(d.t.Context(), p, act)
			if err != nil || len(got) != 4 || got[0].Err != nil || got[1].Err != nil || !errors.Is(got[2].Err, sdk.ErrInvalid) || !errors.Is(got[3].Err, outbox.ErrExpectedStateMismatch) {
				d.t.Errorf("%+v, %v", got, err)
			}
			var moved *outbox.StateMismatchError
			if !errors.As(got[3].Err, &moved) || moved.Current != storage.Accepted {
				d.t.Errorf("%v", got[3].Err)
			}
		}
		items = d.want("rejected", "accepted", "uncertain", "accepted", "quarantined original_not_charged")
		if items[1].ProviderRef != "evt_2" || items[0].SettledAt.IsZero() {
			d.t.Errorf("%+v", items)
		}
		d.log(storage.ActionResolve, storage.ActionResolve, storage.ActionResolve)
		if _, err := d.Abandon(d.t.Context(), items[2].ItemID, engine.Abandonment{}, anna); err != nil {
			d.t.Error(err)
		}
		if p, err := d.RecoverPlan(d.t.Context(), engine.RecoverFilter{}); err != nil || len(p.Items) != 0 {
			d.t.Errorf("%+v, %v", p, err)
		}
	}, func(c *engine.Config) { c.AttemptBudget = 1 })
}

// Q17, T8: what a restore made uncertain is sent again only by somebody who looked,
// and a plan from before it is refused as a whole.
func TestRecoverAfterARestore(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		ctx := d.t.Context()
		d.apply(plan(map[string]string{"tokens": "llm"}))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		old, err := d.RecoverPlan(ctx, engine.RecoverFilter{})
		if err != nil {
			d.t.Fatal(err)
		}
		item := d.want("pending")[0]
		settle := d.st.(storage.SettlementStore)
		if n, err := settle.MarkRestored(ctx, storage.RestoreRequest{
			Before: item.CreatedAt.Add(time.Hour), Since: item.CreatedAt, Limit: 10,
			Action: storage.Action{Kind: storage.ActionRestore, Actor: "anna", Reason: "backup"},
		}); err != nil || n != 1 {
			d.t.Fatalf("%d, %v", n, err)
		}
		if i := d.want("uncertain")[0]; i.ClaimedAt.IsZero() {
			d.t.Error("the quiet time begins before the restore")
		}
		old.MadeAt = noon.Add(-time.Hour)
		if _, err := d.RecoverApply(ctx, old, anna); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "restored_since"}) {
			d.t.Errorf("%v", err)
		}
		if _, err := d.Resolve(ctx, item.ItemID, engine.Resolution{To: storage.Pending}, anna); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "evidence_required"}) {
			d.t.Errorf("%v", err)
		}
		if _, err := d.Resolve(ctx, item.ItemID, engine.Resolution{To: storage.Pending, Evidence: asserted(outbox.FoundRefused)}, anna); err != nil {
			d.t.Fatal(err)
		}
		d.deliver()
		d.want("accepted")
	})
}

// restored settles that the store went back in time.
func (d *desk) restored(before, since time.Time, want int64) {
	d.t.Helper()
	n, err := d.st.(storage.SettlementStore).MarkRestored(d.t.Context(), storage.RestoreRequest{
		Before: before, Since: since, Limit: 10,
		Action: storage.Action{Kind: storage.ActionRestore, Actor: "anna", Reason: "ticket 7"},
	})
	if err != nil || n != want {
		d.t.Fatalf("%d, %v", n, err)
	}
}

// Q17, O26, O27: an item that waited for a customer or a mapping when the backup was
// made waits again once somebody looked at the books, and is requeued when it is
// there. A plan offers that, and not to send what nobody could send.
func TestQuarantinedBeforeARestore(t *testing.T) {
	t.Parallel()
	for reason, routes := range map[string]map[string]string{"no_customer": {"tokens": "llm"}, "feature_unmapped": {"other": "x"}} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			onDesks(t, func(d *desk) {
				ctx, mapped := d.t.Context(), reason == "no_customer"
				d.apply(plan(routes))
				if !mapped {
					d.customer("cus_1")
				}
				record(d.t, d.Engine, plain("req_1", "10"))
				item := d.want("quarantined " + reason)[0]
				d.restored(item.CreatedAt.Add(time.Hour), item.CreatedAt, 1)
				d.want("uncertain " + reason)
				if mapped {
					d.customer("cus_1")
				} else {
					d.apply(plan(map[string]string{"other": "x", "tokens": "llm"}))
				}
				if _, err := d.Resolve(ctx, item.ItemID, engine.Resolution{To: storage.Pending}, anna); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: "evidence_required"}) {
					d.t.Errorf("%v", err)
				}
				p, err := d.RecoverPlan(ctx, engine.RecoverFilter{})
				if err != nil || len(p.Items) != 1 || !slices.Equal(p.Items[0].May, []storage.ItemState{storage.Quarantined, storage.Accepted, storage.Rejected}) {
					d.t.Fatalf("%+v, %v", p, err)
				}
				p.MadeAt = time.Time{} // the engine's clock stands
				p.Items[0].To, p.Items[0].Evidence = p.Items[0].May[0], asserted(outbox.FoundRefused)
				if !mapped {
					p.Items[0].To = storage.Pending // what people ask for
				}
				if got, err := d.RecoverApply(ctx, p, anna); err != nil || got[0].Err != nil || got[0].To != storage.Quarantined {
					d.t.Fatalf("%+v, %v", got, err)
				}
				d.deliver()
				if i := d.want("quarantined " + reason)[0]; !i.SettledAt.IsZero() {
					d.t.Errorf("%+v", i)
				}
				got, err := d.Requeue(ctx, item.ItemID, engine.Requeue{}, anna)
				if err != nil || got.Superseded == mapped {
					d.t.Fatalf("%+v, %v", got, err)
				}
				d.deliver()
				if mapped {
					d.want("accepted")
				} else {
					d.want("quarantined "+reason+" superseded", "accepted")
				}
				if len(d.sent) != 1 || d.sent[0].Customer != "cus_1" {
					d.t.Errorf("%+v", d.sent)
				}
			})
		})
	}
}

// O26: past the horizon an item of the lost time is not requeued under the
// identifier that the provider may have forgotten, only made anew.
func TestQuarantinedLongBeforeARestore(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		ctx := d.t.Context()
		d.apply(plan(map[string]string{"tokens": "llm"}))
		record(d.t, d.Engine, plain("req_1", "10"))
		item := d.want("quarantined no_customer")[0]
		d.restored(item.CreatedAt.Add(time.Hour), noon.Add(-25*time.Hour), 1)
		d.customer("cus_1")
		if got, err := d.Resolve(ctx, item.ItemID, engine.Resolution{To: storage.Pending, Evidence: asserted(outbox.FoundRefused)}, anna); err != nil || got.To != storage.Quarantined {
			d.t.Fatalf("%+v, %v", got, err)
		}
		dry := anna
		dry.DryRun = true
		for _, act := range []engine.Act{dry, anna} {
			if _, err := d.Requeue(ctx, item.ItemID, engine.Requeue{}, act); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: storage.CodeHorizonPassed}) {
				d.t.Errorf("%v", err)
			}
		}
		d.apply(plan(map[string]string{"tokens": "llm_2"}))
		if got, err := d.Requeue(ctx, item.ItemID, engine.Requeue{}, anna); err != nil || !got.Superseded {
			d.t.Fatalf("%+v, %v", got, err)
		}
		d.deliver()
		d.want("quarantined no_customer superseded", "accepted")
	})
}

// R3, Q11: what goes back to pending gets attempts and is sent again.
func TestResolveToPending(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"tokens": "llm"}))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		d.answer = exporter.ClassThrottled // definite, so no horizon binds it
		d.deliver()
		items := d.want("uncertain")
		d.pass(time.Minute)
		if _, err := d.Resolve(d.t.Context(), items[0].ItemID, engine.Resolution{To: storage.Pending, Attempts: 2}, anna); err != nil {
			d.t.Fatal(err)
		}
		d.answer = ""
		d.deliver()
		if i := d.want("accepted")[0]; i.AttemptBudget != 3 || i.Attempts != 2 {
			d.t.Errorf("%+v", i)
		}
		d.log(storage.ActionResolve)
	}, func(c *engine.Config) { c.AttemptBudget = 1 })
}

// O12, Q18, Q25: late evidence against an accepted item is shown beside its state
// and holds its correction back; when it is withdrawn, both go on by themselves, and
// what was given up stays so.
func TestDisputedOriginal(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"tokens": "llm"}))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		d.deliver()
		original := d.want("accepted")[0]
		if _, err := d.AddEvidence(d.t.Context(), original.ItemID, *asserted(outbox.FoundRefused), anna); err != nil {
			d.t.Fatal(err)
		}
		d.correct("cor_1", "1")
		d.deliver()
		d.correct("cor_2", "1")
		d.deliver()
		items := d.want("accepted disputed", "quarantined original_disputed disputed", "quarantined original_disputed disputed")
		if _, err := d.Abandon(d.t.Context(), items[2].ItemID, engine.Abandonment{}, anna); err != nil {
			d.t.Fatal(err)
		}
		if stats, err := d.st.OutboxStats(d.t.Context()); err != nil || stats.Disputed == 0 || !items[0].SettledAt.IsZero() {
			d.t.Errorf("%+v, %v, %+v", stats, err, items[0])
		}
		if _, err := d.Requeue(d.t.Context(), items[1].ItemID, engine.Requeue{}, anna); !errors.Is(err, sdk.ErrConflict) {
			d.t.Errorf("%v", err)
		}
		if _, err := d.AddEvidence(d.t.Context(), original.ItemID, *asserted(outbox.FoundTaken), anna); err != nil {
			d.t.Fatal(err)
		}
		d.want("accepted", "pending", "quarantined original_disputed")
		d.deliver()
		for _, i := range d.want("accepted", "accepted", "quarantined original_disputed") {
			if i.SettledAt.IsZero() {
				d.t.Errorf("%+v", i)
			}
		}
		d.log(storage.ActionEvidence, storage.ActionAbandon, storage.ActionEvidence, storage.ActionRequeue)
	})
}

// Q18: when the dispute of an original is withdrawn, so is the one that its
// corrections have from it, whatever state they are in, and none of their own.
func TestInheritedDispute(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"tokens": "llm"}))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		d.deliver()
		for _, id := range []string{"cor_1", "cor_2"} {
			d.correct(id, "1")
			d.deliver()
		}
		d.correct("cor_3", "1")
		items := d.want("accepted", "accepted", "accepted", "pending")
		say := func(i int, f outbox.Finding, text string) {
			d.t.Helper()
			ev := asserted(f)
			ev.Text = text
			if _, err := d.AddEvidence(d.t.Context(), items[i].ItemID, *ev, anna); err != nil {
				d.t.Fatal(err)
			}
		}
		say(2, outbox.FoundRefused, "the second one too") // of its own
		say(0, outbox.FoundRefused, "seen")
		items = d.want("accepted disputed", "accepted disputed", "accepted disputed", "pending disputed")
		if items[1].Disputed != "seen" || !items[1].SettledAt.IsZero() {
			d.t.Errorf("%+v", items[1])
		}
		say(0, outbox.FoundTaken, "it is there")
		items = d.want("accepted", "accepted", "accepted disputed", "pending")
		if items[1].SettledAt.IsZero() || items[2].Disputed != "the second one too" || !items[2].SettledAt.IsZero() || !items[3].SettledAt.IsZero() {
			d.t.Errorf("%+v", items)
		}
		say(2, outbox.FoundTaken, "also there")
		if items = d.want("accepted", "accepted", "accepted", "pending"); items[2].SettledAt.IsZero() {
			d.t.Errorf("%+v", items[2])
		}
	})
}

// O12, O25: a message of the provider that comes again disputes nothing again, also
// after somebody withdrew what it said.
func TestEvidenceThatComesAgain(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		d.apply(plan(map[string]string{"tokens": "llm"}))
		d.customer("cus_1")
		record(d.t, d.Engine, plain("req_1", "10"))
		d.deliver()
		id := d.want("accepted")[0].ItemID
		report := engine.Evidence{Kind: outbox.EvidenceProvider, Source: outbox.SourceErrorReport, Finding: outbox.FoundRefused, Text: "evt_1: no_meter_found"}
		add := func(ev engine.Evidence) {
			if _, err := d.AddEvidence(d.t.Context(), id, ev, anna); err != nil {
				d.t.Fatal(err)
			}
		}
		add(report)
		add(report)
		d.want("accepted disputed")
		add(*asserted(outbox.FoundTaken))
		add(report)
		d.want("accepted")
		report.Text = "evt_2: no_meter_found"
		add(report)
		d.want("accepted disputed")
		d.log(storage.ActionEvidence, storage.ActionEvidence, storage.ActionEvidence)
	}, func(c *engine.Config) {
		m := manifest()
		m.ReadBack.Evidence = []string{outbox.SourceErrorReport}
		c.Manifests = map[string]exporter.Manifest{"stripe": m}
	})
}

// What does not exist is not found, in every command.
func TestSettlingWhatIsNotThere(t *testing.T) {
	t.Parallel()
	onDesks(t, func(d *desk) {
		ctx := d.t.Context()
		_, e1 := d.Resolve(ctx, 9, engine.Resolution{To: storage.Pending}, anna)
		_, e2 := d.Requeue(ctx, 9, engine.Requeue{}, anna)
		_, e3 := d.Abandon(ctx, 9, engine.Abandonment{}, anna)
		_, e4 := d.AddEvidence(ctx, 9, *asserted(outbox.FoundTaken), anna)
		for _, err := range []error{e1, e2, e3, e4} {
			if !errors.Is(err, sdk.ErrNotFound) {
				d.t.Errorf("%v", err)
			}
		}
	})
}
