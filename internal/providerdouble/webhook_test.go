package providerdouble_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/internal/providerdouble"
	"github.com/fencepost/fencepost/plugins/exporters/webhook"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	keyOld = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	keyNew = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDFVMNAAAA"
)

var noon = time.Date(2026, 11, 30, 12, 20, 0, 0, time.UTC)

// receiver is a receiver that knows keys, and the exporter that signs with others.
func receiver(t *testing.T, knows, signs string) (*rig, *providerdouble.Webhook) {
	t.Helper()
	double := &providerdouble.Webhook{Keys: []string{knows}}
	double.SetNow(func() time.Time { return noon })
	if err := double.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = double.Close() })
	return newRig(t, lab{
		build: webhook.New, double: &double.Server, now: noon, secrets: map[string]string{webhook.SecretSigning: signs},
		config: exporter.Configuration{BaseURL: double.URL() + "/usage?tenant=1"},
	}), double
}

// The message arrives signed and says what the item says; a receiver that knows
// the old key or the new one takes it while both sign.
func TestWebhookIsSigned(t *testing.T) {
	t.Parallel()
	for _, knows := range []string{keyOld, keyNew} {
		r, double := receiver(t, knows, keyOld+" "+keyNew)
		id := r.add(func(i *exporter.Item) {
			i.Value, i.Mapping = "12.340000000001", map[string]string{"type": "calls.made"}
		})
		r.one(id, storage.Accepted)
		times, body := double.Taken("fencepost_item1")
		var m webhook.Message
		if err := json.Unmarshal([]byte(body), &m); err != nil || times != 1 {
			t.Fatalf("%d times: %v", times, err)
		}
		if m.Type != "calls.made" || m.Data.Value != "12.340000000001" || m.Data.Customer != "cus_1" || !m.Timestamp.Equal(noon) {
			t.Errorf("%+v", m)
		}
	}
	r, double := receiver(t, keyOld, keyNew)
	if it := r.one(r.add(nil), storage.Pending); it.code != "http_401" {
		t.Errorf("a wrong key: %s", it.code)
	}
	if times, _ := double.Taken("fencepost_item1"); times != 0 {
		t.Error("taken without a valid signature")
	}
}

// The row of Standard Webhooks: what each answer leads to.
func TestWebhookAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault providerdouble.Fault
		state storage.ItemState
		open  bool
		wait  outbox.Wait
	}{
		"201":              {providerdouble.Fault{After: true, Status: 201, Body: `{}`}, storage.Accepted, false, outbox.WaitNone},
		"204":              {providerdouble.Fault{After: true, Status: 204}, storage.Accepted, false, outbox.WaitNone},
		"301":              {providerdouble.Fault{Status: 301}, storage.Quarantined, false, outbox.WaitNone},
		"308":              {providerdouble.Fault{Status: 308}, storage.Quarantined, false, outbox.WaitNone},
		"400":              {providerdouble.Fault{Status: 400}, storage.Pending, true, outbox.WaitBackoff},
		"410":              {providerdouble.Fault{Status: 410}, storage.Pending, true, outbox.WaitBackoff},
		"429":              {providerdouble.Fault{Status: 429, RetryAfter: "7"}, storage.Pending, false, outbox.WaitRateLimit},
		"500":              {providerdouble.Fault{Status: 500}, storage.Pending, true, outbox.WaitBackoff},
		"502":              {providerdouble.Fault{Status: 502, RetryAfter: "7"}, storage.Pending, true, outbox.WaitRateLimit},
		"504":              {providerdouble.Fault{Status: 504}, storage.Pending, true, outbox.WaitRateLimit},
		"500 after effect": {providerdouble.Fault{After: true, Status: 500}, storage.Pending, true, outbox.WaitBackoff},
		"no answer":        {providerdouble.Fault{After: true}, storage.Pending, true, outbox.WaitBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, double := receiver(t, keyOld, keyOld)
			double.Next(tt.fault)
			id := r.add(nil)
			it := r.one(id, tt.state)
			if it.unresolved != tt.open || it.last.Wait != tt.wait {
				t.Errorf("unresolved %v, wait %q, want %v %q", it.unresolved, it.last.Wait, tt.open, tt.wait)
			}
			if tt.state != storage.Pending {
				return
			}
			// The same id settles it, and the receiver counts it once.
			r.one(id, storage.Accepted)
			if times, _ := double.Taken("fencepost_item1"); times != 1 {
				t.Errorf("taken %d times", times)
			}
		})
	}
}

// 410 concerns the endpoint: what the batch has not sent yet is not sent.
func TestWebhookGone(t *testing.T) {
	t.Parallel()
	r, double := receiver(t, keyOld, keyOld)
	gone := providerdouble.Fault{Status: http.StatusGone}
	double.Next(slices.Repeat([]providerdouble.Fault{gone}, 20)...)
	var ids []string
	for range 20 {
		ids = append(ids, r.add(nil))
	}
	r.deliver(ids...)
	if n := double.Requests(); n > r.manifest.Concurrency {
		t.Errorf("%d requests after the first 410", n)
	}
}

// A correction is a message of its own, and names what it corrects.
func TestWebhookCorrection(t *testing.T) {
	t.Parallel()
	r, double := receiver(t, keyOld, keyOld)
	r.one(r.add(func(i *exporter.Item) {
		i.Kind, i.Value = "correction", "-2.5"
		i.Corrects = &exporter.Corrects{Method: exporter.CorrectNegative, Identifier: "fencepost_original", Value: "5"}
	}), storage.Accepted)
	_, body := double.Taken("fencepost_item1")
	var m webhook.Message
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	if m.Type != "usage.corrected" || m.Data.Value != "-2.5" || m.Data.Corrects != "fencepost_original" {
		t.Errorf("%+v", m)
	}
}
