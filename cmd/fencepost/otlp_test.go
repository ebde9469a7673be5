package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// collector is where OpenTelemetry pushes to.
type collector struct {
	mu   sync.Mutex
	got  map[string][]byte
	auth string
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return
		}
		body = z
	}
	b, _ := io.ReadAll(body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[r.URL.Path] = append(c.got[r.URL.Path], b...)
	c.auth = r.Header.Get("Authorization")
}

// O29: with the standard variable, a server pushes traces and metrics, the last
// of them while it stops; neither names a tenant.
func TestServePushesTelemetry(t *testing.T) {
	t.Parallel()
	c := &collector{got: map[string][]byte{}}
	srv := httptest.NewServer(c)
	defer srv.Close()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "fencepost.yaml")
	text := "listen: 127.0.0.1:" + port + "\nstorage: {dsn: " + filepath.Join(dir, "f.db") + "}\nstate_dir: " + dir + "/state\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, _, _ := command(t, "serve", "--config", file)
	cmd.Env = append(cmd.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+srv.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization=token-1")
	cmd.Stderr = nil
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), `"serving"`) {
		t.Log(lines.Text())
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:"+port+"/v1/events",
		strings.NewReader(`{"id":"r1","tenant":"acme-secret","feature":"tokens","quantity":"1"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for path, name := range map[string]string{"/v1/traces": "fencepost.record", "/v1/metrics": "fencepost.record.events"} {
		if !bytes.Contains(c.got[path], []byte(name)) {
			t.Errorf("%s: %d bytes without %s", path, len(c.got[path]), name)
		}
		if bytes.Contains(c.got[path], []byte("acme-secret")) {
			t.Errorf("%s names a tenant", path)
		}
	}
	if c.auth != "token-1" {
		t.Errorf("authorization %q", c.auth)
	}
}

func TestOpenOTLP(t *testing.T) {
	t.Parallel()
	env := map[string]string{}
	open := func() (otlp, error) {
		return openOTLP(t.Context(), func(k string) string { return env[k] }, errorLogger(io.Discard))
	}
	if o, err := open(); err != nil || o.provider() != nil || o.readers != nil {
		t.Errorf("pushes without being asked: %v %v", o, err)
	}
	env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
	env["OTEL_SDK_DISABLED"] = "true"
	if o, err := open(); err != nil || o.provider() != nil || o.readers != nil {
		t.Errorf("pushes though disabled: %v %v", o, err)
	}
	delete(env, "OTEL_SDK_DISABLED")
	env["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
	if _, err := open(); sdk.TagOf(err) != sdk.TagUnsupported {
		t.Errorf("grpc: %v", err)
	}
}
