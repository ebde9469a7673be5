package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/internal/stripedouble"
)

// block is the block of code of the README that holds a text.
func block(t *testing.T, language, holding string) string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(readme), "```"+language+"\n") {
		if text, _, ok := strings.Cut(part, "\n```"); ok && strings.Contains(text, holding) {
			return text
		}
	}
	t.Fatalf("the README has no %s with %s", language, holding)
	return ""
}

// What the README shows is this program.
func TestReadmeShowsThis(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(source), "\t// README\n")
	if len(parts) != 3 {
		t.Fatalf("%d marks", len(parts)-1)
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSuffix(parts[1], "\n"), "\n") {
		lines = append(lines, strings.TrimPrefix(line, "\t"))
	}
	if got := block(t, "go", "host.Builtins"); got != strings.Join(lines, "\n") {
		t.Errorf("the README shows\n%s", got)
	}
}

// With the settings of the README, but for the place of the provider, the fact and
// the count arrive there.
func TestWhatIsCountedIsCharged(t *testing.T) {
	t.Setenv("STRIPE_API_KEY", "sk_test_readme")
	dir := t.TempDir()
	double, err := stripedouble.New(stripedouble.Config{Dir: filepath.Join(dir, "stripe")})
	if err != nil {
		t.Fatal(err)
	}
	if err := double.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = double.Close() })
	settings, err := config.Parse([]byte(block(t, "yaml", "source: buffered")))
	if err != nil {
		t.Fatal(err)
	}
	settings.Storage.DSN, settings.StateDir = filepath.Join(dir, "app.db"), filepath.Join(dir, "state")
	settings.Counters = config.Counters{Flush: config.Duration(50 * time.Millisecond), Report: config.Duration(time.Second)}
	x := &settings.Exporters[0]
	x.BaseURL, x.CAFile, x.AllowPrivate = double.URL(), double.CAFile(), []string{"127.0.0.0/8"}
	err = serve(t.Context(), settings, func(h *host.Host) error {
		deadline := time.After(time.Minute)
		for {
			var stats struct{ States map[string]int }
			answer := httptest.NewRecorder()
			h.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/outbox/stats", nil))
			if err := json.Unmarshal(answer.Body.Bytes(), &stats); err != nil {
				return err
			}
			if stats.States["accepted"] == 2 {
				return nil
			}
			select {
			case <-deadline:
				return errors.New(answer.Body.String())
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := double.Ledger().NetTotal; got["llm_tokens"] != "12.5" || got["api_calls"] != "1" {
		t.Errorf("charged %v", got)
	}
}
