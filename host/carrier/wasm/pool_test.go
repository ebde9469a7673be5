package wasm

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
)

// blocking is a module whose calls wait in Host.HTTPSend, and a Config with
// which a test holds them there.
func blocking(instances int) (cfg Config, entered chan struct{}, proceed chan struct{}) {
	entered, proceed = make(chan struct{}, 100), make(chan struct{})
	cfg = config(plugin([]imp{impSend}, cat(i32c(0), i32c(1), call(0), drop(), i32c(0))).encode())
	cfg.Limits.MaxInstances = instances
	cfg.Host.HTTPSend = func(ctx context.Context, _ []byte) ([]byte, error) {
		entered <- struct{}{}
		select {
		case <-proceed:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return cfg, entered, proceed
}

// An instance serves one call at a time, there are never more than allowed,
// and waiting for one honours the context.
func TestPoolIsBounded(t *testing.T) {
	t.Parallel()
	cfg, entered, proceed := blocking(2)
	m := mustOpen(t, cfg)
	var calls sync.WaitGroup
	for range 5 {
		calls.Go(func() {
			if _, err := m.Call(t.Context(), 1, nil); err != nil {
				t.Error(err)
			}
		})
	}
	<-entered
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := m.Call(ctx, 1, nil)
	var f *carrier.Fault
	if !errors.As(err, &f) || f.Kind != carrier.KindDeadline || f.Entered || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want a deadline while waiting", err)
	}
	if len(entered) != 0 || m.Stats().Instances != 2 {
		t.Errorf("%d more entered, %d instances, want two", len(entered), m.Stats().Instances)
	}
	close(proceed)
	calls.Wait()
	if s := m.Stats(); s.Created != 2 || s.Calls != 5 {
		t.Errorf("stats %+v, want two instances for five calls", s)
	}
}

// Close waits for running calls, lets them finish, and refuses new ones.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	cfg, entered, proceed := blocking(1)
	m := mustOpen(t, cfg)
	result, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := m.Call(context.Background(), 1, nil)
		result <- err
	}()
	<-entered
	go func() { closed <- m.Close(context.Background()) }()
	var f *carrier.Fault
	for !errors.As(func() error { _, err := m.Call(timeout(t, time.Millisecond), 1, nil); return err }(), &f) || f.Kind != carrier.KindClosed {
		// Close may not have begun yet.
	}
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v while a call ran", err)
	default:
	}
	close(proceed)
	if err := <-result; err != nil {
		t.Errorf("the running call: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func timeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// When Close may not wait, running calls end with a fault of kind closed.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	cfg, entered, _ := blocking(1)
	loops := config(evilDeadlines()["infinite loop"].encode())
	for name, c := range map[string]Config{"in the host": cfg, "in the guest": loops} {
		m := mustOpen(t, c)
		result := make(chan error, 1)
		go func() {
			_, err := m.Call(context.Background(), 1, nil)
			result <- err
		}()
		if name == "in the host" {
			<-entered
		}
		if err := m.Close(timeout(t, 20*time.Millisecond)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var f *carrier.Fault
		if err := <-result; !errors.As(err, &f) || f.Kind != carrier.KindClosed {
			t.Errorf("%s: error %v, want closed", name, err)
		}
	}
}

// Instances are replaced when they are old or have grown: guest memory never
// shrinks.
func TestRecycling(t *testing.T) {
	t.Parallel()
	cfg := guestConfig(t)
	cfg.Limits.MaxCalls = 3
	m := mustOpen(t, cfg)
	for i, want := range []string{"1", "2", "3", "1"} {
		if got := mustCall(t, m, guestCalls, ""); got != want {
			t.Errorf("call %d: counted %s, want %s", i, got, want)
		}
	}
	cfg.Limits.MaxCalls, cfg.Limits.HighWaterPages = 0, 128
	m = mustOpen(t, cfg)
	mustCall(t, m, guestCalls, "")
	mustCall(t, m, guestAllocates, "10000000")
	if s := m.Stats(); s.Recycled != 1 || s.Instances != 0 || s.Discarded != 0 {
		t.Errorf("stats %+v, want the grown instance replaced", s)
	}
	if got := mustCall(t, m, guestCalls, ""); got != "1" {
		t.Errorf("counted %s, want a new instance", got)
	}
}

// Many callers, few instances, random cancels and traps, and Close in the
// middle: no crash, no leak (goleak in TestMain), every error explained. Run
// with -race.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	evil := plugin([]imp{impInput, impOutput}, cat(
		get(0), iff(get(0), i32c(1), []byte{0x46}, iff([]byte{0x00}), loop(br(0))), // 1 traps, others loop
		i32c(0), i32c(0), get(1), call(0), call(1), i32c(0)))
	cfg := config(evil.encode())
	cfg.Limits.MaxInstances, cfg.Limits.MaxCalls = 3, 20
	m := mustOpen(t, cfg)
	var answered, faulted, closed atomic.Int64
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(worker)))
			for range 100 {
				request := make([]byte, 1+r.IntN(5000))
				request[0] = byte(worker)
				method := uint32(max(0, r.IntN(12)-9)) // mostly 0, sometimes 1 or 2
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(4000))*time.Microsecond)
				answer, err := m.Call(ctx, method, request)
				cancel()
				var f *carrier.Fault
				switch {
				case err == nil && (len(answer) != len(request) || answer[0] != byte(worker)):
					t.Errorf("worker %d got the answer of another call", worker)
				case err == nil:
					answered.Add(1)
				case !errors.As(err, &f):
					t.Errorf("error %v is no fault", err)
				case f.Kind == carrier.KindClosed:
					closed.Add(1)
				default:
					faulted.Add(1)
				}
			}
		})
	}
	for answered.Load() < 200 && faulted.Load() < 1000 {
		time.Sleep(time.Millisecond) // polling other goroutines, bounded by their work
	}
	if err := m.Close(timeout(t, time.Millisecond)); err != nil {
		t.Error(err)
	}
	wg.Wait()
	t.Logf("answered %d, faulted %d, closed %d; %+v", answered.Load(), faulted.Load(), closed.Load(), m.Stats())
	// What was neither thrown away nor replaced was idle when Close came.
	if s := m.Stats(); s.Instances != 0 || s.Created-s.Discarded-s.Recycled > 3 {
		t.Errorf("stats %+v do not add up", s)
	}
}

