package postgres

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// What reads plain objects of strings answers what the JSON decoder does, or
// leaves them to it (B14).
func TestDimensionsAreRead(t *testing.T) {
	t.Parallel()
	read := func(t interface{ Fatal(args ...any) }, doc string) (map[string]string, error) {
		got := map[string]string{"left": "over"}
		return got, dimensionsInto{&got}.ScanBytes([]byte(doc))
	}
	for _, doc := range []string{
		`{}`, `{"a": "b"}`, `{"a": "b", "c": ""}`, `{"": "", "é": "ü, \"x\": \\"}`, `{"a": ", ", "b": ": "}`, `{"a": "{}"}`,
		`{"a":"b"}`, `{"a": "b"`, `{"a": "b",}`, `{"a": 1}`, `{"a": null}`, `{"a": ["b"]}`, `{"a"}`, `[]`, `null`, ``, `{`, `{"a": "b"} `, `{, "a": "b"}`,
	} {
		var want map[string]string
		wantErr := json.Unmarshal([]byte(doc), &want)
		got, err := read(t, doc)
		if (err == nil) != (wantErr == nil) || err == nil && !maps.Equal(got, want) {
			t.Errorf("%s: %v %v, want %v %v", doc, got, err, want, wantErr)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune(`ab",:{}\ é`)))
		want := rapid.MapOf(text, text).Draw(rt, "dimensions")
		doc, err := json.Marshal(want)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := read(rt, string(doc))
		if err != nil || !maps.Equal(got, want) {
			rt.Fatalf("%s: %v %v", doc, got, err)
		}
	})
}

// A leased item that is settled, which only a store's own tests make, is moved
// and counted as any other (Q25).
func TestSettledLease(t *testing.T) {
	t.Parallel()
	o := seeded(t, 2, noSerial)
	o.wantClaim(storage.ClaimRequest{Limit: 2}, 1, 2)
	settled := true
	o.move(storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Leased, Settled: &settled}})
	o.checkCounts()
	accept := storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: &settled}
	rows := o.move(
		storage.Transition{ItemID: 2, Expect: fenced(1), Set: accept},
		storage.Transition{ItemID: 1, Expect: fenced(1), Set: accept},
	)
	if rows[0] != 1 || rows[1] != 1 {
		t.Errorf("rows %v", rows)
	}
	o.checkCounts()
}

// A claim leaves out of an event what its row says already, and answers it whole:
// that of a correction too, whose effect is not its quantity (T1).
func TestClaimedEventIsWhole(t *testing.T) {
	t.Parallel()
	o := seeded(t, 3, noSerial)
	for _, text := range []string{
		"ALTER TABLE {schema}.fencepost_events DISABLE TRIGGER USER",
		"UPDATE {schema}.fencepost_events SET dedupe_hash = payload_hash WHERE seq = 1",
		"UPDATE {schema}.fencepost_events SET kind = 'correction', original_event_id = 'e1', effect = -quantity, plan = 'pro' WHERE seq = 3",
		"ALTER TABLE {schema}.fencepost_events ENABLE TRIGGER USER",
	} {
		o.exec(text)
	}
	for _, it := range o.wantClaim(storage.ClaimRequest{}, 1, 2, 3).Items {
		want := o.load(it.ItemID).Event
		if want == nil || want.Effect.String() == "0" || !reflect.DeepEqual(it.Event, *want) {
			t.Errorf("item %d\n got %+v\nwant %+v", it.ItemID, it.Event, want)
		}
	}
}

// A leased item with disputed evidence stays open when it is accepted, and is
// settled by a rejection (Q25); whatever else is settled with it.
func TestDisputedLease(t *testing.T) {
	t.Parallel()
	settled := true
	accepted := storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: &settled}
	rejected := storage.Change{State: storage.Rejected, Settled: &settled}
	for name, sets := range map[string][2]storage.Change{
		"accepted": {accepted, accepted}, "rejected": {rejected, rejected}, "one of each": {accepted, rejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := seeded(t, 2, noSerial)
			o.exec("UPDATE {schema}.fencepost_outbox_state SET disputed = 'x'")
			o.wantClaim(storage.ClaimRequest{}, 1, 2)
			o.move(
				storage.Transition{ItemID: 1, Expect: fenced(1), Set: sets[0]},
				storage.Transition{ItemID: 2, Expect: fenced(1), Set: sets[1]},
			)
			for i, set := range sets {
				it := o.load(int64(i + 1)).Item
				if it.State != set.State || !it.SettledAt.IsZero() != (set.State == storage.Rejected) {
					t.Errorf("item %d is %s, settled %v", it.ItemID, it.State, !it.SettledAt.IsZero())
				}
			}
			o.checkCounts()
		})
	}
}

