package postgres

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// depend makes an item depend on another; with wait it waits for it.
func (o *outbox) depend(item, on int64, wait bool) {
	o.t.Helper()
	o.exec("ALTER TABLE {schema}.fencepost_outbox_items DISABLE TRIGGER no_update")
	o.exec("UPDATE {schema}.fencepost_outbox_items SET depends_on = $2, subject_kind = 'correction' WHERE item = $1", item, on)
	o.exec("ALTER TABLE {schema}.fencepost_outbox_items ENABLE TRIGGER no_update")
	if wait {
		o.exec("ALTER TABLE {schema}.fencepost_outbox_state DISABLE TRIGGER fence")
		o.exec("UPDATE {schema}.fencepost_outbox_state SET waits_for = $2 WHERE item = $1", item, on)
		o.exec("ALTER TABLE {schema}.fencepost_outbox_state ENABLE TRIGGER fence")
	}
}

// Every part that an operator may expect is tested in the statement that
// writes, and only what is given (O11, O12).
func TestOperatorExpects(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for name, test := range map[string]struct {
		expect storage.Expect
		rows   int
	}{
		"open":               {storage.Expect{Settled: &no}, 1},
		"settled":            {storage.Expect{Settled: &yes}, 0},
		"attempts":           {storage.Expect{Attempts: new(1)}, 1},
		"other attempts":     {storage.Expect{Attempts: new(0)}, 0},
		"quiet":              {storage.Expect{QuietFor: new(50 * time.Second)}, 1},
		"not quiet":          {storage.Expect{QuietFor: new(70 * time.Minute)}, 0},
		"within":             {storage.Expect{Within: new(70 * time.Minute)}, 1},
		"not within":         {storage.Expect{Within: new(50 * time.Second)}, 0},
		"trusted":            {storage.Expect{TrustedSince: new(time.Now().Add(-2 * time.Hour))}, 1},
		"not trusted":        {storage.Expect{TrustedSince: new(time.Now().Add(time.Hour))}, 0},
		"all":                {storage.Expect{Settled: &no, Attempts: new(1), QuietFor: new(time.Second), Within: new(2 * time.Hour)}, 1},
		"all but the last":   {storage.Expect{Settled: &no, Attempts: new(1), QuietFor: new(time.Second), Within: new(time.Second)}, 0},
		"nothing of its own": {storage.Expect{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := seeded(t, 1, noSerial)
			o.claim(storage.ClaimRequest{})
			o.move(storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Uncertain, MarkUnresolved: true}})
			o.older(time.Minute)
			test.expect.State = storage.Uncertain
			// Release makes it the full statement, whatever is expected.
			set := storage.Change{State: storage.Rejected, Release: true}
			if rows := o.move(storage.Transition{ItemID: 1, Expect: test.expect, Set: set}); rows[0] != test.rows {
				t.Errorf("rows %d, want %d", rows[0], test.rows)
			}
			o.checkCounts()
		})
	}
}

// A method is chosen once; the lease stays (Q19).
func TestMethodIsWrittenOnce(t *testing.T) {
	t.Parallel()
	o := seeded(t, 2, noSerial)
	o.claim(storage.ClaimRequest{Limit: 1})
	choose := func(m string) int {
		return o.move(storage.Transition{
			ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Leased, Method: &m},
		})[0]
	}
	if n := choose("cancel"); n != 1 {
		t.Fatalf("%d rows", n)
	}
	if n := choose("cancel"); n != 1 {
		t.Errorf("the same again: %d rows", n)
	}
	if n := choose("negative"); n != 0 {
		t.Errorf("another: %d rows", n)
	}
	it := o.load(1).Item
	if it.Method != "cancel" || it.State != storage.Leased || it.LeaseOwner != "worker" || it.LeaseExpiresAt.IsZero() {
		t.Errorf("%+v", it)
	}
	o.refused("UPDATE {schema}.fencepost_outbox_state SET method = 'negative' WHERE item = 1")
	o.refused("UPDATE {schema}.fencepost_outbox_state SET method = NULL WHERE item = 1")
	o.refused("UPDATE {schema}.fencepost_outbox_state SET waits_for = 1 WHERE item = 2")
	o.refused("UPDATE {schema}.fencepost_outbox_items SET depends_on = 1 WHERE item = 2")
}

func (o *outbox) refused(text string) {
	o.t.Helper()
	_, err := o.pools[workPool].Exec(o.t.Context(), withSchema(text, o.target.schema))
	if err == nil || !strings.Contains(err.Error(), "immutable") {
		o.t.Errorf("%s: %v, want refused", text, err)
	}
}

