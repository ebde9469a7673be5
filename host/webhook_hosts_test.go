package host_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// O12, O25: what is known of a message is in the store, not in a host. Behind a
// balancer a report comes to any host, and a repeated or recorded one to another:
// that changes nothing, and of two hosts that get it at the same moment both store
// the same.
func TestReplayedReportAtAnotherHost(t *testing.T) {
	t.Parallel()
	double, store := newDouble(t), newStore(t)
	one := openHooked(t, store, double)
	two := openHooked(t, store, double)
	one.record("cus_1", "a", "b")
	take := func(h *hooked, r stripedouble.Report) api.WebhookAnswer {
		status, body := h.post(h.url, stripedouble.Sign(hookSecret, time.Now(), r.Body), r.Body)
		var got api.WebhookAnswer
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
			t.Errorf("%d %s", status, body)
		}
		return got
	}
	detail := func(id int64) storage.ItemDetail {
		d, err := store.LoadItem(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}

	reject(t, double, 0)
	first := double.Reports()[0]
	if got := take(one, first); got.Evidence != 1 {
		t.Fatalf("the first host: %+v", got)
	}
	disputed := one.items(storage.ItemQuery{Disputed: true})
	if len(disputed) != 1 {
		t.Fatalf("disputed %+v", disputed)
	}
	before := detail(disputed[0].ItemID)
	for range 3 {
		if got := take(two, first); got.Evidence != 0 || got.Repeated != 1 {
			t.Errorf("the other host: %+v", got)
		}
	}
	if after := detail(disputed[0].ItemID); !reflect.DeepEqual(before, after) {
		t.Errorf("a repetition at another host changed\n%+v\nto\n%+v", before, after)
	}

	reject(t, double, 1)
	second := double.Reports()[1]
	var mu sync.Mutex
	var stored int
	var group sync.WaitGroup
	for range 4 {
		for _, h := range []*hooked{one, two} {
			group.Go(func() {
				got := take(h, second)
				mu.Lock()
				defer mu.Unlock()
				stored += got.Evidence
			})
		}
	}
	group.Wait()
	disputed = one.items(storage.ItemQuery{Disputed: true})
	if len(disputed) != 2 {
		t.Fatalf("disputed %+v", disputed)
	}
	d := detail(disputed[1].ItemID)
	if d.Item.State != storage.Accepted || d.Item.Disputed != before.Item.Disputed || !d.Item.SettledAt.IsZero() {
		t.Errorf("taken by two hosts at once: %+v", d.Item)
	}
	// One of each host at most; what changed nothing any more is no line of its own.
	if len(d.Actions) < 1 || len(d.Actions) > stored || stored > 2 {
		t.Errorf("%d answers say stored, %d are", stored, len(d.Actions))
	}
}

func reject(t *testing.T, double *stripedouble.Server, entry int) {
	t.Helper()
	if err := double.Reject("", false, "meter_event_customer_not_found", double.Entries()[entry].Identifier); err != nil {
		t.Fatal(err)
	}
}
