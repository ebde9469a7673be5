package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tutorialPage is what a new author reads.
const tutorialPage = "../../docs/plugins/tutorial.md"

// tutorialNeeds are the programs of a language's compiler. Where one is missing
// the tutorial in that language is skipped; make plugins installs them.
var tutorialNeeds = map[string][]string{
	"go": {"go"}, "c": {"clang", "wasm-ld"}, "rust": {"rustc"}, "assemblyscript": {"node", "npm"},
}

// Issue 5, point 5: the commands of the tutorial, as they stand there, end at an
// exporter that is installed and has delivered once.
func TestTutorial(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"go", "c"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			walkTutorial(t, language)
		})
	}
}

// The same in the languages whose compilers few machines have: of make plugins.
func TestTutorialInMoreLanguages(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"rust", "assemblyscript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if os.Getenv("FENCEPOST_TEST_TUTORIAL") == "" {
				t.Skip("scripts/plugins.sh runs it")
			}
			walkTutorial(t, language)
		})
	}
}

func walkTutorial(t *testing.T, language string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds plugins and serves")
	}
	for _, program := range append(tutorialNeeds[language], "bash", "curl") {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s", program)
		}
	}
	out := runTutorial(t, language)
	for _, want := range []string{
		"request 1: POST https://api.meterline.example/v1/usage", "Authorization: Bearer <token>", "0 failed, 1 skipped",
		"meterline,accepted,1,", `"taken": 1,`, `\"value\":\"12.5\"`, "the tutorial has come to its end",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in what was printed:\n%s", want, out)
		}
	}
}

// runTutorial has a shell run the page's commands in a folder of its own.
func runTutorial(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile(tutorialPage)
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	port2, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// Other tests run beside it, so it gets ports of its own.
	ports := strings.NewReplacer("127.0.0.1:8787", "127.0.0.1:"+port, "127.0.0.1:12112", "127.0.0.1:"+port2)
	script := "set -e\nset -o pipefail\n" + ports.Replace(commands(string(page), language)) + "echo the tutorial has come to its end\n"
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "FENCEPOST_SDK="+checkout, "FENCEPOST_CONFIG=", "FENCEPOST_SERVER=", cacheVar+"="+t.TempDir())
	if language == "go" { // nothing is fetched
		cmd.Env = append(cmd.Env, "GOFLAGS=-mod=readonly", "GOPROXY=off")
	}
	// Whatever is left of it ends with it: it starts servers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if e := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); e != nil && !errors.Is(e, syscall.ESRCH) {
		t.Error(e)
	}
	if err != nil && strings.Contains(string(out), "compiler_missing") && os.Getenv("FENCEPOST_TEST_STRICT") != "1" {
		t.Skipf("no compiler: %s", out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s: %s", language, time.Since(start).Round(time.Second))
	return string(out)
}

// commands are the blocks of a page that a shell runs: those for every language
// and those for one, which come first.
func commands(page, language string) string {
	var first, rest strings.Builder
	var into *strings.Builder
	for line := range strings.Lines(page) {
		switch info := strings.TrimSpace(line); {
		case into != nil && info == "```":
			into = nil
		case into != nil:
			into.WriteString(line)
		case info == "```sh "+language:
			into = &first
		case info == "```sh":
			into = &rest
		}
	}
	return first.String() + rest.String()
}
