package host_test

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// F55, O24: two hosts return to an earlier mapping and leave it again, one after the
// other. The one that starts again with a version from in between records by the
// mapping in force, as the other does.
func TestReturnIsNotUndoneByAnOldHost(t *testing.T) { //nolint:paralleltest // in archives
	archives(t, func(t *testing.T, a archive) {
		d, st := newProvider(t), a.open()
		t.Cleanup(func() { _ = st.Close() })
		starts := func(version int, event string) *host.Host {
			t.Helper()
			s := settings(d.Server)
			s.StateDir = filepath.Join(t.TempDir(), "state")
			s.Exporters[0].Mapping.Version = version
			s.Exporters[0].Mapping.Features = map[string]map[string]string{"tokens": {"event_name": event}}
			cfg := hostConfig(st, s)
			cfg.WithoutDelivery = true
			return open(t, cfg)
		}
		n := 0
		records := func(event string, hosts ...*host.Host) {
			t.Helper()
			for _, h := range hosts {
				n++
				id := strconv.Itoa(n)
				if _, err := h.Engine().Record(t.Context(), engine.Event{ID: id, Tenant: "acme", Feature: "tokens", Quantity: decimal.One}); err != nil {
					t.Fatal(err)
				}
				if got := madeFor(t, st, id); got != event {
					t.Errorf("event %s is reported as %s, want %s", id, got, event)
				}
			}
		}
		old := starts(1, "llm")
		records("llm", old)
		next := starts(2, "llm_2")
		records("llm_2", next, old)
		records("llm_2", next, starts(1, "llm")) // the old one, started again
		back := starts(3, "llm")                 // somebody returns, on purpose
		records("llm", back, next)
		records("llm", back, starts(2, "llm_2"))
		again := starts(4, "llm_2") // and leaves it again
		records("llm_2", again, back)
		records("llm_2", again, starts(3, "llm"))
		records("llm_2", again, starts(1, "llm"))
	})
}

// madeFor is the event name by which an event is reported.
func madeFor(t *testing.T, st storage.Adapter, id string) string {
	t.Helper()
	items, _ := st.(storage.OutboxStore)
	page, err := items.ListItems(t.Context(), storage.ItemQuery{Tenant: "acme", SubjectRef: id, Limit: 2})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v, %v", page.Items, err)
	}
	routes, _ := st.(storage.RouteStore)
	set, err := routes.Routes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range set.Mappings {
		var content map[string]string
		if m.Version != page.Items[0].Identity.MappingVersion {
			continue
		}
		if err := json.Unmarshal(m.Content, &content); err != nil {
			t.Fatal(err)
		}
		return content["event_name"]
	}
	return ""
}
