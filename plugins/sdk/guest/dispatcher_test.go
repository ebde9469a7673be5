package guest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/guest"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// fake records what reached it and answers what the test wants.
type fake struct {
	calls         []string
	configuration exporter.Configuration
	delivery      exporter.Delivery
	outcomes      []exporter.ItemOutcome
	err           error
}

func (f *fake) Describe(context.Context) (exporter.Manifest, error) {
	f.calls = append(f.calls, "describe")
	return exporter.Manifest{Name: "fake", Values: exporter.ValueDomain{MaxDecimals: -1}}, f.err
}

func (f *fake) Configure(_ context.Context, c exporter.Configuration) error {
	f.calls = append(f.calls, "configure")
	f.configuration = c
	return f.err
}

func (f *fake) Deliver(_ context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	f.calls = append(f.calls, "deliver")
	f.delivery = d
	return f.outcomes, f.err
}

func (f *fake) Close(context.Context) error {
	f.calls = append(f.calls, "close")
	return f.err
}

func dispatcher(f *fake) *guest.Dispatcher {
	return guest.NewDispatcher(func(capability.Host) exporter.Exporter { return f }, capability.Host{})
}

func TestDispatcherCarriesEveryMethod(t *testing.T) {
	t.Parallel()
	f := &fake{outcomes: []exporter.ItemOutcome{{ItemID: "1", Kind: exporter.Accepted}}}
	d := dispatcher(f)

	answer, status := d.Call(t.Context(), wirev1.MethodDescribe, nil)
	manifest, err := wirev1.DecodeManifest(answer)
	if status != wirev1.StatusAnswer || err != nil || manifest.Name != "fake" {
		t.Errorf("describe: %d, %+v, %v", status, manifest, err)
	}
	configuration := exporter.Configuration{Name: "x", Mode: "test"}
	if answer, status := d.Call(t.Context(), wirev1.MethodConfigure, wirev1.EncodeConfiguration(configuration)); status != wirev1.StatusAnswer || len(answer) != 0 {
		t.Errorf("configure: %d, %x", status, answer)
	}
	delivery := exporter.Delivery{Items: []exporter.Item{{ID: "1", Value: "2"}}}
	answer, status = d.Call(t.Context(), wirev1.MethodDeliver, wirev1.EncodeDelivery(delivery))
	outcomes, err := wirev1.DecodeOutcomes(answer)
	if status != wirev1.StatusAnswer || err != nil || cmp.Diff(f.outcomes, outcomes) != "" {
		t.Errorf("deliver: %d, %+v, %v", status, outcomes, err)
	}
	if answer, status := d.Call(t.Context(), wirev1.MethodClose, nil); status != wirev1.StatusAnswer || len(answer) != 0 {
		t.Errorf("close: %d, %x", status, answer)
	}
	if diff := cmp.Diff([]string{"describe", "configure", "deliver", "close"}, f.calls); diff != "" {
		t.Error(diff)
	}
	if cmp.Diff(configuration, f.configuration) != "" || cmp.Diff(delivery, f.delivery) != "" {
		t.Errorf("the exporter saw %+v, %+v", f.configuration, f.delivery)
	}
}

func TestDispatcherErrors(t *testing.T) {
	t.Parallel()
	broken := []byte{0x0a, 0xff}
	for name, c := range map[string]struct {
		method  wirev1.Method
		request []byte
		err     error
		want    error
		called  bool
	}{
		"exporter's own":       {wirev1.MethodConfigure, nil, sdk.Invalid("account", "an id"), sdk.ErrInvalid, true},
		"exporter's, untagged": {wirev1.MethodDeliver, nil, errors.New("boom"), sdk.ErrUnavailable, true},
		"describe":             {wirev1.MethodDescribe, nil, errors.New("boom"), sdk.ErrUnavailable, true},
		"close":                {wirev1.MethodClose, nil, errors.New("boom"), sdk.ErrUnavailable, true},
		"malformed configure":  {wirev1.MethodConfigure, broken, nil, sdk.ErrInvalid, false},
		"malformed deliver":    {wirev1.MethodDeliver, broken, nil, sdk.ErrInvalid, false},
		"no prober":            {wirev1.MethodProbe, nil, nil, sdk.ErrUnsupported, false},
		"no receiver":          {wirev1.MethodWebhook, nil, nil, sdk.ErrUnsupported, false},
		"of a later version":   {99, nil, nil, sdk.ErrUnsupported, false},
		"negative":             {-1, nil, nil, sdk.ErrUnsupported, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{err: c.err}
			answer, status := dispatcher(f).Call(t.Context(), c.method, c.request)
			got, err := wirev1.DecodeError(answer)
			if status != wirev1.StatusError || err != nil || !errors.Is(got, c.want) {
				t.Errorf("status %d, %v, %v", status, got, err)
			}
			if called := len(f.calls) > 0; called != c.called {
				t.Errorf("exporter called: %v", f.calls)
			}
		})
	}
}

