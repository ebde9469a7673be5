package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// stray is a store that servers record by version 3 of a mapping.
type stray struct {
	t        *testing.T
	dir, ref string // ref: the storage part of a configuration
}

const (
	mappingInForce = "{version: 3, features: {tokens: {event_name: llm_tokens}}}"
	mappingElse    = "{version: 9, features: {tokens: {event_name: llm_tokens9}}}"
)

func (s stray) config(name, exporters string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	text := s.ref + "\nstate_dir: " + strconv.Quote(filepath.Join(s.dir, "state")) + "\n" + exporters
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s stray) exporter(name, mapping string) string {
	return "  - {name: " + name + ", plugin: 'builtin:ndjson', mode: test, trust: outcomes, file: " +
		strconv.Quote(filepath.Join(s.dir, name+".ndjson")) + ", mapping: " + mapping + "}\n"
}

// command runs one and returns its exit code and what it said.
func (s stray) command(path string, args ...string) (code int, stderr string) {
	var out, errs bytes.Buffer
	code = run(append([]string{"--config", path}, args...), streams{in: strings.NewReader(""), out: &out, err: &errs})
	return code, errs.String()
}

// routes are those of the store, read by a host that changes nothing; before, one
// with the configuration at a path may start and put its mapping in force.
func (s stray) routes(path string, use host.RouteUse) storage.RouteSet {
	s.t.Helper()
	cfg, err := config.Load(path)
	if err != nil {
		s.t.Fatal(err)
	}
	opened := hostConfig(cfg, slog.New(slog.DiscardHandler), false)
	opened.Routes = use
	h, err := host.Open(s.t.Context(), opened)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = h.Close(s.t.Context()) }()
	set, err := h.Engine().Routes(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return set
}

// O24, Q4: only a server puts a mapping in force. No command that opens the store
// itself does, whatever its configuration says, and none retires a route by it. What
// would make items anew is refused where the mapping in force is another one, with
// both versions; what records goes by the one in force, and says so.
func TestNoCommandAppliesItsMapping(t *testing.T) {
	t.Parallel()
	stores := map[string]func(*testing.T, string) string{
		"sqlite": func(_ *testing.T, dir string) string {
			return "storage: {dsn: " + strconv.Quote(filepath.Join(dir, "fencepost.db")) + "}"
		},
		"postgres": func(t *testing.T, _ string) string {
			t.Helper()
			dsn, _ := pgtest.Schema(t)
			return "storage: {plugin: 'builtin:postgres', dsn: " + strconv.Quote(dsn) + "}"
		},
	}
	for name, ref := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			strayCommands(t, stray{t: t, dir: dir, ref: ref(t, dir)})
		})
	}
}

