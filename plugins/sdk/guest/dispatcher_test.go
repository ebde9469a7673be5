package guest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

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
		"reserved":             {wirev1.MethodProbe, nil, nil, sdk.ErrUnsupported, false},
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
	f.Fuzz(func(t *testing.T, method int32, request []byte) {
		answer, status := dispatcher(&fake{}).Call(t.Context(), wirev1.Method(method), request)
		if status == wirev1.StatusError {
			if _, err := wirev1.DecodeError(answer); err != nil {
				t.Fatal(err)
			}
		} else if status != wirev1.StatusAnswer {
			t.Fatalf("status %d", status)
		}
	})
}