// asked is a fake that can also be probed and sent messages.
type asked struct {
	*fake
	probe   exporter.Probe
	webhook exporter.Webhook
	answers []exporter.ProbeAnswer
	says    exporter.WebhookAnswer
}

func (a *asked) Probe(_ context.Context, p exporter.Probe) ([]exporter.ProbeAnswer, error) {
	a.calls, a.probe = append(a.calls, "probe"), p
	return a.answers, a.err
}

func (a *asked) Webhook(_ context.Context, w exporter.Webhook) (exporter.WebhookAnswer, error) {
	a.calls, a.webhook = append(a.calls, "webhook"), w
	return a.says, a.err
}

// O25, O12: what reads back and what comes late pass through the same door.
func TestDispatcherCarriesProbeAndWebhook(t *testing.T) {
	t.Parallel()
	a := &asked{
		fake: &fake{}, answers: []exporter.ProbeAnswer{{Sum: new("7"), Meter: "mtr_1"}},
		says: exporter.WebhookAnswer{ID: "evt_1", Evidence: []exporter.Evidence{{Identifier: "fencepost_1", Refused: true}}},
	}
	d := guest.NewDispatcher(func(capability.Host) exporter.Exporter { return a }, capability.Host{})
	probe := exporter.Probe{Questions: []exporter.ProbeQuestion{{Customer: "cus_1", Mapping: map[string]string{"a": "b"}}}}
	answer, status := d.Call(t.Context(), wirev1.MethodProbe, wirev1.EncodeProbe(probe))
	sums, err := wirev1.DecodeProbeAnswers(answer, 1)
	if status != wirev1.StatusAnswer || err != nil || cmp.Diff(a.answers, sums)+cmp.Diff(probe, a.probe) != "" {
		t.Errorf("probe: %d, %+v, %v", status, sums, err)
	}
	message := exporter.Webhook{Body: []byte("{}"), ReceivedAt: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	answer, status = d.Call(t.Context(), wirev1.MethodWebhook, wirev1.EncodeWebhook(message))
	says, err := wirev1.DecodeWebhookAnswer(answer)
	if status != wirev1.StatusAnswer || err != nil || cmp.Diff(a.says, says)+cmp.Diff(message, a.webhook) != "" {
		t.Errorf("webhook: %d, %+v, %v", status, says, err)
	}
	a.calls, a.err = nil, errors.New("boom")
	for _, method := range []wirev1.Method{wirev1.MethodProbe, wirev1.MethodWebhook} {
		if _, status := d.Call(t.Context(), method, []byte{0x0a, 0xff}); status != wirev1.StatusError || len(a.calls) != 0 {
			t.Errorf("%v of a malformed request: %d, %v", method, status, a.calls)
		}
		answer, status := d.Call(t.Context(), method, nil)
		if e, err := wirev1.DecodeError(answer); status != wirev1.StatusError || err != nil || !errors.Is(e, sdk.ErrUnavailable) {
			t.Errorf("%v of a failing exporter: %d, %v", method, status, e)
		}
		a.calls = nil
	}
}

func TestDispatcherLeavesPanicsAlone(t *testing.T) {
	t.Parallel()
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "bug") {
			t.Errorf("recovered %q", r)
		}
	}()
	d := guest.NewDispatcher(func(capability.Host) exporter.Exporter { return panicking{&fake{}} }, capability.Host{})
	d.Call(t.Context(), wirev1.MethodDeliver, nil)
}

type panicking struct{ *fake }

func (panicking) Deliver(context.Context, exporter.Delivery) ([]exporter.ItemOutcome, error) {
	panic("a bug of the plugin")
}

func FuzzDispatcher(f *testing.F) {
	f.Add(int32(2), wirev1.EncodeConfiguration(exporter.Configuration{Mode: "test"}))
	f.Add(int32(3), wirev1.EncodeDelivery(exporter.Delivery{Items: []exporter.Item{{ID: "1"}}}))
	f.Add(int32(4), wirev1.EncodeProbe(exporter.Probe{Questions: []exporter.ProbeQuestion{{Customer: "c"}}}))
	f.Add(int32(5), wirev1.EncodeWebhook(exporter.Webhook{Body: []byte("{}")}))
	f.Fuzz(func(t *testing.T, method int32, request []byte) {
		a := &asked{fake: &fake{}}
		d := guest.NewDispatcher(func(capability.Host) exporter.Exporter { return a }, capability.Host{})
		answer, status := d.Call(t.Context(), wirev1.Method(method), request)
		if status == wirev1.StatusError {
			if _, err := wirev1.DecodeError(answer); err != nil {
				t.Fatal(err)
			}
		} else if status != wirev1.StatusAnswer {
			t.Fatalf("status %d", status)
		}
	})
}
