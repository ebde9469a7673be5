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

// These name binaries that were built before, with and without the tag faults;
// without them TestMain builds them.
const (
	binaryVar  = "FENCEPOST_FAULTS_BINARY"
	shippedVar = "FENCEPOST_FAULTS_SHIPPED"
)

// binary is the program under test, and shipped the one without the tag: as it
// is released, and with the paths that a build with faults takes in steps. Both
// are set once, before any test runs.
var binary, shipped string

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
	var err error
	if binary, err = build(binaryVar, filepath.Join(dir, "fencepost"), "-tags", "faults"); err != nil {
		return err
	}
	if shipped, err = build(shippedVar, filepath.Join(dir, "fencepost-shipped")); err != nil {
		return err
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

// build builds the program, unless the variable names one.
func build(variable, path string, flags ...string) (string, error) {
	if ready := os.Getenv(variable); ready != "" {
		return ready, nil
	}
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, "../../cmd/fencepost")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
}
