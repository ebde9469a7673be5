package host_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// archive is a database that can be backed up and restored while nothing has it
// open.
type archive struct {
	open            func() storage.Adapter
	backup, restore func()
}

// sqliteArchive copies the file.
func sqliteArchive(t *testing.T) archive {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fencepost.db")
	copyFile := func(to, from string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return archive{
		open: func() storage.Adapter {
			t.Helper()
			st, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Migrate: true})
			if err != nil {
				t.Fatal(err)
			}
			return st
		},
		backup:  func() { copyFile(path+".backup", path) },
		restore: func() { copyFile(path, path+".backup") },
	}
}

// postgresArchive copies the database.
func postgresArchive(t *testing.T) archive {
	t.Helper()
	pgtest.Schema(t) // skips without a server
	base := pgtest.Plain(os.Getenv(pgtest.Env))
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	name := "restore_" + hex.EncodeToString(b[:])
	run := func(sql string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c, err := pgx.Connect(ctx, base)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(ctx) }()
		if _, err := c.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	run("CREATE DATABASE " + name)
	t.Cleanup(func() {
		run("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)")
		run("DROP DATABASE IF EXISTS " + name + "_backup WITH (FORCE)")
	})
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return archive{
		open: func() storage.Adapter {
			t.Helper()
			st, err := postgres.Open(t.Context(), postgres.Config{DSN: u.String(), Migrate: true})
			if err != nil {
				t.Fatal(err)
			}
			return st
		},
		backup: func() { run("CREATE DATABASE " + name + "_backup TEMPLATE " + name) },
		restore: func() {
			run("DROP DATABASE " + name)
			run("CREATE DATABASE " + name + " TEMPLATE " + name + "_backup")
		},
	}
}

// archives runs a test on both stores.
func archives(t *testing.T, test func(t *testing.T, a archive)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, sqliteArchive(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, postgresArchive(t)) })
}

// provider is a double that can be made to forget: then two days have passed for
// it, it recognises nothing that was sent before, and what is sent twice is charged
// twice.
type provider struct {
	*stripedouble.Server
	ahead *atomic.Int64
}

func (p provider) forget() { p.ahead.Add(int64(49 * time.Hour)) }

