// Package module embeds the Stripe exporter as a Wasm module, so that one binary
// and `go get` both have it. scripts/build-stripe-module.sh builds it from the
// sources beside it.
package module

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

//go:embed stripe.wasm.gz
var compressed []byte

//go:embed stripe.wasm.sha256
var hash string

// maxBytes bounds what is decompressed.
const maxBytes = 64 << 20

// SHA256 returns the hash of the module's bytes in lower-case hexadecimal, as a
// lock file pins it.
func SHA256() string { return strings.TrimSpace(hash) }

// Bytes returns the module, decompressed and compared with [SHA256]. It decodes
// anew at each call; the caller owns the result. It fails only if the build is
// damaged.
func Bytes() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("read the embedded Stripe module: %w", err)
	}
	wasm, err := io.ReadAll(io.LimitReader(r, maxBytes))
	if err != nil {
		return nil, fmt.Errorf("read the embedded Stripe module: %w", err)
	}
	sum := sha256.Sum256(wasm)
	if got := hex.EncodeToString(sum[:]); got != SHA256() {
		return nil, fmt.Errorf("read the embedded Stripe module: its hash is %s and should be %s", got, SHA256())
	}
	return wasm, nil
}
