package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/internal/redistest"
	"github.com/fencepost/fencepost/outpost"
	"github.com/fencepost/fencepost/outpost/state"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// TestTwoInstances runs the service twice over one Redis: what one has used up the
// other refuses, and the engine has every request that was served, once.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "fencepost.db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	h, err := host.Open(t.Context(), host.Config{Store: store, Settings: config.Config{
		Meters:   []config.Meter{{Feature: "tokens", EventType: "llm.completion", Aggregation: "sum", Value: "$.tokens"}},
		Features: map[string]config.Feature{"tokens": {Buckets: true}}, StateDir: dir,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	if _, err := h.Engine().AddCredit(t.Context(), engine.CreditRequest{Credit: storage.Credit{
		Tenant: "acme", Meter: "tokens", ID: "first", Kind: storage.CreditGrant, Amount: decimal.MustParse("1000"),
	}}); err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(h.Handler())
	t.Cleanup(api.Close)
	redis := redistest.Start(t)
	var instances []*httptest.Server
	var clients []*outpost.Client
	for range 2 {
		rc, err := state.Dial(redis.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rc.Close() })
		c, err := outpost.Open(t.Context(), outpost.Config{Redis: rc, Org: "example", Server: api.URL, SnapshotTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(service(c))
		t.Cleanup(s.Close)
		instances, clients = append(instances, s), append(clients, c)
	}
	served := 0
	for n := range 20 {
		res, err := http.Post(instances[n%2].URL+"/complete?customer=acme&tokens=300", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		switch {
		case res.StatusCode == http.StatusOK:
			served++
		case res.StatusCode != http.StatusPaymentRequired && !strings.Contains(string(body), "not known"):
			t.Fatalf("%d %s", res.StatusCode, body)
		}
		// The other instance hears of it within the time of a message.
		other := clients[(n+1)%2]
		if _, err := other.Fresh(t.Context(), "acme", "tokens"); err != nil {
			t.Fatal(err)
		}
	}
	if served != 4 { // 1000 less 3 times 300 is 100, and that much is left
		t.Errorf("%d requests were served", served)
	}
	for _, c := range clients {
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b, err := h.Engine().Balance(t.Context(), "acme", "tokens")
	if err != nil || b.Balance.String() != "-200" {
		t.Errorf("%+v %v", b, err)
	}
}
