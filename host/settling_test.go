package host_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// F13, Q17: whoever settles items without a server, in a process that opens the
// store itself, is refused as a server would refuse while the store is behind what
// state_dir remembers of it, and may go on once that is settled. The process
// remembers nothing itself.
func TestSettlingWithoutAServerKnowsARestore(t *testing.T) { //nolint:paralleltest // in archives
	archives(t, func(t *testing.T, a archive) {
		d, dir := newProvider(t), filepath.Join(t.TempDir(), "state")
		beforeTheBackup(t, a, d, dir)
		a.restore()

		before := files(t, dir)
		l := a.live(t, d, dir, false)
		abandon := func(l *life, id int64) error {
			_, err := l.Engine().Abandon(t.Context(), id, engine.Abandonment{}, act)
			return err
		}
		pending := &sdk.Error{Tag: sdk.TagConflict, Code: host.ReasonRestorePending}
		for range 2 { // also of what was looked at a moment ago
			if err := abandon(l, 3); !errors.Is(err, pending) {
				t.Errorf("abandon while the store is behind: %v", err)
			}
		}
		if after := files(t, dir); after != before {
			t.Errorf("state_dir was %q, is %q", before, after)
		}
		l.end()

		// Without a memory nobody can tell, and it says so.
		var log bytes.Buffer
		st, s := a.open(), settings(d.Server)
		s.StateDir = filepath.Join(t.TempDir(), "of another machine")
		cfg := hostConfig(st, s)
		cfg.WithoutDelivery, cfg.Logger = true, slog.New(slog.NewTextHandler(&log, nil))
		h, err := host.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		other := &life{t: t, store: st, Host: h}
		if err := abandon(other, 3); errors.Is(err, pending) {
			t.Errorf("without a memory: %v", err)
		}
		other.end()
		if strings.Count(log.String(), "nothing here remembers this store") != 1 {
			t.Errorf("log %s", &log)
		}
		if _, err := os.Stat(s.StateDir); err == nil {
			t.Error("it remembers what it must not vouch for")
		}

		l = a.live(t, d, dir, false)
		defer l.end()
		if err := abandon(l, 3); !errors.Is(err, pending) {
			t.Errorf("abandon by another process: %v", err)
		}
		if _, err := l.RecoverRestore(t.Context(), act); err != nil {
			t.Fatal(err)
		}
		if err := abandon(l, 3); errors.Is(err, pending) {
			t.Errorf("abandon after it was settled: %v", err)
		}
	})
}

// files is what a folder holds, by name and content.
func files(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(e.Name() + ": " + string(raw) + "\n")
	}
	return b.String()
}
