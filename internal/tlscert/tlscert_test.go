package tlscert_test

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/tlscert"
)

func verify(t *testing.T, a *tlscert.Authority, host string, at time.Time) error {
	t.Helper()
	c, err := a.Issue(host)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), DNSName: host, CurrentTime: at})
	return err
}

// Q15: the throwaway CA vouches for loopback and for nobody else, so its key
// on disk is no danger to real hosts.
func TestAuthorityVouchesOnlyForItsHosts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	loopback, err := tlscert.New(tlscert.Config{Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	named, err := tlscert.New(tlscert.Config{Now: clock, Hosts: []string{"double.test", "192.0.2.7"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		ca   *tlscert.Authority
		host string
		ok   bool
	}{
		{"loopback", loopback, "127.0.0.1", true},
		{"loopback range", loopback, "127.8.9.10", true},
		{"IPv6 loopback", loopback, "::1", true},
		{"localhost", loopback, "localhost", true},
		{"real provider", loopback, "api.stripe.com", false},
		{"public address", loopback, "93.184.216.34", false},
		{"IPv6 address", loopback, "2001:db8::1", false},
		{"named host", named, "double.test", true},
		{"named address", named, "192.0.2.7", true},
		{"neighbour", named, "192.0.2.8", false},
		{"other name", named, "api.stripe.com", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := verify(t, c.ca, c.host, now); (err == nil) != c.ok {
				t.Errorf("verify %s: %v, want ok %v", c.host, err, c.ok)
			}
		})
	}
	if err := verify(t, loopback, "127.0.0.1", now.Add(31*24*time.Hour)); err == nil {
		t.Error("the authority outlives its 30 days")
	}
}

// A client that read ca_file before the server was killed must trust it after
// the restart.
func TestLoadOrCreateKeepsTheAuthority(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "er")
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	open := func(at time.Time, hosts ...string) *tlscert.Authority {
		t.Helper()
		a, err := tlscert.LoadOrCreate(dir, tlscert.Config{Hosts: hosts, Now: func() time.Time { return at }})
		if err != nil {
			t.Fatal(err)
		}
		onDisk, err := os.ReadFile(filepath.Join(dir, tlscert.CAFile))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(onDisk, a.PEM()) {
			t.Fatal("ca.pem differs from the authority in use")
		}
		return a
	}
	first := open(now)
	if info, err := os.Stat(filepath.Join(dir, tlscert.KeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("key file: %v %v, want mode 0600", info, err)
	}
	if again := open(now.Add(time.Hour)); !bytes.Equal(again.PEM(), first.PEM()) {
		t.Error("a restart replaced the authority")
	}
	late := open(now.Add(25 * 24 * time.Hour))
	if bytes.Equal(late.PEM(), first.PEM()) {
		t.Error("an authority with five days left was kept")
	}
	other := open(now.Add(25*24*time.Hour), "double.test")
	if bytes.Equal(other.PEM(), late.PEM()) {
		t.Error("an authority that cannot vouch for the host was kept")
	}
	if err := os.WriteFile(filepath.Join(dir, tlscert.KeyFile), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if mended := open(now.Add(25*24*time.Hour), "double.test"); bytes.Equal(mended.PEM(), other.PEM()) {
		t.Error("a damaged key was not replaced")
	}
}
