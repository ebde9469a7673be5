package grant

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

const canary = "sk_live_CANARYcanary0123456789"

// I15, T6: no way of printing or encoding shows a secret, wherever it stands.
func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	s := NewSecret(canary)
	type hidden struct {
		secret Secret
		list   []Secret
		byName map[string]Secret
		ptr    *Secret
	}
	h := hidden{s, []Secret{s}, map[string]Secret{"k": s}, &s}
	open := struct {
		S Secret            `json:"s"`
		P *Secret           `json:"p"`
		M map[string]Secret `json:"m"`
	}{s, &s, map[string]Secret{"k": s}}
	var out bytes.Buffer
	for _, v := range []any{s, &s, h, &h, open, []Secret{s}, []any{s}, fmt.Errorf("x: %v", s)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10.3s", "%T", "%p"} {
			_, _ = fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(handler).Info("m", "s", s, "p", &s, "h", h, "o", open, slog.Group("g", "s", s))
	}
	for _, v := range []any{s, &s, open, []Secret{s}, h} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		out.Write(b)
	}
	if b, err := xml.Marshal(s); err == nil {
		out.Write(b)
	}
	b, err := s.MarshalText()
	out.Write(b)
	if err != nil || s.String() != "***" || s.GoString() != "***" {
		t.Errorf("%v %q %q", err, s.String(), s.GoString())
	}
	for _, form := range []string{canary, "CANARY", fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), fmt.Sprintf("%d", []byte(canary))} {
		if strings.Contains(out.String(), form) {
			t.Errorf("%q shows", form)
		}
	}
	if got := fmt.Sprintf("%s|%v|%q|%x", s, s, s, s); got != "***|***|***|***" {
		t.Errorf("%q", got)
	}
	if s.Reveal() != canary || !s.Present() {
		t.Error("the value is lost")
	}
	if z := (Secret{}); z.Present() || z.Reveal() != "" || NewSecret("").Present() {
		t.Error("an absent secret is present")
	}
}

func TestResolveSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"KEY": canary, "EMPTY": "", "BLANK": " \n"}[name]
		return v, ok
	}
	tests := map[string]struct {
		ref  string
		want string
		rule string // part of the error
	}{
		"env":             {"env:KEY", canary, ""},
		"env unset":       {"env:OTHER", "", "environment variable OTHER is not set"},
		"env empty":       {"env:EMPTY", "", "is empty"},
		"env blank":       {"env:BLANK", "", "is empty"},
		"env no name":     {"env:", "", "name of an environment variable"},
		"env a key":       {"env:" + canary, "", "is not set"},
		"env an odd name": {"env:A B", "", "name of an environment variable"},
		"file":            {write("plain", canary), canary, ""},
		"file newline":    {write("nl", canary+"\n"), canary, ""},
		"file crlf":       {write("crlf", canary+"\r\n"), canary, ""},
		"file inner":      {write("inner", "a\nb\n"), "a\nb", ""},
		"file empty":      {write("empty", "\n"), "", "is empty"},
		"file large":      {write("large", strings.Repeat("a", 65<<10)), "", "64 KiB"},
		"file absent":     {"file:" + filepath.Join(dir, "absent"), "", "is readable"},
		"file directory":  {"file:" + dir, "", "is readable"},
		"file no path":    {"file:", "", "path of a file"},
		"file a key":      {"file:" + canary, "", "is readable"},
		"literal":         {canary, "", "never the secret itself"},
		"empty":           {"", "", "never the secret itself"},
		"other scheme":    {"vault:" + canary, "", "never the secret itself"},
		"capital":         {"ENV:KEY", "", "never the secret itself"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ResolveSecret(tt.ref, env, os.ReadFile)
			if got.Reveal() != tt.want || (err == nil) != (tt.rule == "") {
				t.Fatalf("%v, %v", got.Present(), err)
			}
			if err == nil {
				return
			}
			if !errors.Is(err, sdk.ErrInvalid) || !strings.Contains(err.Error(), tt.rule) || strings.Contains(err.Error(), canary) {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := ResolveSecret("file:"+filepath.Join(dir, "absent"), nil, os.ReadFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cause is lost: %v", err)
	}
	for _, ref := range []string{"env:KEY", "file:x"} {
		if _, err := ResolveSecret(ref, nil, nil); err == nil {
			t.Errorf("%s without a source", ref)
		}
	}
}

// P8: everything declared is granted, or the plugin does not run, and the error
// names it, its version and all that is missing.
func TestCheck(t *testing.T) {
	t.Parallel()
	manifest := exporter.Manifest{
		Name: "stripe", Version: "1.2.3",
		Capabilities: []capability.Name{capability.HTTPName, capability.LogName},
		Hosts:        []string{"api.stripe.com"},
		Secrets:      []exporter.Secret{{Name: "api_key"}},
	}
	full := Grant{
		Capabilities: []capability.Name{capability.LogName, capability.HTTPName, capability.ClockName},
		Hosts:        []string{"other", "API.stripe.com"},
		Secrets:      map[string]Secret{"api_key": NewSecret(canary)},
	}
	if err := Check(manifest, full); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"api.stripe.com"}, full.HostsFor(manifest)); d != "" {
		t.Error(d)
	}
	withEndpoint := full
	withEndpoint.Hosts, withEndpoint.Endpoint = nil, "127.0.0.1:9999"
	if err := Check(manifest, withEndpoint); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"127.0.0.1:9999"}, withEndpoint.HostsFor(manifest)); d != "" {
		t.Error(d)
	}
	err := Check(manifest, Grant{Secrets: map[string]Secret{"api_key": {}}})
	if !errors.Is(err, &sdk.Error{Tag: sdk.TagInvalid, Code: "not_granted"}) {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{`"stripe"`, `"1.2.3"`, `capability "http"`, `capability "log"`, `host "api.stripe.com"`, `secret "api_key"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
	evil := exporter.Manifest{Name: "a\x1b[31m\n" + strings.Repeat("x", 9000), Hosts: make([]string, 9000)}
	if got := Check(evil, Grant{}).Error(); len(got) > 2000 || strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
