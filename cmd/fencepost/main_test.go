package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// TestMain makes this test binary the command under test, under its own name.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerCommandName {
		main() // the child that runs a module has the plugin's name, not ours
	}
	testscript.Main(m, map[string]func(){
		"fencepost": main,
		"sqlexec":   sqlExec,
	})
}

// cacheVar names the folder of compiled plugins that all scripts share.
const cacheVar = "XDG_CACHE_HOME"

// TestScript runs testdata/script. Each script has a folder, a free port and a
// configuration of its own; see script_test.go for the words that it may use.
func TestScript(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// Scripts that build a plugin in Go: nothing is fetched for them.
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	goCache, goModCache, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			port, err := freePort()
			if err != nil {
				return err
			}
			port2, err := freePort()
			if err != nil {
				return err
			}
			now := time.Now().UTC()
			e.Vars = append(e.Vars, cacheVar+"="+cache, "PORT="+port, "PORT2="+port2, "STRIPE_API_KEY=sk_test_"+canary,
				"CANARY="+canary, "NOW="+now.Format(time.RFC3339),
				"TODAY="+now.Truncate(24*time.Hour).Format(time.RFC3339), "TOMORROW="+now.Truncate(24*time.Hour).AddDate(0, 0, 1).Format(time.RFC3339),
				"FENCEPOST_CONFIG=", "FENCEPOST_SERVER=", "CHECKOUT="+checkout, "GOCACHE="+goCache, "GOMODCACHE="+goModCache, "GOPROXY=off")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "await": await, "gen": generate, "mount": mount, "expand": expand, "fetch": fetch, "jsonvalid": jsonValid, "bytes": noBytes,
		},
		Condition: condition,
	})
}

// canary is the secret in every script's environment: no output may hold it.
const canary = "c4n4ryMustNeverBeSeen"

func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port), nil
}

// exits runs fencepost and checks its exit code, which the built-in exec knows
// only as zero or not: "exits 7 record bad.ndjson". It also holds what is true
// of every command: no panic, no secret, and an explanation if it failed.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: exits CODE ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec("fencepost", args[1:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	stdout, stderr := ts.ReadFile("stdout"), ts.ReadFile("stderr")
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	for _, never := range []string{canary, "panic:", "goroutine 1", "%!"} {
		if strings.Contains(stdout+stderr, never) {
			ts.Fatalf("output holds %q", never)
		}
	}
	if want != 0 && stderr == "" && stdout == "" {
		ts.Fatalf("failed without a word")
	}
}

// await waits until a server answers at a port, until some process holds the
// store of a configuration, until a file exists, or until the command fencepost
// prints a line.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await live PORT | await held CONFIG | await file FILE | await line LINE ARG...")
	}
	done := map[string]func() bool{
		"live": func() bool { return alive(args[1]) },
		"file": func() bool { _, err := os.Stat(ts.MkAbs(args[1])); return err == nil },
		"held": func() bool {
			var exit *exec.ExitError
			err := ts.Exec("fencepost", "migrate", "status", "--config", args[1])
			return errors.As(err, &exit) && exit.ExitCode() == exitUnavailable
		},
		"line": func() bool {
			err := ts.Exec("fencepost", args[2:]...)
			return err == nil && slices.Contains(strings.Split(ts.ReadFile("stdout"), "\n"), args[1])
		},
	}[args[0]]
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("%s did not come", strings.Join(args, " "))
		}
	}
}

func alive(port string) bool {
	c, err := remoteClient("http://127.0.0.1:" + port)
	return err == nil && c.alive(context.Background())
}

// sqlExec is a command of scripts: it changes a database by hand.
func sqlExec() {
	conn, err := sqlite.OpenConn(os.Args[1], sqlite.OpenReadWrite)
	if err == nil {
		err = errors.Join(sqlitex.ExecuteScript(conn, os.Args[2], nil), conn.Close())
	}
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}
