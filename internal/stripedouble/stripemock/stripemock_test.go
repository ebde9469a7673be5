package stripemock_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/internal/stripedouble/stripemock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// build finds or builds stripe-mock, once: two builds at a time would write the
// file that the other's test is running.
var build = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "stripe-mock")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	out, err := exec.CommandContext(context.Background(), filepath.Join(root, "scripts", "stripe-mock.sh"), "build").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		if os.Getenv("FENCEPOST_TEST_STRICT") != "" {
			t.Fatalf("stripe-mock cannot be built: %v", err)
		}
		t.Skipf("stripe-mock cannot be built here: %v", err)
	}
	return path
}

// start runs a stripe-mock. A test that fails shows what became of it.
func start(t *testing.T) *stripemock.Mock {
	t.Helper()
	mock, err := stripemock.Start(t.Context(), stripemock.Config{Binary: binary(t), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = mock.Close()
		if t.Failed() {
			t.Log(mock.Log())
		}
	})
	return mock
}

func client(t *testing.T, caFile string) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func status(t *testing.T, c *http.Client, target, key, form string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// The double takes what Stripe's OpenAPI takes and refuses what it refuses,
// with the same status, as far as stripe-mock looks: it knows names and types,
// but neither lengths nor values.
func TestDoubleAgreesWithOpenAPI(t *testing.T) {
	t.Parallel()
	mock := start(t)
	double, err := stripedouble.New(stripedouble.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := double.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = double.Close() })
	toMock, toDouble := client(t, mock.CAFile()), client(t, double.CAFile())

	const good = "event_name=llm_tokens&payload[stripe_customer_id]=cus_1&payload[value]=25"
	for _, c := range []struct {
		name, path, key, form string
		want                  int
	}{
		{"good", "", "sk_test_123", good + "&identifier=id_1", 200},
		{"dimension", "", "sk_test_123", good + "&identifier=id_2&payload[model]=m1", 200},
		{"escaped brackets", "", "sk_test_123", "event_name=a&payload%5Bstripe_customer_id%5D=cus_1&payload%5Bvalue%5D=-0.5", 200},
		{"unknown parameter", "", "sk_test_123", good + "&colour=red", 400},
		{"no payload", "", "sk_test_123", "event_name=llm_tokens", 400},
		{"no event name", "", "sk_test_123", "payload[stripe_customer_id]=cus_1&payload[value]=25", 400},
		{"payload no object", "", "sk_test_123", "event_name=llm_tokens&payload=25", 400},
		{"payload nested", "", "sk_test_123", good + "&payload[a][b]=1", 400},
		{"timestamp no number", "", "sk_test_123", good + "&timestamp=now", 400},
		{"no key", "", "", good, 401},
		{"key of no mode", "", "hunter2", good, 401},
		{"unknown route", "s", "sk_test_123", good, 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for name, got := range map[string]func() (int, string){
				"stripe-mock": func() (int, string) { return status(t, toMock, path(t, mock.URL(), c.path), c.key, c.form) },
				"double":      func() (int, string) { return status(t, toDouble, path(t, double.URL(), c.path), c.key, c.form) },
			} {
				if s, body := got(); s != c.want || strings.Contains(body, `"error"`) != (c.want != 200) {
					t.Errorf("%s answers %d %s, want %d", name, s, body, c.want)
				}
			}
		})
	}
}

func path(t *testing.T, base, suffix string) string {
	t.Helper()
	p, err := url.JoinPath(base, "v1/billing/meter_events"+suffix)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStartWithoutBinary(t *testing.T) {
	t.Parallel()
	if _, err := stripemock.Start(t.Context(), stripemock.Config{Binary: filepath.Join(t.TempDir(), "none"), Dir: t.TempDir()}); err == nil {
		t.Error("started nothing")
	}
	if _, err := stripemock.Start(t.Context(), stripemock.Config{Binary: "/bin/true", Dir: t.TempDir()}); err == nil {
		t.Error("took the end of a process for a start")
	}
	if _, err := stripemock.Start(t.Context(), stripemock.Config{Binary: complains(t), Dir: t.TempDir()}); err == nil ||
		!strings.Contains(err.Error(), "bind: address already in use") || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("%v: does not say what the process said and how it ended", err)
	}
}

// complains is a program that names its HTTP port and then ends, as stripe-mock
// does when it cannot open the other one.
func complains(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "complains")
	script := "#!/bin/sh\necho 'Listening for HTTP at address: 127.0.0.1:1'\necho 'bind: address already in use' >&2\nexit 1\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// Several at once, as tests of several packages are: each has ports of its own.
// With -http-addr alone all but one would end, as HTTPS then has a fixed port.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	mocks := []*stripemock.Mock{start(t), start(t), start(t)}
	for _, m := range mocks {
		if s, body := status(t, client(t, m.CAFile()), path(t, m.URL(), ""), "sk_test_123",
			"event_name=a&payload[stripe_customer_id]=cus_1&payload[value]=1"); s != 200 {
			t.Errorf("status %d %s", s, body)
		}
	}
}

// A process that is gone is not a refusal by OpenAPI, and the log says so.
func TestEndOfProcessShows(t *testing.T) {
	t.Parallel()
	mock := start(t)
	mock.KillProcess()
	s, body := status(t, client(t, mock.CAFile()), path(t, mock.URL(), ""), "sk_test_123", "event_name=a")
	if s != 502 || !strings.Contains(body, "the process has ended") {
		t.Errorf("status %d %s", s, body)
	}
	for _, want := range []string{"signal: killed", "proxy: POST /v1/billing/meter_events", "connection refused"} {
		if !strings.Contains(mock.Log(), want) {
			t.Errorf("%q is not in the log:\n%s", want, mock.Log())
		}
	}
}

// A connection that ends without an answer is tried again, with the whole body.
func TestLostConnectionIsTriedAgain(t *testing.T) {
	t.Parallel()
	mock := start(t)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	behind := mock.PutInFront(ln.Addr().String())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if n < 2 { // lost before and after the request was read
				if n == 1 {
					_, _ = c.Read(make([]byte, 4096))
				}
				_ = c.Close()
				continue
			}
			to, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", behind)
			if err != nil {
				_ = c.Close()
				return
			}
			go func() { _, _ = io.Copy(to, c) }()
			_, _ = io.Copy(c, to)
			_, _ = c.Close(), to.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	s, body := status(t, client(t, mock.CAFile()), path(t, mock.URL(), ""), "sk_test_123",
		"event_name=a&payload[stripe_customer_id]=cus_1&payload[value]=1")
	if s != 200 || !strings.Contains(mock.Log(), "proxy: try 2: ") {
		t.Errorf("status %d %s\n%s", s, body, mock.Log())
	}
}
