package conformance

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

func requestCases() []Case {
	return []Case{
		{"requests/whole", "a request is what the host lets through: https, known items, declared secrets, headers that are the plugin's to set", requestsWhole},
		{"requests/once", "Deliver sends an item once, whatever comes back: trying again is the host's", requestsOnce},
		{"requests/again", "the next attempt after an indefinite answer sends the same bytes", requestsAgain},
	}
}

func requestsWhole(t *trial) {
	m := t.suite.manifest
	items := t.items(min(20, m.MaxBatch))
	d := t.session().deliver(t.says(Accept), items...)
	if len(d.requests) == 0 {
		t.failf("nothing is sent")
	}
	for i := range d.requests {
		r := &d.requests[i]
		u, err := url.Parse(r.URL)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.Fragment != "" {
			t.failf("a request goes to %q, which is no https address", r.URL)
		}
		if r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch && r.Method != http.MethodDelete {
			t.failf("a request that reports items has the method %q", r.Method)
		}
		if len(r.Items) == 0 {
			t.failf("a request that reports items names none")
		}
		for _, id := range r.Items {
			if !slices.ContainsFunc(items, func(it exporter.Item) bool { return it.ID == id }) {
				t.failf("a request names an item that was not delivered")
			}
		}
		t.checkSecrets(r)
		t.checkHeaders(r)
	}
}

func (t *trial) checkSecrets(r *capability.Request) {
	declared := t.suite.manifest.Secrets
	for _, name := range r.Secrets {
		if !slices.ContainsFunc(declared, func(s exporter.Secret) bool { return s.Name == name }) {
			t.failf("a request names the secret %q, which the manifest does not declare", name)
		}
	}
	if len(declared) > 0 && len(r.Secrets) == 0 {
		t.failf("a request names none of the manifest's secrets")
	}
}

func (t *trial) checkHeaders(r *capability.Request) {
	for _, h := range r.Headers {
		name := http.CanonicalHeaderKey(h.Name)
		bad := func(c rune) bool { return c < ' ' && c != '\t' || c >= 0x7f }
		switch {
		case !headerPattern.MatchString(h.Name) || strings.ContainsFunc(h.Value, bad) || strings.TrimSpace(h.Value) != h.Value:
			t.failf("the header %q has a name or value that is none", h.Name)
		case slices.Contains([]string{
			"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Expect", "Accept-Encoding", "Cookie",
		}, name) || strings.HasPrefix(name, "Proxy-"):
			t.failf("the header %q is the host's to set", h.Name)
		}
		for _, s := range t.suite.manifest.Secrets {
			if s.Header != "" && http.CanonicalHeaderKey(s.Header) == name {
				t.failf("the header %q is that of the secret %q", h.Name, s.Name)
			}
		}
	}
}

// indefinite are responses after which nobody knows whether an item was taken.
func indefinite() map[string]capability.Response {
	return map[string]capability.Response{
		"a timeout":      unknown("deadline"),
		"a reset":        unknown("reset"),
		"status 500":     response(500, `{"error":"sorry"}`),
		"status 502":     response(502, "<html>bad gateway</html>"),
		"an odd failure": {Failure: capability.Failure("of a later version"), Reason: "new"},
	}
}

func requestsOnce(t *trial) {
	for name, r := range indefinite() {
		items := t.items(min(2, t.suite.manifest.MaxBatch))
		d := t.session().deliver(always(r), items...)
		for i := range items {
			n := 0
			for _, r := range d.requests {
				if slices.Contains(r.Items, items[i].ID) {
					n++
				}
			}
			if n != 1 {
				t.failf("after %s an item was sent %d times in one Deliver", name, n)
			}
		}
	}
}

func requestsAgain(t *trial) {
	for name, r := range indefinite() {
		items := t.items(min(2, t.suite.manifest.MaxBatch))
		first := t.session().deliver(always(r), items...)
		for i := range items {
			items[i].Attempt++
		}
		second := t.session().deliver(t.says(Accept), items...)
		if a, b := t.withoutAttempt(first.requests), t.withoutAttempt(second.requests); !bytes.Equal(a, b) {
			t.failf("the attempt after %s sends other bytes", name)
		}
	}
}

// withoutAttempt encodes requests without the headers that may change with the
// attempt.
func (t *trial) withoutAttempt(requests []capability.Request) []byte {
	out := make([]capability.Request, len(requests))
	for i, r := range requests {
		r.Headers = slices.DeleteFunc(slices.Clone(r.Headers), func(h capability.Header) bool {
			return slices.ContainsFunc(t.provider().PerAttempt, func(name string) bool { return strings.EqualFold(name, h.Name) })
		})
		out[i] = r
	}
	return wirev1.EncodeRequests(out)
}
