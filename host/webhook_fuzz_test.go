package host

import (
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// FuzzSignature: no header passes but one that was signed, and what is refused
// is refused as invalid. T6.
func FuzzSignature(f *testing.F) {
	// The HMAC-SHA256 of "1796040000.{}" under the secret, from another program.
	const good = "t=1796040000,v1=2797fa2b56621a6c0066bad5397c41ced57ce371464c516e55534ad7fc407dd0"
	f.Add(good)
	f.Add("t=1796040000,v1=00,v1=zz,v0=1")
	f.Add("t=,v1=")
	f.Add("t=-9223372036854775808,v1=00")
	now := time.Unix(1_796_040_000, 0)
	f.Fuzz(func(t *testing.T, header string) {
		err := verifyTV1(grant.NewSecret("whsec_canaryCanaryCanary"), header, []byte("{}"), now, 5*time.Minute)
		if err == nil {
			if header != good {
				t.Skip("the same in other words")
			}
			return
		}
		if !errors.Is(err, sdk.ErrInvalid) {
			t.Fatalf("%q: %v", header, err)
		}
	})
}

// The signature is what another program makes of the same bytes.
func TestSignatureVector(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_796_040_000, 0)
	verify := func(header string, at time.Time) error {
		return verifyTV1(grant.NewSecret("whsec_canaryCanaryCanary"), header, []byte("{}"), at, 5*time.Minute)
	}
	const good = "t=1796040000,v1=2797fa2b56621a6c0066bad5397c41ced57ce371464c516e55534ad7fc407dd0"
	for _, at := range []time.Time{now, now.Add(5 * time.Minute), now.Add(-5 * time.Minute)} {
		if err := verify(good, at); err != nil {
			t.Errorf("%v: %v", at, err)
		}
	}
	for _, at := range []time.Time{now.Add(5*time.Minute + 1), now.Add(-5*time.Minute - 1)} {
		if err := verify(good, at); err == nil {
			t.Errorf("%v was taken", at)
		}
	}
}
