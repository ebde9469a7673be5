package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fencepost/fencepost/host/carrier/wasm"
	"github.com/fencepost/fencepost/host/grant"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// What a plugin says of itself is the same each time for the same content and
// settings. It is kept beside compiled code, so that a host which has seen it
// need not run the plugin before it records. The plugin is asked again before
// anything is delivered.

// descriptionMax bounds a kept description.
const descriptionMax = 1 << 20

// keptIn is where the description is kept, and its name there. Empty: nowhere.
func (l *loaded) keptIn() (dir, name string) {
	cache := l.of.host.cacheDir()
	if cache == "" || l.plugin.sha256 == "" {
		return "", ""
	}
	sum := sha256.New()
	_, _ = io.WriteString(sum, l.plugin.sha256)
	_, _ = sum.Write(wirev1.EncodeConfiguration(l.of.conf))
	return filepath.Join(cache, "descriptions"), hex.EncodeToString(sum.Sum(nil))
}

// kept returns what the plugin said of itself, or nil.
func (l *loaded) kept() []byte {
	dir, name := l.keptIn()
	if dir == "" || wasm.CheckPrivate(dir) != nil {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	said, err := io.ReadAll(io.LimitReader(f, descriptionMax))
	if err != nil {
		return nil
	}
	if _, err := wirev1.DecodeManifest(said); err != nil {
		return nil
	}
	return said
}

// keep remembers what the plugin said. Without it the next start takes longer,
// no more.
func (l *loaded) keep(said []byte) {
	dir, name := l.keptIn()
	if dir == "" {
		return
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = wasm.CheckPrivate(dir)
	}
	if err == nil {
		err = grant.WriteFile(filepath.Join(dir, name), said, 0o600)
	}
	if err != nil {
		l.of.host.cfg.Logger.Warn("a plugin's description is not kept", "exporter", l.of.settings.Name, "error", err)
	}
}

func (l *loaded) forget() {
	if dir, name := l.keptIn(); dir != "" {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.of.host.cfg.Logger.Warn("a plugin's description is still kept", "exporter", l.of.settings.Name, "error", err)
		}
	}
}

// Waits between attempts to open a plugin behind the host's start.
const (
	loadAgain    = time.Second
	loadAgainMax = time.Minute
)

// loadBehind opens a plugin while the host records already. What waits for it
// stays in the outbox. It is tried until ctx ends or another version has its
// place.
func (x *exporterRuntime) loadBehind(ctx context.Context, l *loaded) {
	for wait := loadAgain; ; wait = min(2*wait, loadAgainMax) {
		err := l.start(ctx)
		if err == nil {
			l.failed.Store(nil)
			l.settle(nil)
			x.isReady()
			if x.host.cfg.Loaded != nil {
				x.host.cfg.Loaded(x.settings.Name)
			}
			return
		}
		if ctx.Err() == nil {
			l.failed.Store(&err)
			x.host.cfg.Logger.ErrorContext(ctx, "plugin not loaded: what waits for it stays in the queue", "exporter", x.settings.Name, "error", err)
		}
		again := time.NewTimer(wait)
		select {
		case <-again.C:
			continue
		case <-ctx.Done():
		case <-l.replaced:
		}
		again.Stop()
		l.settle(errStillLoading)
		return
	}
}