// A customer is filled in once, with the serial key that follows (Q6).
func TestCustomerIsWrittenOnce(t *testing.T) {
	t.Parallel()
	o := seeded(t, 1, noSerial)
	o.exec("ALTER TABLE {schema}.fencepost_outbox_items DISABLE TRIGGER no_update")
	o.exec("UPDATE {schema}.fencepost_outbox_items SET customer = ''")
	o.exec("ALTER TABLE {schema}.fencepost_outbox_items ENABLE TRIGGER no_update")
	set := func(customer, serial string) int {
		return o.move(storage.Transition{
			ItemID: 1, Expect: storage.Expect{State: storage.Pending},
			Set: storage.Change{State: storage.Pending, Customer: &customer, SerialKey: &serial},
		})[0]
	}
	if n := set("cus_7", "k7"); n != 1 {
		t.Fatalf("%d rows", n)
	}
	if n := set("cus_8", "k8"); n != 0 {
		t.Errorf("another: %d rows", n)
	}
	if it := o.load(1).Item; it.Customer != "cus_7" || it.SerialKey != "k7" {
		t.Errorf("%+v", it)
	}
}

// Two who name different customers at once: one wins, the other changes
// nothing (Q6).
func TestCustomerRace(t *testing.T) {
	t.Parallel()
	o := seeded(t, 20, noSerial)
	o.exec("ALTER TABLE {schema}.fencepost_outbox_items DISABLE TRIGGER no_update")
	o.exec("UPDATE {schema}.fencepost_outbox_items SET customer = ''")
	o.exec("ALTER TABLE {schema}.fencepost_outbox_items ENABLE TRIGGER no_update")
	won := make([][]int, 2)
	var wg sync.WaitGroup
	for w, customer := range []string{"cus_a", "cus_b"} {
		wg.Go(func() {
			for id := range int64(20) {
				res, err := o.Transition(t.Context(), []storage.Transition{{
					ItemID: id + 1, Expect: storage.Expect{State: storage.Pending},
					Set: storage.Change{State: storage.Pending, Customer: &customer, AddBudget: 1},
				}})
				if err != nil {
					t.Error(err)
					return
				}
				won[w] = append(won[w], res[0].Rows)
			}
		})
	}
	wg.Wait()
	for i := range won[0] {
		it := o.load(int64(i + 1)).Item
		want := "cus_a"
		if won[1][i] == 1 {
			want = "cus_b"
		}
		if won[0][i]+won[1][i] != 1 || it.Customer != want || it.AttemptBudget != 4 {
			t.Errorf("item %d: %d and %d rows, customer %s, budget %d", i+1, won[0][i], won[1][i], it.Customer, it.AttemptBudget)
		}
	}
}

// What waits is not seen by a claim, and is released with its original: in the
// lean statement of a deliverer, and only if its row changed (Q18, O24).
func TestRelease(t *testing.T) {
	t.Parallel()
	o := seeded(t, 5, noSerial)
	o.depend(2, 1, true)
	o.depend(3, 1, false)
	o.depend(4, 5, true)
	cl := o.claim(storage.ClaimRequest{Limit: 10})
	if got := ids(cl); len(got) != 3 || got[0] != 1 || got[1] != 3 || got[2] != 5 {
		t.Fatalf("claimed %v, want 1, 3 and 5", got)
	}
	if of := cl.Items[1].Original; of == nil || of.ItemID != 1 || of.State != storage.Leased || of.Dependents != 2 {
		t.Errorf("original %+v", of)
	}
	release := &storage.Change{State: storage.Pending, Release: true}
	accept := storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: new(true)}
	fence := fenced(1)
	if rows := o.move(
		storage.Transition{ItemID: 1, Expect: fence, Set: accept, Waiting: release},
		storage.Transition{ItemID: 5, Expect: fenced(7), Set: accept, Waiting: release},
	); rows[0] != 1 || rows[1] != 0 {
		t.Fatalf("rows %v", rows)
	}
	if it := o.load(2).Item; it.Waits || it.DependsOn != 1 || it.State != storage.Pending || it.Attempts != 0 {
		t.Errorf("released: %+v", it)
	}
	if it := o.load(4).Item; !it.Waits {
		t.Errorf("the original of 4 did not move: %+v", it)
	}
	if got := ids(o.claim(storage.ClaimRequest{})); len(got) != 1 || got[0] != 2 {
		t.Errorf("claimed %v, want 2", got)
	}
	// Refused for good: what waits is not charged. T5
	if rows := o.move(storage.Transition{
		ItemID: 5, Expect: fence, Set: storage.Change{State: storage.Rejected},
		Waiting: &storage.Change{State: storage.Quarantined, QuarantineReason: new("original_not_charged"), Release: true},
	}); rows[0] != 1 {
		t.Fatalf("rows %v", rows)
	}
	if it := o.load(4).Item; it.Waits || it.State != storage.Quarantined || it.QuarantineReason != "original_not_charged" {
		t.Errorf("%+v", it)
	}
	o.checkCounts()
}

