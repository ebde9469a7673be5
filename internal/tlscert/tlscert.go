// Package tlscert makes a throwaway certificate authority for servers that
// tests and the demo run on loopback, so that secrets travel over TLS there as
// they do in production.
package tlscert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Names of the files that [LoadOrCreate] keeps in its directory.
const (
	CAFile  = "ca.pem"     // certificate: what a configuration's ca_file names
	KeyFile = "ca-key.pem" // private key, mode 0600
)

const (
	// lifetime is long enough for a soak test and short enough that a
	// forgotten authority is soon worth nothing.
	lifetime = 30 * 24 * time.Hour
	// renewal is how much of it must be left for a stored one to be reused.
	renewal = 7 * 24 * time.Hour
	// skew is how far a peer's clock may be behind.
	skew = time.Hour
)

// Config says whom an authority may vouch for.
type Config struct {
	// Hosts are the IP addresses and DNS names for which it can issue
	// certificates; the authority's own certificate says so, hence a leaked
	// key endangers nobody else. Empty: 127.0.0.0/8, ::1 and localhost.
	Hosts []string
	// Now is the clock that validity is counted from. Nil: time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Authority issues certificates. It is immutable and safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  func() time.Time
}

// New makes an authority that exists only in memory.
func New(c Config) (*Authority, error) {
	c = c.withDefaults()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate authority key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := c.Now().UTC()
	t := &x509.Certificate{
		SerialNumber:                serial,
		Subject:                     pkix.Name{CommonName: "Fencepost throwaway CA", Organization: []string{"Fencepost test support"}},
		NotBefore:                   now.Add(-skew),
		NotAfter:                    now.Add(lifetime),
		IsCA:                        true,
		BasicConstraintsValid:       true,
		MaxPathLenZero:              true,
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		PermittedDNSDomainsCritical: true,
	}
	permit(t, c.Hosts)
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("create authority certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse authority certificate: %w", err)
	}
	return &Authority{cert: cert, key: key, now: c.Now}, nil
}

// LoadOrCreate returns the authority stored in dir, or makes one there. It
// makes a new one as well if the stored one expires within a week, cannot be
// read or may not vouch for every host of c; who trusted the old one must then
// read [CAFile] again.
func LoadOrCreate(dir string, c Config) (*Authority, error) {
	c = c.withDefaults()
	if a, err := load(dir, c); err == nil {
		return a, nil
	}
	a, err := New(c)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("marshal authority key: %w", err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	// The key goes first: a certificate without its key is replaced at the
	// next start, and until then nobody trusts it.
	if err := writeAtomic(filepath.Join(dir, KeyFile), keyPEM, 0o600); err != nil {
		return nil, err
	}
	if err := a.WriteFile(filepath.Join(dir, CAFile)); err != nil {
		return nil, err
	}
	return a, nil
}

func load(dir string, c Config) (*Authority, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, fmt.Errorf("read authority certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, fmt.Errorf("read authority key: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("match authority certificate and key: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("stored pair is not an ECDSA authority")
	}
	a := &Authority{cert: pair.Leaf, key: key, now: c.Now}
	if c.Now().Add(renewal).After(a.cert.NotAfter) || c.Now().Before(a.cert.NotBefore) {
		return nil, errors.New("stored authority expires")
	}
	leaf, err := a.Issue(hostsOrLoopback(c.Hosts)...)
	if err != nil {
		return nil, err
	}
	_, err = leaf.Leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), CurrentTime: c.Now()})
	if err != nil {
		return nil, fmt.Errorf("stored authority does not cover the hosts: %w", err)
	}
	return a, nil
}

// PEM returns the authority's certificate, PEM encoded.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// WriteFile writes the authority's certificate to path, readable by all, whole
// or not at all.
func (a *Authority) WriteFile(path string) error { return writeAtomic(path, a.PEM(), 0o644) }

// Pool returns a pool that trusts this authority and no other.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Issue returns a server certificate for hosts, which are IP addresses or DNS
// names. A host outside [Config.Hosts] gets a certificate that clients refuse,
// which is of use to tests.
func (a *Authority) Issue(hosts ...string) (tls.Certificate, error) {
	if len(hosts) == 0 {
		return tls.Certificate{}, errors.New("issue certificate: no host")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generate server key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return tls.Certificate{}, err
	}
	now := a.now().UTC()
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: hosts[0]},
		NotBefore:    now.Add(-skew),
		NotAfter:     a.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("create server certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("parse server certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func hostsOrLoopback(hosts []string) []string {
	if len(hosts) == 0 {
		return []string{"127.0.0.1", "::1", "localhost"}
	}
	return hosts
}

// permit writes the name constraints for hosts into t.
func permit(t *x509.Certificate, hosts []string) {
	if len(hosts) == 0 {
		t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)})
	}
	for _, h := range hostsOrLoopback(hosts) {
		ip := net.ParseIP(h)
		switch {
		case ip == nil:
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, strings.TrimPrefix(h, "*."))
		case ip.To4() != nil:
			t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: ip.To4(), Mask: net.CIDRMask(32, 32)})
		default:
			t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: ip, Mask: net.CIDRMask(128, 128)})
		}
	}
	// A kind of name without an entry would be unconstrained.
	if len(t.PermittedDNSDomains) == 0 {
		t.PermittedDNSDomains = []string{"invalid"}
	}
	if len(t.PermittedIPRanges) == 0 {
		t.PermittedIPRanges = []*net.IPNet{{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)}}
	}
}

func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw serial number: %w", err)
	}
	return n, nil
}

func writeAtomic(path string, b []byte, mode fs.FileMode) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make directory for certificate: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tlscert-*")
	if err != nil {
		return fmt.Errorf("create certificate file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write certificate file: %w", err)
	}
	return nil
}
