package host_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/host/journal"
	"github.com/fencepost/fencepost/internal/providerdouble"
	"github.com/fencepost/fencepost/plugins/exporters/awsmarketplace"
	"github.com/fencepost/fencepost/plugins/exporters/cloudevents"
	"github.com/fencepost/fencepost/plugins/exporters/ndjson"
	"github.com/fencepost/fencepost/plugins/exporters/webhook"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	hookKey   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	lagoToken = "lago_canaryCanaryCanary42"
	awsKey    = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
)

// linkedConfig has all exporters of this program.
func linkedConfig(store storage.Adapter, s config.Config) host.Config {
	c := hostConfig(store, s)
	c.Builtins.Linked = map[string]exporter.New{
		"webhook": webhook.New, "cloudevents": cloudevents.New, "ndjson": ndjson.New, "aws-marketplace": awsmarketplace.New,
	}
	secrets := map[string]string{"HOOK": hookKey, "LAGO": lagoToken, "AWS": awsKey}
	c.Getenv = func(name string) (string, bool) { v, ok := secrets[name]; return v, ok }
	return c
}

// at is the configuration of an exporter at a double.
func at(t *testing.T, name, plugin string, double *providerdouble.Server) config.Exporter {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, double.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Exporter{
		Name: name, Plugin: "builtin:" + plugin, Mode: "test", BaseURL: double.URL(), CAFile: ca, AllowPrivate: []string{"127.0.0.0/8"},
		Rate: 1000, Trust: "outcomes",
		Mapping: config.Mapping{Features: map[string]map[string]string{"calls": {"event_type": "calls", "dimension": "calls"}}},
	}
}

func quick() config.Outbox {
	return config.Outbox{Tick: config.Duration(20 * time.Millisecond), Base: config.Duration(50 * time.Millisecond), Cap: config.Duration(time.Second)}
}

