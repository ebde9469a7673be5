package carrier_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/host/carrier"
)

func TestFault(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]*carrier.Fault{
		"plugin p: trap during the call: why":             {Kind: carrier.KindTrap, Plugin: "p", Detail: "why", Entered: true},
		"plugin p: deadline before the call reached it":   {Kind: carrier.KindDeadline, Plugin: "p", Err: context.DeadlineExceeded},
		"plugin p: refused before the call reached it: x": {Kind: carrier.KindRefused, Plugin: "p", Detail: "x"},
	} {
		if f.Error() != want {
			t.Errorf("%q, want %q", f.Error(), want)
		}
		if f.Err != nil && !errors.Is(f, f.Err) {
			t.Errorf("%v does not wrap its cause", f)
		}
	}
	// What a plugin wrote is untrusted and stays out of the text.
	if got := (&carrier.PluginError{Payload: []byte("secret")}).Error(); got != "the plugin answered with an error message of 6 bytes" {
		t.Error(got)
	}
}