func newProvider(t *testing.T) provider {
	t.Helper()
	var ahead atomic.Int64
	d, err := stripedouble.New(stripedouble.Config{
		Dir: filepath.Join(t.TempDir(), "stripe"), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return provider{d, &ahead}
}

// life is one host on an archive, from its start to its end.
type life struct {
	t     *testing.T
	store storage.Adapter
	*host.Host
}

func (a archive) live(t *testing.T, d provider, dir string, deliver bool) *life {
	t.Helper()
	st := a.open()
	s := settings(d.Server)
	s.StateDir = dir
	cfg := hostConfig(st, s)
	cfg.WithoutDelivery = !deliver
	h, err := host.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &life{t: t, store: st, Host: h}
}

func (l *life) end() {
	l.t.Helper()
	if err := l.Close(context.Background()); err != nil {
		l.t.Error(err)
	}
	if err := l.store.Close(); err != nil {
		l.t.Error(err)
	}
}

func (l *life) record(ids ...string) {
	l.t.Helper()
	for _, id := range ids {
		ev := engine.Event{ID: id, Tenant: "acme", Feature: "tokens", Quantity: decimal.One}
		if _, err := l.Engine().Record(l.t.Context(), ev); err != nil {
			l.t.Fatal(err)
		}
	}
}

// sent waits until nothing is to be sent.
func (l *life) sent() map[storage.ItemState]int64 {
	l.t.Helper()
	items, _ := l.store.(storage.OutboxStore)
	return wait(l.t, items)
}

// stopped waits until the host says that it does not deliver for a reason, and
// that it records all the same.
func (l *life) stopped(reason string) {
	l.t.Helper()
	deadline := time.After(time.Minute)
	for !slices.ContainsFunc(l.Degradations(), func(d host.Degradation) bool { return d.Code == reason }) {
		select {
		case <-deadline:
			l.t.Fatalf("degraded %v, want %s", l.Degraded(), reason)
		case <-time.After(10 * time.Millisecond):
		}
	}
	w := httptest.NewRecorder()
	l.Handler().ServeHTTP(w, httptest.NewRequestWithContext(l.t.Context(), http.MethodGet, "/readyz", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"degraded"`) || !strings.Contains(w.Body.String(), reason) {
		l.t.Errorf("%d %s", w.Code, w.Body)
	}
}

// beforeTheBackup records four events of which two were sent, takes a backup, and
// then the other two are sent.
func beforeTheBackup(t *testing.T, a archive, d provider, dir string) {
	t.Helper()
	l := a.live(t, d, dir, true)
	if _, err := l.Engine().PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Customers: map[string]string{"stripe": "cus_1"}}); err != nil {
		t.Fatal(err)
	}
	l.record("a", "b")
	l.sent()
	l.end()
	l = a.live(t, d, filepath.Join(t.TempDir(), "of a command"), false)
	l.record("c", "d")
	l.end()
	a.backup()
	l = a.live(t, d, dir, true)
	if got := l.sent(); got[storage.Accepted] != 4 {
		t.Fatalf("states %v", got)
	}
	l.end()
	d.forget()
}

var act = host.Act{Actor: "ada", Reason: "restored the backup of tonight"}

// F13, Q17: a restored backup says that usage is still to be sent which was
// charged, to a provider that has forgotten it. Nothing is sent until an operator
// settles it, what nobody knows waits for evidence, what is new goes on, and the
// provider's ledger has no double charge.
func TestRestoredBackupChargesNothingTwice(t *testing.T) { //nolint:paralleltest // in archives
	archives(t, func(t *testing.T, a archive) {
		d, dir := newProvider(t), filepath.Join(t.TempDir(), "state")
		beforeTheBackup(t, a, d, dir)
		a.restore()

		l := a.live(t, d, dir, true)
		defer l.end()
		l.stopped(host.ReasonRestorePending)
		l.record("e") // ingest does not stop because export does
		if _, err := l.RecoverAdopt(t.Context(), act); err == nil {
			t.Error("adopted a store that is known to have gone back")
		} else if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Code != host.ReasonRestorePending {
			t.Errorf("adopt: %v", err)
		}
		// What looks unsent may be charged: nobody gives it up, or has it made
		// anew under another identifier, before the restore is settled.
		abandoned := func() error { _, err := l.Engine().Abandon(t.Context(), 3, engine.Abandonment{}, act); return err }
		requeued := func() error { _, err := l.Engine().Requeue(t.Context(), 3, engine.Requeue{}, act); return err }
		filled := func() error {
			_, err := l.Engine().Backfill(t.Context(), engine.Backfill{Exporter: "stripe"}, act)
			return err
		}
		for name, decide := range map[string]func() error{"abandon": abandoned, "requeue": requeued, "backfill": filled} {
			if err := decide(); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: host.ReasonRestorePending}) {
				t.Errorf("%s while the store is behind: %v", name, err)
			}
		}
		dry := act
		dry.DryRun = true
		plan, err := l.RecoverRestore(t.Context(), dry)
		if err != nil || plan.Items != 2 || plan.Reason != host.ReasonRestorePending || !plan.Since.Before(plan.Before) {
			t.Fatalf("%+v, %v", plan, err)
		}
		if want := []host.RecoveryCount{{State: storage.Pending, Items: 2}}; !slices.Equal(plan.Of, want) {
			t.Errorf("would move %+v, want %+v", plan.Of, want)
		}
		l.stopped(host.ReasonRestorePending)
		if got := d.Ledger().Charges; got != 4 {
			t.Errorf("%d charges while stopped, want 4", got)
		}
		done, err := l.RecoverRestore(t.Context(), act)
		if err != nil || done.Items != 2 {
			t.Fatalf("%+v, %v", done, err)
		}
		if got := l.sent(); got[storage.Uncertain] != 2 || got[storage.Accepted] != 3 {
			t.Errorf("states %v", got)
		}
		items, _ := l.store.(storage.OutboxStore)
		page, err := items.ListItems(t.Context(), storage.ItemQuery{State: storage.Uncertain, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range page.Items {
			if !it.Unresolved || it.FirstUnresolvedAt.IsZero() || it.FirstUnresolvedAt.After(plan.Before) || it.LastError.Code != "restored" {
				t.Errorf("%+v", it)
			}
		}
		if ledger := d.Ledger(); ledger.Charges != 5 || ledger.DoubleCharges != 0 {
			t.Errorf("%d charges, %d of them double", ledger.Charges, ledger.DoubleCharges)
		}
		settled, _ := l.store.(storage.SettlementStore)
		actions, err := settled.ListActions(t.Context(), storage.ActionQuery{Limit: 10})
		if err != nil || len(actions.Actions) != 1 || actions.Actions[0].Kind != storage.ActionRestore || actions.Actions[0].Actor != "ada" {
			t.Errorf("%+v, %v", actions, err)
		}
		if err := filled(); err != nil {
			t.Errorf("backfill after it was settled: %v", err)
		}
		if got := l.Degraded(); len(got) != 0 {
			t.Errorf("degraded %v", got)
		}
		l.healthy(t, 1)
	})
}

// healthy checks that a restore of a store that is not behind is refused and leaves
// no action, unless an operator insists. // Q17.
func (l *life) healthy(t *testing.T, actions int) {
	t.Helper()
	logged := func() int {
		settled, _ := l.store.(storage.SettlementStore)
		page, err := settled.ListActions(t.Context(), storage.ActionQuery{Kind: storage.ActionRestore, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Actions)
	}
	dry := act
	dry.DryRun = true
	for _, a := range []host.Act{dry, act} {
		if got, err := l.RecoverRestore(t.Context(), a); !errors.Is(err, &sdk.Error{Tag: sdk.TagConflict, Code: host.CodeNoRestorePending}) {
			t.Errorf("nothing is pending: %+v, %v", got, err)
		}
	}
	if n := logged(); n != actions {
		t.Errorf("%d restores in the log, want %d", n, actions)
	}
	if got, err := l.RecoverUnnoticed(t.Context(), dry); err != nil || got.Reason == host.ReasonRestorePending {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := l.RecoverUnnoticed(t.Context(), act); err != nil || logged() != actions+1 {
		t.Errorf("insisted: %d, %v", logged(), err)
	}
}

// Q17: on a store that nobody restored everything stays as it is.
func TestRestoreOfAHealthyStore(t *testing.T) { //nolint:paralleltest // in archives
	archives(t, func(t *testing.T, a archive) {
		d, dir := newProvider(t), filepath.Join(t.TempDir(), "state")
		beforeTheBackup(t, a, d, dir)
		for _, delivers := range []bool{true, false} {
			l := a.live(t, d, dir, delivers)
			if delivers {
				l.sent()
			}
			l.healthy(t, map[bool]int{true: 0, false: 1}[delivers])
			l.end()
		}
	})
}

// The command works while no server runs, on the same state_dir; a server that
// starts then delivers.
func TestRestoreIsSettledWithoutAServer(t *testing.T) { //nolint:paralleltest // in archives
	archives(t, func(t *testing.T, a archive) {
		d, dir := newProvider(t), filepath.Join(t.TempDir(), "state")
		beforeTheBackup(t, a, d, dir)
		a.restore()
		l := a.live(t, d, dir, false)
		dry := act
		dry.DryRun = true
		plan, err := l.RecoverRestore(t.Context(), dry)
		if err != nil {
			t.Fatal(err)
		}
		done, err := l.RecoverRestore(t.Context(), act)
		if err != nil || done.Items != 2 || !done.Since.Equal(plan.Since) {
			t.Errorf("%+v, %v; planned %+v", done, err, plan)
		}
		l.record("e")
		l.end()
		l = a.live(t, d, dir, true)
		defer l.end()
		if got := l.sent(); got[storage.Uncertain] != 2 || got[storage.Accepted] != 3 {
			t.Errorf("states %v", got)
		}
		if ledger := d.Ledger(); ledger.DoubleCharges != 0 {
			t.Errorf("%d double charges", ledger.DoubleCharges)
		}
	})
}

// Q17: a host that lost its memory, or never had one, cannot tell: it delivers on
// an operator's word only. What it would do without being asked is what the
// ledger of this test is there for.
func TestHostThatLostItsMemory(t *testing.T) { //nolint:paralleltest // in archives
	archives(t, func(t *testing.T, a archive) {
		d, dir := newProvider(t), filepath.Join(t.TempDir(), "state")
		beforeTheBackup(t, a, d, dir)
		l := a.live(t, d, filepath.Join(t.TempDir(), "another"), true)
		l.stopped(host.ReasonNoMemory)
		l.record("e")
		if _, err := l.RecoverAdopt(t.Context(), host.Act{Actor: "ada"}); err == nil {
			t.Error("adopted without a reason")
		}
		done, err := l.RecoverAdopt(t.Context(), host.Act{Actor: "ada", Reason: "a new machine"})
		if err != nil || done.Reason != host.ReasonNoMemory {
			t.Errorf("%+v, %v", done, err)
		}
		if got := l.sent(); got[storage.Accepted] != 5 {
			t.Errorf("states %v", got)
		}
		l.end()
		if ledger := d.Ledger(); ledger.DoubleCharges != 0 || ledger.Charges != 5 {
			t.Errorf("%+v", ledger)
		}
		// And now the operator is wrong: the judge sees it.
		d.forget()
		a.restore()
		l = a.live(t, d, filepath.Join(t.TempDir(), "a third"), true)
		defer l.end()
		l.stopped(host.ReasonNoMemory)
		if got := d.Ledger().DoubleCharges; got != 0 {
			t.Errorf("%d double charges of a host without memory", got)
		}
		if _, err := l.RecoverAdopt(t.Context(), act); err != nil {
			t.Fatal(err)
		}
		states := l.sent()
		if got := d.Ledger().DoubleCharges; got != 2 {
			t.Errorf("%d double charges, want 2: the test judges nothing; states %v", got, states)
		}
	})
}

// A host that sends nothing keeps nothing: an embedding program that only records
// finds no folder of ours.
func TestRecordingKeepsNoState(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	h := open(t, hostConfig(newStore(t), config.Config{StateDir: dir}))
	if _, err := h.Engine().Record(t.Context(), engine.Event{ID: "1", Tenant: "acme", Feature: "tokens", Quantity: decimal.One}); err != nil {
		t.Fatal(err)
	}
	if got := h.Degraded(); len(got) != 0 {
		t.Errorf("degraded %v", got)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
}