// The cache is refused when somebody else could have written it, and damage
// costs a slow start only.
func TestCache(t *testing.T) {
	t.Parallel()
	module := plugin([]imp{impInput, impOutput}, cat(i32c(0), i32c(0), get(1), call(0), call(1), i32c(0))).encode()
	cfg := config(module)
	cfg.CacheDir = filepath.Join(t.TempDir(), "made", "cache")
	mustCall(t, mustOpen(t, cfg), 1, "x")
	if info, err := os.Stat(cfg.CacheDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("cache %v, %v, want mode 0700", info, err)
	}
	entries := func() (files []string) {
		_ = filepath.WalkDir(cfg.CacheDir, func(path string, d os.DirEntry, _ error) error {
			if !d.IsDir() {
				files = append(files, path)
			}
			return nil
		})
		return files
	}
	files := entries()
	if len(files) != 1 {
		t.Fatalf("cache files %v, want one", files)
	}
	for name, damage := range map[string]func(b []byte) []byte{
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"empty":     func([]byte) []byte { return nil },
		"flipped":   func(b []byte) []byte { b[len(b)/2] ^= 0xff; return b },
		"no header": func(b []byte) []byte { return append([]byte("XXXXXX"), b[6:]...) },
	} {
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[0], damage(b), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := mustCall(t, mustOpen(t, cfg), 1, "still works"); got != "still works" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, spoil := range map[string]func() error{
		"group may write":  func() error { return os.Chmod(cfg.CacheDir, 0o770) },
		"others may write": func() error { return os.Chmod(cfg.CacheDir, 0o707) },
		"entry writable":   func() error { return os.Chmod(entries()[0], 0o666) },
		"a file":           func() error { cfg.CacheDir = files[0]; return nil },
	} {
		before := cfg.CacheDir
		if err := spoil(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantRefused(t, cfg, CodeCache, "evil 1.2.3")
		cfg.CacheDir = before
		if err := errors.Join(os.Chmod(before, 0o700), os.Chmod(entries()[0], 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(cfg.CacheDir, link); err != nil {
		t.Fatal(err)
	}
	cfg.CacheDir = link
	wantRefused(t, cfg, CodeCache, "symbolic link")
}

// Opening, calling and closing again and again leaves nothing behind.
func TestReopen(t *testing.T) {
	t.Parallel()
	cfg := guestConfig(t)
	for range 3 {
		m, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := mustCall(t, m, guestEcho, "x"); got != "x" {
			t.Errorf("echo %q", got)
		}
		if err := errors.Join(m.Close(t.Context()), m.Close(t.Context())); err != nil {
			t.Error(err)
		}
	}
}
