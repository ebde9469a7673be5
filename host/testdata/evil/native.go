//go:build linux

package evil

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// NativeModes are those of a program, beside Modes.
var NativeModes = []string{"stops", "forks", "leaves-children", "ignores-sigterm", "writes"}

func (e *evil) native(ctx context.Context, d exporter.Delivery) ([]exporter.ItemOutcome, error) {
	switch e.mode {
	case "stops":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "forks":
		for range 2_000 {
			if exec.Command("/proc/self/exe", Sleep).Start() != nil {
				break
			}
		}
		time.Sleep(time.Hour)
	case "leaves-children":
		for _, leave := range []bool{false, true} {
			cmd := exec.Command("/proc/self/exe", Sleep)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: leave}
			_ = cmd.Start()
		}
		os.Exit(0)
	case "ignores-sigterm":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		time.Sleep(time.Hour)
	case "writes":
		if f, err := os.CreateTemp("", "evil"); err == nil {
			if _, err = f.WriteString("written by a plugin"); err == nil {
				return say(d, exporter.Rejected), nil
			}
			_ = os.Remove(f.Name())
		}
	}
	return e.honest(ctx, d)
}
