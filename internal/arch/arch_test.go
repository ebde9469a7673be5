package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fencepost/fencepost"

// room is a folder with what its whole build, without tests, may or may not
// reach. Names are import paths and match whole path elements from the start.
type room struct {
	dir string
	// only lists what may be reached beside the standard library and the room
	// itself; nil means anything but never.
	only []string
	// never lists what must not be reached.
	never []string
	env   []string
	tags  string
	// but is a folder below dir with a room of its own.
	but string
}

const (
	sdk        = module + "/plugins/sdk"
	migrations = module + "/migrations"
	internal   = module + "/internal"
	decimal    = "github.com/quagmt/udecimal"
	wire       = "github.com/aperturerobotics/protobuf-go-lite"
	stripeGo   = "github.com/stripe/stripe-go/v79"
	wazero     = "github.com/tetratelabs/wazero"
	sqlite     = "zombiezen.com/go/sqlite"
	pgx        = "github.com/jackc"
	mysql      = "github.com/go-sql-driver/mysql"
	redis      = "github.com/redis/go-redis"
	websocket  = "github.com/coder/websocket"
)

var (
	wasip1 = []string{"GOOS=wasip1", "GOARCH=wasm"}
	// sqliteStack is the driver and what it stands on.
	sqliteStack = []string{
		sqlite, "modernc.org", "golang.org/x/sys", "golang.org/x/exp", "github.com/dustin/go-humanize",
		"github.com/google/uuid", "github.com/mattn/go-isatty", "github.com/ncruces/go-strftime", "github.com/remyoudompheng/bigfft",
	}
	// processStack is what a plugin stands on that serves from a process.
	processStack = []string{
		"github.com/hashicorp", "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
		"github.com/golang/protobuf", "github.com/fatih/color", "github.com/mattn", "github.com/oklog/run",
		"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
	}
	technologies = []string{wazero, sqlite, "modernc.org", stripeGo, pgx, "github.com/hashicorp/go-plugin", redis}
)

func rooms() []room {
	return []room{
		{dir: "engine", only: []string{sdk, decimal}},
		{dir: "engine", only: []string{sdk, decimal}, tags: "faults"},
		{dir: "plugins/sdk", only: append([]string{decimal, wire}, processStack...)},
		{dir: "plugins/sdk", only: append([]string{decimal, wire}, processStack...), tags: "faults"},
		{dir: "plugins/sdk", only: []string{decimal, wire}, env: wasip1},
		{dir: "migrations", only: []string{}},
		{dir: "plugins/storage/sqlite", only: slices.Concat([]string{sdk, migrations, decimal, wire}, sqliteStack, processStack)},
		{dir: "plugins/storage/postgres", only: append([]string{sdk, migrations, decimal, wire, pgx, "golang.org/x/sync", "golang.org/x/text"}, processStack...)},
		{dir: "plugins/storage/redis", only: append([]string{sdk, decimal, wire, redis, "github.com/cespare/xxhash", "go.uber.org/atomic"}, processStack...)},
		// A dialect is written against the contract alone: no driver, nothing of ours.
		{dir: "plugins/storage/mysql", only: append([]string{sdk, decimal, wire}, processStack...)},
		{dir: "plugins/storage/mysql", only: []string{sdk, decimal, wire}, env: wasip1},
		{dir: "plugins/exporters/stripe", only: append([]string{sdk, decimal, wire, stripeGo}, processStack...)},
		{dir: "plugins/exporters/stripe", only: []string{sdk, decimal, wire, stripeGo}, env: wasip1},
		{dir: "plugins/exporters/webhook", only: []string{sdk, decimal, wire}, env: wasip1},
		{dir: "plugins/exporters/cloudevents", only: []string{sdk, decimal, wire}, env: wasip1},
		{dir: "plugins/exporters/ndjson", only: []string{sdk, decimal, wire}, env: wasip1},
		{dir: "plugins/exporters/awsmarketplace", only: []string{sdk, decimal, wire}, env: wasip1},
		{dir: "host/journal", only: []string{sdk}},
		{dir: "host", but: "host/sql", never: []string{sqlite, mysql, "modernc.org", pgx, stripeGo, internal, module + "/cmd", module + "/plugins/storage", module + "/plugins/exporters"}},
		{dir: "host/sql", only: append([]string{sdk, decimal, wire, pgx, mysql, "filippo.io/edwards25519", "golang.org/x/sync", "golang.org/x/text"}, sqliteStack...)},
		{dir: "host/carrier", never: []string{module + "/engine", internal}},
		{dir: "outpost/state", only: []string{sdk, decimal, redis, "github.com/cespare/xxhash", "go.uber.org/atomic", "golang.org/x/sys"}},
		{dir: "outpost/protocol", only: []string{sdk, decimal, module + "/engine/meter", module + "/engine/canon"}},
		{dir: "outpost/server", only: []string{sdk, decimal, module + "/engine", module + "/outpost/protocol", websocket}},
		{dir: "outpost", never: append([]string{module + "/host", internal}, sqlite, pgx, wazero, stripeGo)},
		// Test support stands on the standard library where it can: what it
		// reached, every test would.
		{dir: "internal/providerdouble", never: append([]string{module + "/host", module + "/engine", module + "/plugins"}, technologies...)},
		{dir: "internal/stripedouble", never: append([]string{module + "/host", module + "/engine", module + "/plugins/exporters"}, technologies...)},
	}
}

