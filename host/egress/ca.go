package egress

import (
	"crypto/x509"
	"fmt"
	"io"
	"os"

	"github.com/fencepost/fencepost/plugins/sdk"
)

const caFileBytesMax = 1 << 20

// LoadCAFile returns the system's certificate pool with the PEM certificates of
// a file beside them. It fails with tag invalid, field ca_file, if the file
// cannot be read, is larger than 1 MiB, or holds no certificate.
func LoadCAFile(path string) (*x509.CertPool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "ca_file", Rule: "a readable file", Err: err}
	}
	defer func() { _ = f.Close() }()
	pem, err := io.ReadAll(io.LimitReader(f, caFileBytesMax+1))
	if err != nil {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Field: "ca_file", Rule: "a readable file", Err: err}
	}
	if len(pem) > caFileBytesMax {
		return nil, sdk.Invalid("ca_file", "at most 1 MiB")
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, sdk.Invalid("ca_file", "holds at least one PEM certificate")
	}
	return pool, nil
}
