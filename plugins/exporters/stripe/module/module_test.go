package module_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/fencepost/fencepost/plugins/exporters/stripe/module"
)

// Q30: what is committed is one module with the hash that is pinned. That the
// sources build it, scripts/build-stripe-module.sh --check tells.
func TestBytes(t *testing.T) {
	t.Parallel()
	wasm, err := module.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(wasm, []byte("\x00asm\x01\x00\x00\x00")) {
		t.Errorf("starts with %x", wasm[:8])
	}
	if sum := sha256.Sum256(wasm); hex.EncodeToString(sum[:]) != module.SHA256() {
		t.Errorf("hash %x, want %s", sum, module.SHA256())
	}
	for name, want := range map[string]bool{
		"fencepost.io/v1": true, "fencepost.http/v1": true, "fp_call": true, "fp_abi_v1": true,
		"fencepost.log/v1": false, "fencepost.clock/v1": false, "fencepost.random/v1": false,
	} {
		if got := bytes.Contains(wasm, []byte(name)); got != want {
			t.Errorf("names %s: %v", name, got)
		}
	}
	again, err := module.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	again[0] = 'x'
	if wasm[0] == 'x' {
		t.Error("two calls share memory")
	}
}