// What is the same for all lines of the log and what differs are both kept (O9).
func TestAttemptsAlikeAndNot(t *testing.T) {
	t.Parallel()
	one := storage.Attempt{
		LeaseToken: 1, Owner: "w", HostClass: "answered", Outcome: "accepted", Evidence: "host", Status: 200, Code: "c",
		Message: "m", Decided: storage.Accepted,
	}
	other := storage.Attempt{
		LeaseToken: 1, Owner: "v", HostClass: "refused", Outcome: "rejected", Evidence: "plugin", Status: 400, RequestID: "r",
		Code: "d", Message: "n", Decided: storage.Rejected,
	}
	for name, second := range map[string]storage.Attempt{"alike": one, "different": other, "empty": {LeaseToken: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := seeded(t, 2, noSerial)
			o.wantClaim(storage.ClaimRequest{}, 1, 2)
			set := storage.Change{State: storage.Uncertain}
			o.move(
				storage.Transition{ItemID: 1, Expect: fenced(1), Set: set, Attempt: &one},
				storage.Transition{ItemID: 2, Expect: fenced(1), Set: set, Attempt: &second},
			)
			for i, want := range []storage.Attempt{one, second} {
				want.ItemID = int64(i + 1)
				if got := o.load(want.ItemID).Attempts; len(got) != 1 || got[0] != want {
					t.Errorf("item %d\n got %+v\nwant %+v", want.ItemID, got, want)
				}
			}
		})
	}
}

// A claim that does not get its turn claims all the same: turns save work and
// decide nothing.
func TestClaimOutOfTurn(t *testing.T) {
	t.Parallel()
	o := seeded(t, 3, noSerial)
	end, alone := o.hints.turn(t.Context(), []int64{o.route})
	if !alone {
		t.Fatal("no turn")
	}
	o.wantClaim(storage.ClaimRequest{Limit: 2}, 1, 2)
	end()
	end() // once
	o.wantClaim(storage.ClaimRequest{Limit: 2}, 3)
}

// What a claim that failed has told of its way hides nothing: what it let go is
// claimed by the next one.
func TestFailedClaimHidesNothing(t *testing.T) {
	t.Parallel()
	o := seeded(t, 4, noSerial)
	o.exec("ALTER TABLE {schema}.fencepost_store ADD CONSTRAINT spent CHECK (claims < 1)")
	_, err := o.Claim(t.Context(), storage.ClaimRequest{Owner: "w1", Routes: []int64{o.route}, Limit: 2, Lease: time.Hour})
	if err == nil {
		t.Fatal("the counter of claims cannot be raised, and the claim went well") // Q17
	}
	o.exec("ALTER TABLE {schema}.fencepost_store DROP CONSTRAINT spent")
	o.wantClaim(storage.ClaimRequest{Limit: 2}, 1, 2)
}

// The unique index of subjects leaves an item out when, and only when, it is
// superseded (Q5).
func (o *outbox) checkSuperseded() {
	o.t.Helper()
	var differ int
	o.query(&differ, `SELECT count(*) FROM {schema}.fencepost_outbox_items AS i JOIN {schema}.fencepost_outbox_state AS s ON s.item = i.item
WHERE i.superseded <> (s.superseded_by IS NOT NULL)`)
	if differ != 0 {
		o.t.Errorf("%d items are superseded in one table and not in the other", differ)
	}
}

// When a hint has been believed for long enough, one claim looks from the
// beginning, and the others go on; what it finds there is the way for all.
func TestOneClaimBeginsAnew(t *testing.T) {
	t.Parallel()
	var h hints
	routes, now := []int64{1}, time.Unix(1000, 0)
	at := func(item int64) hint { return hint{pending: position{time.Unix(900, 0), item}} }
	h.put(routes, h.get(routes, now), at(5))
	now = now.Add(hintLife)
	scout, other := h.get(routes, now), h.get(routes, now)
	if scout.pending != (position{}) || scout.before != at(5).pending || other.pending != at(5).pending || other.before != (position{}) {
		t.Errorf("one %+v, other %+v", scout, other)
	}
	h.put(routes, other, at(7))
	if got := h.pendingNow(routes, other); got != at(7).pending {
		t.Errorf("the others are at %+v", got)
	}
	h.put(routes, scout, at(3))
	if got := h.pendingNow(routes, other); got != at(3).pending {
		t.Errorf("it found items at the beginning, and the others are at %+v", got)
	}
}
