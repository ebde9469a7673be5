//go:build faults && unix

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// binaryVar names a binary with the tag faults that was built before; without
// it TestMain builds one.
const binaryVar = "FENCEPOST_FAULTS_BINARY"

// binary is the program under test. It is set once, before any test runs.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(pairVar) != "" {
		os.Exit(servePair())
	}
	dir, err := os.MkdirTemp("", "fencepost-faults-")
	if err == nil {
		err = prepare(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		_ = os.RemoveAll(dir)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// prepare builds the binary, and starts it once so that the exporter is in the
// compile cache: the tests are about faults, not about the first start.
func prepare(dir string) error {
	if binary = os.Getenv(binaryVar); binary == "" {
		binary = filepath.Join(dir, "fencepost")
		build := exec.Command("go", "build", "-tags", "faults", "-o", binary, "../../cmd/fencepost")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	config := filepath.Join(dir, "fencepost.yaml")
	text := fmt.Sprintf("storage: {dsn: %q}\nexporters: [{name: stripe, plugin: \"builtin:stripe\", account: acct_1, secrets: {api_key: env:%s}}]\n",
		filepath.Join(dir, "warm.db"), keyVar)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	warm := exec.Command(binary, "record", "-", "--config", config)
	warm.Env = append(os.Environ(), keyVar+"="+canary)
	if out, err := warm.CombinedOutput(); err != nil {
		return fmt.Errorf("first start: %w\n%s", err, out)
	}
	return nil
}
