package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Q17: a host noticed a restore and was stopped; it is settled with the folder of one
// that remembers less. The first stops again, says whose folder it takes, and nothing
// is sent twice.
func TestRestoreSettledByTheHostThatRemembersLess(t *testing.T) { //nolint:paralleltest // in archives
	archives(t, func(t *testing.T, a archive) {
		d, less, more := newProvider(t), filepath.Join(t.TempDir(), "less"), filepath.Join(t.TempDir(), "more")
		beforeTheBackup(t, a, d, more)
		if err := os.CopyFS(less, os.DirFS(more)); err != nil {
			t.Fatal(err)
		}
		l := a.live(t, d, more, true)
		for _, id := range []string{"x", "y", "z"} { // a claim each
			l.record(id)
			l.sent()
		}
		l.end()
		a.restore()
		l = a.live(t, d, more, true)
		l.stopped(host.ReasonRestorePending)
		l.end()
		l = a.live(t, d, less, false)
		if done, err := l.RecoverRestore(t.Context(), act); err != nil || done.Items != 2 {
			t.Fatalf("%+v, %v", done, err)
		}
		l.end()
		l = a.live(t, d, more, true)
		defer l.end()
		l.stopped(host.ReasonRestorePending)
		if said := strings.Join(l.Degraded(), " "); !strings.Contains(said, more) {
			t.Errorf("says %q, want the folder", said)
		}
		l.record("e")
		if done, err := l.RecoverRestore(t.Context(), act); err != nil || done.Items != 0 {
			t.Errorf("%+v, %v", done, err)
		}
		if got := l.sent(); got[storage.Uncertain] != 2 || got[storage.Accepted] != 3 {
			t.Errorf("states %v", got)
		}
		if ledger := d.Ledger(); ledger.DoubleCharges != 0 {
			t.Errorf("%d double charges", ledger.DoubleCharges)
		}
	})
}
