package egress

import (
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Q15: a throwaway CA in a file is trusted beside the system's.
func TestLoadCAFile(t *testing.T) {
	t.Parallel()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	roots, err := LoadCAFile(write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	if err != nil {
		t.Fatal(err)
	}
	client := newClient(t, s.host(), func(c *Config) { c.RootCAs = roots })
	if _, ex := one(t, client, s.host()); ex.Class != exporter.ClassSuccess {
		t.Errorf("%+v", ex)
	}
	for _, path := range []string{dir, filepath.Join(dir, "absent"), write("empty", nil), write("text", []byte("hello")), write("large", make([]byte, 2<<20))} {
		if _, err := LoadCAFile(path); err == nil || !strings.Contains(err.Error(), "invalid ca_file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
