package host

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/journal"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// asks reports whether the manifest names a capability.
func (l *loaded) asks(name capability.Name) bool {
	return slices.Contains(l.manifest.Capabilities, name)
}

// openWays opens the ways out that the manifest names.
func (l *loaded) openWays(ctx context.Context, g grant.Grant) error {
	if l.asks(capability.AppendName) {
		var err error
		if l.file, err = l.of.openJournal(ctx); err != nil {
			return err
		}
	}
	if l.asks(capability.HTTPName) {
		var follows *egress.Client
		if before := l.of.current(); before != nil {
			follows = before.http
		}
		return l.openEgress(g, follows)
	}
	return nil
}

// openJournal opens the file that the operator named. All versions of the plugin
// share it.
func (x *exporterRuntime) openJournal(ctx context.Context) (*journal.File, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.file != nil {
		return x.file, nil
	}
	if x.settings.File == "" {
		e := sdk.Invalid("file", "the path of the file that this exporter appends to")
		e.Hint = "add file: ./usage.ndjson to the exporter"
		return nil, e
	}
	// Another process may be writing; longer than this something is stuck.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var err error
	x.file, err = journal.Open(ctx, journal.Config{
		Path: x.settings.File, Left: outbox.LeaseLeft, Now: x.host.cfg.Now,
		Observe: func(c exporter.HostClass) { x.host.metrics.Requested(x.settings.Name, string(c)) },
	})
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	return x.file, nil
}

// witness begins to note what leaves the host for items, whichever way, and
// returns the context to call the plugin in and what is to be asked afterwards.
func (l *loaded) witness(ctx context.Context, items []outbox.SendItem) (context.Context, func() map[string][]exporter.Exchange) {
	var sent *egress.Call
	var written *journal.Call
	if l.http != nil {
		covered := make([]egress.CallItem, len(items))
		for i, it := range items {
			covered[i] = egress.CallItem{
				ID: it.ID, Identifier: it.Covers, SerialKey: it.SerialKey, Key: egress.KeyOf(l.manifest.Records, it.Item),
			}
		}
		ctx, sent = l.http.Begin(ctx, covered)
	}
	if l.file != nil {
		lines := make([]journal.Item, len(items))
		for i, it := range items {
			lines[i] = journal.Item{ID: it.ID, Identifier: it.Identifier, Again: it.Attempt > 1}
		}
		ctx, written = l.file.Begin(ctx, lines)
	}
	return ctx, func() map[string][]exporter.Exchange {
		out := map[string][]exporter.Exchange{}
		if sent != nil {
			maps.Copy(out, sent.Exchanges())
		}
		if written != nil {
			for id, list := range written.Exchanges() {
				out[id] = append(out[id], list...)
			}
		}
		return out
	}
}

// checkWindows refuses features whose usage is events for an exporter that takes
// windows of counters only.
func (l *loaded) checkWindows() error {
	x := l.of
	if l.manifest.Every == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(x.settings.Mapping.Features)) {
		if !x.host.cfg.Settings.Features[name].Buffered() {
			return &sdk.Error{
				Tag: sdk.TagUnsupported, Code: "windows_only", Field: "mapping.features." + name,
				Rule: "a feature with source: buffered; " + l.manifest.Name + " takes one value for each customer and feature every " +
					l.manifest.Every.String() + ", which single events cannot be",
				Hint: "set features." + name + ".source to buffered, or take the feature out of this exporter's mapping",
			}
		}
	}
	return nil
}