// TestImportDirection fails when a room's build reaches what it may not know,
// directly or through others. A folder that does not exist yet is skipped; one
// that exists and cannot be listed fails.
func TestImportDirection(t *testing.T) {
	t.Parallel()
	for _, r := range rooms() {
		t.Run(strings.Join(append([]string{r.dir, r.tags}, r.env...), " "), func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat(filepath.Join("..", "..", r.dir)); os.IsNotExist(err) {
				t.Skipf("%s does not exist yet", r.dir)
			}
			for _, dep := range closure(t, r) {
				switch {
				case within(dep, []string{module + "/" + r.dir}):
				case within(dep, r.never):
					t.Errorf("%s reaches %s", r.dir, dep)
				case r.only != nil && !within(dep, r.only):
					t.Errorf("%s reaches %s", r.dir, dep)
				}
			}
		})
	}
}

// Only one room may name each technology: the tree is asked for every package's
// own imports, so that a new folder cannot slip past the list of rooms above.
func TestOneRoomPerTechnology(t *testing.T) {
	t.Parallel()
	homes := map[string][]string{
		wazero:                           {module + "/host/carrier/wasm"},
		sqlite:                           {module + "/plugins/storage/sqlite", module + "/examples"}, // an embedder's own transaction
		"modernc.org/sqlite":             {module + "/host/sql"},
		mysql:                            {module + "/host/sql"},
		stripeGo:                         {module + "/plugins/exporters/stripe"},
		"github.com/hashicorp/go-plugin": {module + "/host/carrier/process", module + "/plugins/sdk/guest"},
		pgx:                              {module + "/plugins/storage/postgres", module + "/host/sql", module + "/internal/pgtest", module + "/examples"},
		redis:                            {module + "/outpost", module + "/plugins/storage/redis"},
		websocket:                        {module + "/outpost"},
		"github.com/spf13/cobra":         {module + "/cmd"},
		"github.com/vbauerster/mpb":      {module + "/cmd"},
	}
	for _, line := range list(t, room{}, "{{.ImportPath}} {{join .Imports \" \"}}", "./...") {
		pkg, imports, _ := strings.Cut(line, " ")
		if pkg == internal+"/deps" {
			continue // pins versions and has no code
		}
		for dep := range strings.FieldsSeq(imports) {
			for technology, homes := range homes {
				if within(dep, []string{technology}) && !within(pkg, homes) {
					t.Errorf("%s imports %s; only %s may", pkg, dep, strings.Join(homes, ", "))
				}
			}
		}
	}
}

// The rooms above name real packages: a rule that matches nothing, because a
// path changed, would hold for ever.
func TestClosureSeesThroughOthers(t *testing.T) {
	t.Parallel()
	deps := closure(t, room{dir: "engine"})
	for _, want := range []string{sdk, decimal} { // the decimal only through the contract
		if !slices.ContainsFunc(deps, func(d string) bool { return within(d, []string{want}) }) {
			t.Errorf("the closure of engine lacks %s", want)
		}
	}
}

func closure(t *testing.T, r room) []string {
	t.Helper()
	packages := []string{"./" + r.dir + "/..."}
	if r.but != "" {
		packages = slices.DeleteFunc(list(t, r, "{{.ImportPath}}", packages...), func(p string) bool {
			return within(p, []string{module + "/" + r.but})
		})
	}
	return list(t, r, "{{if not .Standard}}{{.ImportPath}}{{end}}", append([]string{"-deps"}, packages...)...)
}

func list(t *testing.T, r room, format string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-tags", r.tags, "-f", format}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), r.env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", r.dir, err, stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return slices.DeleteFunc(lines, func(s string) bool { return s == "" })
}

// within reports whether path is one of roots or below one.
func within(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		rest, ok := strings.CutPrefix(path, root)
		return ok && (rest == "" || rest[0] == '/')
	})
}
