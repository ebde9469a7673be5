package providerdouble_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/internal/providerdouble"
	"github.com/fencepost/fencepost/plugins/exporters/cloudevents"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const token = "om_test_0123456789"

func ofType(kind string) func(*exporter.Item) {
	return func(i *exporter.Item) { i.Mapping = map[string]string{"event_type": kind} }
}

func openMeter(t *testing.T) (*rig, *providerdouble.OpenMeter) {
	t.Helper()
	double := &providerdouble.OpenMeter{Token: token}
	if err := double.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = double.Close() })
	return newRig(t, lab{
		build: cloudevents.New, double: &double.Server, now: noon, secrets: map[string]string{cloudevents.SecretAPIKey: token},
		config: exporter.Configuration{Settings: json.RawMessage(`{"shape":"openmeter"}`)},
	}), double
}

func lago(t *testing.T) (*rig, *providerdouble.Lago) {
	t.Helper()
	double := &providerdouble.Lago{Token: token}
	if err := double.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = double.Close() })
	return newRig(t, lab{
		build: cloudevents.New, double: &double.Server, now: noon, secrets: map[string]string{cloudevents.SecretAPIKey: token},
		config: exporter.Configuration{Settings: json.RawMessage(`{"shape":"lago"}`)},
	}), double
}

func (r *rig) addMany(n int, kind string) []string {
	r.t.Helper()
	var ids []string
	for range n {
		ids = append(ids, r.add(ofType(kind)))
	}
	return ids
}

func all(states []storage.ItemState, want storage.ItemState) bool {
	return !slices.ContainsFunc(states, func(s storage.ItemState) bool { return s != want })
}

// A batch is one request, and each event is counted with its exact value.
func TestOpenMeterTakesABatch(t *testing.T) {
	t.Parallel()
	r, double := openMeter(t)
	ids := r.addMany(40, "calls")
	if got := r.deliver(ids...); !all(got, storage.Accepted) || double.Requests() != 1 {
		t.Errorf("%v in %d requests", got, double.Requests())
	}
	if got := double.Taken("fencepost", "fencepost_item7"); !slices.Equal(got, []string{"5"}) {
		t.Errorf("%v", got)
	}
}

// A 5xx in a batch leaves all of it open: the events before it were taken. The
// same ids settle it, and nothing is counted twice.
func TestOpenMeterFailsOnTheWay(t *testing.T) {
	t.Parallel()
	r, double := openMeter(t)
	ids := r.addMany(10, "calls")
	double.FailAt(6)
	if got := r.deliver(ids...); !all(got, storage.Pending) {
		t.Fatalf("%v", got)
	}
	for _, id := range ids {
		if !r.items[id].unresolved {
			t.Errorf("item %s is not open", id)
		}
	}
	if got := r.deliver(ids...); !all(got, storage.Accepted) {
		t.Errorf("%v", got)
	}
	for _, id := range ids {
		if got := double.Taken("fencepost", "fencepost_item"+id); len(got) != 1 {
			t.Errorf("item %s was counted %d times", id, len(got))
		}
	}
}

// One event that cannot be taken holds back no other, and leaves none open.
func TestOpenMeterSplitsABatch(t *testing.T) {
	t.Parallel()
	r, double := openMeter(t)
	ids := r.addMany(5, "calls")
	r.items[ids[2]].Mapping = map[string]string{} // a mapping that changed after the check
	got := r.deliver(ids...)
	want := []storage.ItemState{storage.Accepted, storage.Accepted, storage.Rejected, storage.Accepted, storage.Accepted}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if n := double.Requests(); n != 6 {
		t.Errorf("%d requests", n)
	}
}

func TestOpenMeterAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault providerdouble.Fault
		open  bool
		wait  outbox.Wait
	}{
		"401":       {providerdouble.Fault{Status: 401}, true, outbox.WaitBackoff},
		"429":       {providerdouble.Fault{Status: 429, RetryAfter: "3"}, false, outbox.WaitRateLimit},
		"503":       {providerdouble.Fault{Status: 503}, true, outbox.WaitBackoff},
		"a proxy":   {providerdouble.Fault{Status: 400, Body: "{}"}, true, outbox.WaitBackoff},
		"no answer": {providerdouble.Fault{After: true}, true, outbox.WaitBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, double := openMeter(t)
			double.Next(tt.fault)
			id := r.add(ofType("calls"))
			it := r.one(id, storage.Pending)
			if it.unresolved != tt.open || it.last.Wait != tt.wait {
				t.Errorf("unresolved %v, wait %q, want %v %q", it.unresolved, it.last.Wait, tt.open, tt.wait)
			}
			r.one(id, storage.Accepted)
			if got := double.Taken("fencepost", "fencepost_item1"); len(got) != 1 {
				t.Errorf("counted %d times", len(got))
			}
		})
	}
}

// Lago's batch is all or nothing. After an answer that was lost, every event is
// there: they are read back, and each is accepted because it says what we said.
func TestLagoAfterALostAnswer(t *testing.T) {
	t.Parallel()
	r, double := lago(t)
	ids := r.addMany(20, "calls")
	double.Next(providerdouble.Fault{After: true, Status: 500})
	if got := r.deliver(ids...); !all(got, storage.Pending) {
		t.Fatalf("%v", got)
	}
	if got := r.deliver(ids...); !all(got, storage.Accepted) {
		t.Errorf("%v", got)
	}
	if double.Events() != 20 {
		t.Errorf("%d events", double.Events())
	}
}

// A duplicate, a conflict and an invalid event in one batch: the rest is taken
// in one more request, and each of the three gets what it deserves.
func TestLagoSortsABatch(t *testing.T) {
	t.Parallel()
	r, double := lago(t)
	ids := r.addMany(30, "calls")
	ours, foreign, invalid := ids[3], ids[7], ids[11]
	double.Put("fencepost_item"+ours, "cus_"+ours, "calls", "5.0") // an attempt of ours took effect
	r.items[ours].unresolved = true
	double.Put("fencepost_item"+foreign, "cus_other", "calls", "9")
	r.items[invalid].Mapping = map[string]string{"event_type": "broken"}
	got := r.deliver(ids...)
	for i, id := range ids {
		want := storage.Accepted
		switch id {
		case foreign:
			want = storage.Uncertain
		case invalid:
			want = storage.Rejected
		}
		if got[i] != want {
			t.Errorf("item %s: %s (%s), want %s", id, got[i], r.items[id].code, want)
		}
	}
	if n := double.Requests(); n != 3 { // the batch, the rest, the invalid one
		t.Errorf("%d requests", n)
	}
	if double.Events() != 29 {
		t.Errorf("%d events", double.Events())
	}
}

// A value is compared as a number: the same id with another value is a conflict
// and never accepted, open or not.
func TestLagoConflict(t *testing.T) {
	t.Parallel()
	r, double := lago(t)
	id := r.add(ofType("calls"))
	double.Put("fencepost_item1", "cus_1", "calls", "50")
	r.items[id].unresolved = true
	if it := r.one(id, storage.Uncertain); it.last.Code != outbox.CodeConflict {
		t.Errorf("%s", it.last.Code)
	}
}