// The exporters of this program side by side, through answers that are lost and
// a batch that one event spoils: each fact is at each destination once.
func TestLinkedExporters(t *testing.T) {
	t.Parallel()
	hook := &providerdouble.Webhook{Keys: []string{hookKey}}
	lago := &providerdouble.Lago{Token: lagoToken}
	for _, start := range []func(context.Context) error{hook.Start, lago.Start} {
		if err := start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = hook.Close(), lago.Close() })
	hook.Next(providerdouble.Fault{After: true, Status: 500}, providerdouble.Fault{After: true})
	lago.Next(providerdouble.Fault{After: true})
	file := filepath.Join(t.TempDir(), "usage.ndjson")

	h1, h2, h3 := at(t, "hook", "webhook", &hook.Server), at(t, "lago", "cloudevents", &lago.Server), config.Exporter{
		Name: "lines", Plugin: "builtin:ndjson", Mode: "test", File: file, Trust: "outcomes",
		Mapping: config.Mapping{Features: map[string]map[string]string{"calls": {}}},
	}
	h1.Secrets = map[string]string{"signing_secret": "env:HOOK"}
	h2.Secrets, h2.Settings = map[string]string{"api_key": "env:LAGO"}, map[string]any{"shape": "lago"}
	store := newStore(t)
	h := open(t, linkedConfig(store, config.Config{Exporters: []config.Exporter{h1, h2, h3}, Outbox: quick()}))
	e := h.Engine()
	if _, err := e.PutSubscription(t.Context(), storage.Subscription{
		Tenant: "acme", Customers: map[string]string{"hook": "c1", "lago": "sub_1", "lines": "c1"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		if _, err := e.Record(t.Context(), engine.Event{ID: id, Tenant: "acme", Feature: "calls", Quantity: decimal.MustParse("1.5")}); err != nil {
			t.Fatal(err)
		}
	}
	if counts := wait(t, store); counts[storage.Accepted] != 15 {
		t.Errorf("%v", counts)
	}
	page, err := store.ListItems(t.Context(), storage.ItemQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range page.Items {
		id := identifier(it.Digest)
		switch it.Identity.Exporter {
		case "hook":
			if n, _ := hook.Taken(id); n != 1 {
				t.Errorf("the receiver took %s %d times", id, n)
			}
		case "lago":
			if v, _ := lago.Value(id); v != "1.5" {
				t.Errorf("Lago has %q", v)
			}
		case "lines":
			if n := strings.Count(string(text), id); n != 1 {
				t.Errorf("%s is in the file %d times", id, n)
			}
		}
	}
	if lago.Events() != 5 {
		t.Errorf("Lago took %d events", lago.Events())
	}
	if v, err := journal.Verify(strings.NewReader(string(text)), true); err != nil || v.Lines != 5 {
		t.Errorf("%+v %v", v, err)
	}
}

// A host that only records, without secrets, refuses single events for an exporter
// of windows just as one that delivers does: its routes would be in force for all.
func TestRecordingAloneRefusesEventsForWindows(t *testing.T) {
	t.Parallel()
	market := config.Exporter{
		Name: "aws", Plugin: "builtin:aws-marketplace", Mode: "test", Settings: map[string]any{"product_code": "p", "region": "us-east-1"},
		Mapping: config.Mapping{Version: 1, Features: map[string]map[string]string{"calls": {"dimension": "calls"}}},
	}
	for source, want := range map[string]string{"buffered": "", "events": "windows_only"} {
		cfg := linkedConfig(newStore(t), config.Config{
			Exporters: []config.Exporter{market}, Features: map[string]config.Feature{"calls": {Source: source}},
		})
		cfg.WithoutDelivery = true
		h, err := host.Open(t.Context(), cfg)
		if err == nil {
			err = h.Close(context.Background())
		}
		var refused *sdk.Error
		if got := errors.As(err, &refused); got != (want != "") || got && refused.Code != want {
			t.Errorf("source: %s: %v, want code %q", source, err, want)
		}
	}
}

// What an operator gets wrong is refused when the host opens, naming the key.
func TestLinkedExportersRefuse(t *testing.T) {
	t.Parallel()
	aws := &providerdouble.AWSMarketplace{}
	if err := aws.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = aws.Close() })
	market := at(t, "aws", "aws-marketplace", &aws.Server)
	market.Secrets, market.Settings = map[string]string{"access_key": "env:AWS"}, map[string]any{"product_code": "p", "region": "us-east-1"}
	buffered := map[string]config.Feature{"calls": {Source: "buffered"}}
	for name, tt := range map[string]struct {
		change   func(*config.Exporter)
		features map[string]config.Feature
		code     string
		says     string
	}{
		"right":           {func(*config.Exporter) {}, buffered, "", ""},
		"source: events":  {func(*config.Exporter) {}, nil, "windows_only", "mapping.features.calls"},
		"after a cutover": {func(*config.Exporter) {}, map[string]config.Feature{"calls": {Cutover: "2027-01-01T00:00:00Z"}}, "windows_only", "features.calls.source"},
		"no dimension":    {func(e *config.Exporter) { e.Mapping.Features = map[string]map[string]string{"calls": {"x": "y"}} }, buffered, "", "has the key dimension"},
		"no key":          {func(e *config.Exporter) { e.Secrets = nil }, buffered, "not_granted", "access_key"},
		"another secret":  {func(e *config.Exporter) { e.Secrets = map[string]string{"access_key": "env:HOOK"} }, buffered, "secret_malformed", "ACCESS_KEY_ID"},
		"no file":         {func(e *config.Exporter) { *e = config.Exporter{Name: "x", Plugin: "builtin:ndjson", Mode: "test"} }, nil, "", "file: ./usage.ndjson"},
		"a folder": {func(e *config.Exporter) {
			*e = config.Exporter{Name: "x", Plugin: "builtin:ndjson", Mode: "test", File: t.TempDir()}
		}, nil, "", "file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := market
			e.Mapping.Features = maps.Clone(e.Mapping.Features)
			tt.change(&e)
			h, err := host.Open(t.Context(), linkedConfig(newStore(t), config.Config{Exporters: []config.Exporter{e}, Features: tt.features}))
			if err == nil {
				if err := h.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
			var refused *sdk.Error
			switch {
			case tt.says == "" && err == nil:
			case tt.says == "" || err == nil || !strings.Contains(err.Error(), tt.says):
				t.Errorf("%v, want %q", err, tt.says)
			case tt.code != "" && (!errors.As(err, &refused) || refused.Code != tt.code):
				t.Errorf("%v, want code %s", err, tt.code)
			case strings.Contains(err.Error(), hookKey):
				t.Error("the error repeats the secret")
			}
		})
	}
}

func identifier(digest storage.Hash) string {
	const digits = "0123456789abcdef"
	b := []byte("fencepost_")
	for _, c := range digest {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return string(b)
}