func ids(cl storage.Claim) []int64 {
	all := make([]int64, len(cl.Items))
	for i := range all {
		all[i] = cl.Items[i].ItemID
	}
	return all
}

// Evidence against an original concerns its corrections; what is disputed stays
// open when it is accepted, and an empty text withdraws it (Q18, Q25).
func TestDispute(t *testing.T) {
	t.Parallel()
	o := seeded(t, 3, noSerial)
	o.depend(2, 1, false)
	o.depend(3, 1, true)
	o.claim(storage.ClaimRequest{Limit: 1})
	o.move(storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: new(true)}})
	dispute := storage.Change{Disputed: new("provider_error"), Settled: new(false)}
	act := storage.Action{Kind: storage.ActionEvidence, Actor: "ops", Reason: "report", EvidenceKind: "provider", Evidence: "x"}
	against := storage.Transition{
		ItemID: 1, Expect: storage.Expect{State: storage.Accepted}, Dependents: &dispute, Action: &act,
		Set: storage.Change{State: storage.Accepted, Disputed: dispute.Disputed, Settled: dispute.Settled},
	}
	if rows := o.move(against); rows[0] != 1 {
		t.Fatal("nothing changed")
	}
	for id, want := range map[int64]string{1: "provider_error", 2: "provider_error", 3: ""} {
		if it := o.load(id).Item; it.Disputed != want || !it.SettledAt.IsZero() {
			t.Errorf("item %d: %q, settled %v", id, it.Disputed, it.SettledAt)
		}
	}
	o.move(storage.Transition{ItemID: 1, Expect: storage.Expect{State: storage.Accepted}, Set: storage.Change{State: storage.Confirmed, ConfirmedNow: true, Settled: new(true)}})
	if it := o.load(1).Item; !it.SettledAt.IsZero() || it.State != storage.Confirmed {
		t.Errorf("disputed and settled: %+v", it)
	}
	o.move(storage.Transition{ItemID: 1, Expect: storage.Expect{State: storage.Confirmed}, Set: storage.Change{State: storage.Confirmed, ConfirmedNow: true, Settled: new(true), Disputed: new("")}})
	d := o.load(1)
	if d.Item.SettledAt.IsZero() || d.Item.Disputed != "" {
		t.Errorf("withdrawn: %+v", d.Item)
	}
	if len(d.Actions) != 1 || d.Actions[0].ItemID != 1 || d.Actions[0].At.IsZero() || d.Actions[0].Evidence != "x" {
		t.Errorf("actions %+v", d.Actions)
	}
	o.checkCounts()
}

// An action is appended if the row changed, and never changes; one without
// actor or reason is refused with all that came with it (O11).
func TestActions(t *testing.T) {
	t.Parallel()
	o := seeded(t, 2, noSerial)
	act := storage.Action{Kind: storage.ActionAbandon, Actor: "ops", Reason: "test", Detail: []byte(`{"b": 1,"a":2}`)}
	give := func(id int64, from storage.ItemState) storage.Transition {
		return storage.Transition{
			ItemID: id, Expect: storage.Expect{State: from}, Action: &act,
			Set: storage.Change{State: storage.Rejected, Settled: new(true)},
		}
	}
	o.move(give(1, storage.Pending), give(2, storage.Uncertain))
	page, err := o.ListActions(t.Context(), storage.ActionQuery{Limit: 1})
	must(t, err)
	if len(page.Actions) != 1 || page.More || page.Actions[0].ItemID != 1 || string(page.Actions[0].Detail) != `{"b": 1,"a":2}` {
		t.Errorf("%+v", page)
	}
	for _, text := range []string{
		"UPDATE {schema}.fencepost_actions SET reason = 'x'", "DELETE FROM {schema}.fencepost_actions",
		"TRUNCATE {schema}.fencepost_actions",
	} {
		o.refused(text)
	}
	act.Actor = ""
	_, err = o.Transition(t.Context(), []storage.Transition{give(2, storage.Pending)})
	if sdk.TagOf(err) != sdk.TagInvalid || o.load(2).Item.State != storage.Pending {
		t.Errorf("without an actor: %v, %s", err, o.load(2).Item.State)
	}
}