func strayCommands(t *testing.T, s stray) {
	t.Helper()
	mine := s.config("mine.yaml", "exporters:\n"+s.exporter("books", mappingInForce))
	events, next := filepath.Join(s.dir, "events.ndjson"), filepath.Join(s.dir, "next.ndjson")
	for path, id := range map[string]string{events: "e1", next: "e2"} {
		if err := os.WriteFile(path, []byte(`{"id":"`+id+`","tenant":"acme","feature":"tokens","quantity":2}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(s.ref, "postgres") {
		if code, said := s.command(mine, "migrate", "up"); code != 0 {
			t.Fatalf("migrate: %d %s", code, said)
		}
	}
	// A store without routes gets those of the first command that records.
	if code, said := s.command(mine, "record", events); code != 0 || said != "" {
		t.Fatalf("record: %d %s", code, said)
	}
	before := s.routes(mine, host.RoutesFollow)
	if len(before.Routes) != 2 || before.Mappings[0].Label != "3" {
		t.Fatalf("routes %+v", before)
	}
	plan := filepath.Join(s.dir, "plan.yaml")
	if err := os.WriteFile(plan, []byte("created: 2026-01-01T12:00:00Z\nfilter: {}\nreason: x\nactor: x\nitems: [{id: 1, lease_token: 1, state: accepted, evidence: {kind: asserted, detail: x}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	others := map[string]string{
		"another version": "exporters:\n" + s.exporter("books", mappingElse),
		"no features":     "exporters:\n" + s.exporter("books", "{version: 9, features: {}}"),
		"another one too": "exporters:\n" + s.exporter("books", mappingInForce) + s.exporter("more", mappingElse),
		"buckets":         "features: {tokens: {buckets: {dimensions: [model]}}}\nexporters:\n" + s.exporter("books", mappingInForce),
	}
	reading, refused := [][]string{
		{"recover", "list"},
		{"recover", "plan"},
		{"recover", "apply", plan, "--dry-run"},
		{"recover", "apply", plan},
		{"recover", "restore", "--dry-run", "--reason", "x"},
		{"recover", "adopt", "--dry-run", "--reason", "x"},
		{"outbox", "list"},
		{"outbox", "get", "1"},
		{"outbox", "stats"},
		{"outbox", "actions"},
		{"outbox", "resolve", "1", "--state", "accepted", "--evidence", "x", "--reason", "x", "--dry-run"},
		{"outbox", "evidence", "1", "--finding", "taken", "--detail", "x", "--reason", "x", "--dry-run"},
		{"outbox", "abandon", "1", "--reason", "x", "--dry-run"},
		{"outbox", "route", "list"},
		{"outbox", "route", "retire", "books", "--reason", "x", "--dry-run"},
		{"outbox", "route", "rename", "books", "other", "--reason", "x", "--dry-run"},
		{"reconcile", "run", "--exporter", "books", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z", "--reason", "x", "--dry-run"},
		{"reconcile", "list"},
		{"usage", "--tenant", "acme"},
		{"events", "list", "--tenant", "acme"},
		{"replay", "status"},
		{"subscriptions", "list"},
		{"correct", "e1", "1", "--tenant", "acme", "--id", "c1", "--dry-run"},
		{"correct", "e1", "1", "--tenant", "acme", "--id", "c1"},
		{"subscriptions", "put", "acme"},
	}, [][]string{
		{"outbox", "requeue", "1", "--reason", "x", "--dry-run"},
		{"outbox", "requeue", "1", "--reason", "x"},
		{"outbox", "backfill", "--exporter", "books", "--reason", "x", "--dry-run"},
		{"outbox", "backfill", "--exporter", "books", "--reason", "x"},
		{"correct", "e1", "--tenant", "acme", "--id", "r1", "--replace", next, "--dry-run"},
	}
	for other, exporters := range others {
		path := s.config("other.yaml", exporters)
		differs := strings.Contains(other, "version") || other == "no features"
		for i, args := range append(reading, refused...) {
			code, said := s.command(path, args...)
			if code == exitUsage || strings.Contains(said, "unknown") {
				t.Fatalf("%v: %d %s", args, code, said)
			}
			if held := strings.Contains(said, host.DegradedMappingDiffers); held != (differs && i >= len(reading)) ||
				held && (code != exitConflict || !strings.Contains(said, "(version 3)") || !strings.Contains(said, "--server")) {
				t.Errorf("%s: %v: %d %s", other, args, code, said)
			}
			if after := s.routes(mine, host.RoutesKeep); !reflect.DeepEqual(after, before) {
				t.Fatalf("%s: %v: routes %+v, were %+v", other, args, after, before)
			}
		}
		if other == "buckets" {
			continue // what is recorded is recorded by the settings of who records
		}
		code, said := s.command(path, "record", next)
		if code != 0 || !strings.Contains(said, "warning: only a server") || differs && !strings.Contains(said, "(version 3)") {
			t.Errorf("%s: record: %d %s", other, code, said)
		}
		if after := s.routes(mine, host.RoutesKeep); !reflect.DeepEqual(after, before) {
			t.Fatalf("%s: record: routes %+v, were %+v", other, after, before)
		}
	}
	// A server does.
	after := s.routes(s.config("other.yaml", others["another version"]), host.RoutesFollow)
	if after.Revision == before.Revision {
		t.Errorf("a server's mapping: %+v", after)
	}
}
